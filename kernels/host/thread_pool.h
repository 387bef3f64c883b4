#pragma once

// The threads of one cpu backend: N - 1 workers and the caller. A transformer step is a few hundred short
// parallel loops with microseconds between them, on machines where several such pools share the cores. So a
// worker that runs out of work spins for some microseconds (the next loop is usually near) and then sleeps;
// and a loop ends as soon as its indices are done, by any thread: it never waits for a worker that the system
// has not scheduled yet.

#include <atomic>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace troupe {

class ThreadPool {
 public:
  // `thread_count` >= 1, the caller included.
  explicit ThreadPool(int thread_count);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int thread_count() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(index, thread) for every index in [0, count), `thread` in [0, thread_count()) being distinct
  // among concurrent calls (for scratch memory). Which thread gets which index is left to chance: results
  // must not depend on it. Returns when all are done. One caller at a time; `body` must not throw.
  template <typename Body>
  void parallel_for(int64_t count, Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    run({[](void* context, int64_t index, int thread) { (*static_cast<Plain*>(context))(index, thread); },
         &body},
        count);
  }

 private:
  struct Task {
    void (*call)(void* context, int64_t index, int thread) = nullptr;
    void* context = nullptr;
  };

  void run(Task task, int64_t count);
  bool run_one(int thread);
  void worker_loop(int thread);

  // A job is known by its number in the upper half of `ticket_`; the lower half is the next index to claim.
  // The ticket is closed before the task's fields change and opened after, so a worker that wakes late and
  // reads a mixture of two jobs cannot claim with it.
  std::atomic<uint64_t> ticket_{0};
  std::atomic<void (*)(void*, int64_t, int)> call_{nullptr};
  std::atomic<void*> context_{nullptr};
  std::atomic<uint32_t> count_{0};
  std::atomic<int32_t> unfinished_{0};
  std::atomic<int32_t> job_number_{0};  // what sleeping workers wait on
  std::atomic<int32_t> sleepers_{0};
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> workers_;
};

}  // namespace troupe
