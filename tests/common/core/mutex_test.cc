// Mutex and CondVar: exclusion, waking, and the ends of a wait. tidy_test.py shows that clang refuses an
// unguarded use.

#include "common/core/mutex.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace troupe::mutex_test {

using std::chrono::steady_clock;

struct Mailbox {
  Mutex mutex;
  CondVar changed;
  int letters ABSL_GUARDED_BY(mutex) = 0;

  void put() {
    const MutexLock lock(mutex);
    ++letters;
    changed.notify_one();
  }
  int await(int count) {
    const MutexLock lock(mutex);
    while (letters < count) changed.wait(mutex);
    return letters;
  }
};

TEST(Mutex, ThreadsThatHoldItInTurnLoseNoUpdate) {
  Mailbox box;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&box] {
      for (int n = 0; n < 1000; ++n) box.put();
    });
  }
  EXPECT_EQ(box.await(4000), 4000);
  for (std::thread& thread : threads) thread.join();
}

TEST(CondVar, AWaitEndsAtItsTime) {
  Mailbox box;
  const TimePoint begin = steady_clock::now();
  const MutexLock lock(box.mutex);
  while (box.changed.wait_until(box.mutex, begin + std::chrono::milliseconds(5))) {
  }
  EXPECT_GE(steady_clock::now(), begin + std::chrono::milliseconds(5));
  while (box.changed.wait_for(box.mutex, std::chrono::milliseconds(1))) {
  }
  EXPECT_GE(steady_clock::now(), begin + std::chrono::milliseconds(6));
}

TEST(CondVar, AWaitWithoutAnEndIsEndedByANotification) {
  Mailbox box;
  std::thread thread([&box] { box.put(); });
  {
    const MutexLock lock(box.mutex);
    while (box.letters == 0) EXPECT_TRUE(box.changed.wait_until(box.mutex, TimePoint::max()));
  }
  thread.join();
}

}  // namespace troupe::mutex_test
