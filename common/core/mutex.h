#pragma once

// std::mutex and std::condition_variable with abseil's annotations: a member declared ABSL_GUARDED_BY(mutex_)
// cannot be touched without mutex_, or clang's build (-Wthread-safety, the fuzz preset) fails. A predicate
// passed as a lambda would be analysed on its own, without the lock its caller holds; so a wait is a loop in
// the open:
//
//   const MutexLock lock(mutex_);
//   while (queue_.empty()) changed_.wait(mutex_);

#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "common/core/time.h"

namespace troupe {

class ABSL_LOCKABLE Mutex {
 public:
  void lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// Holds the mutex until its scope ends.
class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// A wait gives the mutex up meanwhile, and may return without a notification.
class CondVar {
 public:
  void notify_one() { condition_.notify_one(); }
  void notify_all() { condition_.notify_all(); }

  void wait(Mutex& mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }
  // Returns false when it is `until`; TimePoint::max() never is.
  bool wait_until(Mutex& mutex, TimePoint until) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (until == TimePoint::max()) return wait(mutex), true;
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    const std::cv_status status = condition_.wait_until(lock, until);
    lock.release();
    return status == std::cv_status::no_timeout;
  }
  bool wait_for(Mutex& mutex, Duration duration) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return wait_until(mutex, std::chrono::steady_clock::now() + duration);
  }

 private:
  std::condition_variable condition_;
};

}  // namespace troupe
