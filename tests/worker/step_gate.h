#pragma once

// A hook of the fake runner that lets some steps through and holds all others until it is opened, at most for
// two minutes, so that a failing test ends.

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "tests/worker/fake_runner.h"

namespace troupe::testing {

class StepGate {
 public:
  explicit StepGate(int free_steps = 0) : free_steps_(free_steps) {}
  FakeRunner::Hook hook() {
    return [this](const Batch&) -> Status {
      std::unique_lock lock(mutex_);
      ++arrived_;
      changed_.notify_all();
      changed_.wait_for(lock, kPatience, [this] { return open_ || arrived_ <= free_steps_; });
      return absl::OkStatus();
    };
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  // Waits for a step to arrive, held or not.
  void wait_arrival() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kPatience, [this] { return arrived_ > 0; });
  }

 private:
  static constexpr std::chrono::seconds kPatience{120};
  std::mutex mutex_;
  std::condition_variable changed_;
  const int free_steps_;
  int arrived_ = 0;
  bool open_ = false;
};

}  // namespace troupe::testing
