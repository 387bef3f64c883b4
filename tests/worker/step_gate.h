#pragma once

// A hook of the fake runner that holds every step until it is opened; for 20 s, so that a test that fails
// ends.

#include <chrono>
#include <future>
#include <utility>

#include "tests/worker/fake_runner.h"

namespace troupe::testing {

class StepGate {
 public:
  FakeRunner::Hook hook() {
    return [opened = opened_](const Batch&) {
      opened.wait_for(std::chrono::seconds(20));
      return absl::OkStatus();
    };
  }
  void open() {
    if (!std::exchange(is_open_, true)) open_.set_value();
  }

 private:
  std::promise<void> open_;
  std::shared_future<void> opened_ = open_.get_future().share();
  bool is_open_ = false;
};

}  // namespace troupe::testing
