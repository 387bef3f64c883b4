#include "kernels/host/thread_pool.h"

#include <immintrin.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <limits>
#include <string>

#include "common/core/check.h"
#include "kernels/host/openmp.h"

namespace troupe {
namespace {

using SteadyClock = std::chrono::steady_clock;

// Longer than the gap between two loops of a step, shorter than a cost to notice on an idle machine.
constexpr auto kSpinTime = std::chrono::microseconds(20);
constexpr int kPausesPerClockRead = 16;
constexpr uint64_t kClosed = 0xffffffff;  // an index no job reaches

// True when `ready` turned true within kSpinTime.
template <typename Ready>
bool spin_until(Ready ready) {
  const auto end = SteadyClock::now() + kSpinTime;
  do {
    for (int i = 0; i < kPausesPerClockRead; ++i) {
      if (ready()) return true;
      _mm_pause();
    }
  } while (SteadyClock::now() < end);
  return ready();
}

// std::atomic::wait would yield some times before it sleeps, and on a busy machine every yield gives a whole
// time slice away.
void futex_wait(std::atomic<int32_t>& word, int32_t while_equal) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, while_equal, nullptr, nullptr, 0);
}
void futex_wake_all(std::atomic<int32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, std::numeric_limits<int32_t>::max(), nullptr, nullptr, 0);
}

}  // namespace

ThreadPool::ThreadPool(int thread_count) {
  TROUPE_CHECK(thread_count >= 1,
               "a pool has at least one thread, asked for " + std::to_string(thread_count));
  workers_.reserve(static_cast<size_t>(thread_count - 1));
  for (int thread = 1; thread < thread_count; ++thread) {
    workers_.emplace_back([this, thread] { worker_loop(thread); });
  }
}

ThreadPool::~ThreadPool() {
  stopping_.store(true, std::memory_order_release);
  job_number_.fetch_add(1);
  futex_wake_all(job_number_);
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(Task task, int64_t count) {
  if (count <= 0) return;
  TROUPE_CHECK(count <= std::numeric_limits<int32_t>::max(), "loop too long: " + std::to_string(count));
  const SingleThreadedOpenMp one_thread;
  if (workers_.empty() || count == 1) {
    for (int64_t index = 0; index < count; ++index) task.call(task.context, index, 0);
    return;
  }
  const uint64_t job = ((ticket_.load(std::memory_order_relaxed) >> 32) + 1) << 32;
  ticket_.store(job | kClosed, std::memory_order_release);
  call_.store(task.call, std::memory_order_release);
  context_.store(task.context, std::memory_order_release);
  count_.store(static_cast<uint32_t>(count), std::memory_order_release);
  unfinished_.store(static_cast<int32_t>(count), std::memory_order_relaxed);
  ticket_.store(job, std::memory_order_release);
  // Both sequentially consistent, as in worker_loop: either we see the sleeper or it sees the new number.
  job_number_.fetch_add(1);
  if (sleepers_.load() > 0) futex_wake_all(job_number_);
  while (run_one(0)) {
  }
  if (spin_until([&] { return unfinished_.load(std::memory_order_acquire) == 0; })) return;
  for (int32_t left; (left = unfinished_.load(std::memory_order_acquire)) != 0;)
    futex_wait(unfinished_, left);
}

// Claims and runs one index of the current job; false when none is left.
bool ThreadPool::run_one(int thread) {
  uint64_t ticket = ticket_.load(std::memory_order_acquire);
  for (;;) {
    const auto call = call_.load(std::memory_order_acquire);
    void* const context = context_.load(std::memory_order_acquire);
    const auto index = static_cast<uint32_t>(ticket);
    if (index >= count_.load(std::memory_order_acquire)) return false;
    // Had any of the three been the next job's, its closed ticket would be visible too and this would fail.
    if (!ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel)) continue;
    call(context, index, thread);
    if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1 && thread != 0) futex_wake_all(unfinished_);
    return true;
  }
}

void ThreadPool::worker_loop(int thread) {
  const SingleThreadedOpenMp one_thread;
  int32_t seen = 0;
  while (!stopping_.load(std::memory_order_acquire)) {
    while (run_one(thread)) {
    }
    const auto woken = [&] { return job_number_.load() != seen; };
    if (!spin_until(woken)) {
      sleepers_.fetch_add(1);
      while (!woken()) futex_wait(job_number_, seen);
      sleepers_.fetch_sub(1);
    }
    seen = job_number_.load(std::memory_order_acquire);
  }
}

}  // namespace troupe
