#pragma once

// Bounds a job on a thread that others wait for: its processor time, and that of the request it is for. Code
// that may take long counts what it does (count_work), and stops at the error; most of it lies far below
// the caller that set the limit, so it finds its thread's limit by itself. Without one nothing is counted.

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "common/core/status.h"
#include "common/core/time.h"

namespace troupe {

class WorkLimit {
 public:
  enum class End : uint8_t {
    kNone,
    kAbandoned,  // the result is not wanted any more
    kDeadline,   // the request's time is over
    kBudget      // the thread has spent `cpu_max` on it: its text is too costly
  };
  // `cpu_max`: processor time of the thread that the limit is in force on, from the scope's beginning on.
  WorkLimit(Duration cpu_max, Deadline deadline) : cpu_max_(cpu_max), deadline_(deadline) {}

  // Ends the job at its next count. Thread-safe.
  void abandon() { abandoned_.store(true, std::memory_order_relaxed); }

  // Counts work, `bytes` of text or as much as that; the clocks are read once for kBytesPerCheck of it. Once
  // it is an error it stays one.
  Status count(size_t bytes) {
    if (bytes < left_) {
      left_ -= bytes;
      return {};
    }
    return check();
  }
  End end() const { return end_; }

 private:
  friend class WorkScope;
  static constexpr size_t kBytesPerCheck = 16 * 1024;
  Status check();

  const Duration cpu_max_;
  const Deadline deadline_;
  Duration cpu_end_ = Duration::max();  // in the thread's own time
  std::atomic<bool> abandoned_ = false;
  size_t left_ = 0;  // to be counted before the next check
  End end_ = End::kNone;
};

// Puts a limit in force on this thread until the end of the scope. REQUIRES: `limit` lives longer.
class WorkScope {
 public:
  explicit WorkScope(WorkLimit& limit);
  ~WorkScope();
  WorkScope(const WorkScope&) = delete;
  WorkScope& operator=(const WorkScope&) = delete;

 private:
  WorkLimit* outer_;
};

// Counts against this thread's limit.
Status count_work(size_t bytes);

}  // namespace troupe
