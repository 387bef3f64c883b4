#include "common/core/memory_trimmer.h"

#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <string>
#include <vector>

namespace troupe::memory_trimmer_test {

constexpr size_t kMiB = size_t{1} << 20;

TEST(TrimPolicy, TrimsWhatStaysFreeAndNotWhatIsTakenAgain) {
  TrimPolicy policy(32 * kMiB);
  EXPECT_FALSE(policy.wants_trim(400 * kMiB)) << "it may be taken again at once";
  EXPECT_TRUE(policy.wants_trim(400 * kMiB));
  EXPECT_FALSE(policy.wants_trim(0));
  EXPECT_FALSE(policy.wants_trim(33 * kMiB));
  EXPECT_FALSE(policy.wants_trim(10 * kMiB));
  EXPECT_FALSE(policy.wants_trim(33 * kMiB));
  EXPECT_TRUE(policy.wants_trim(33 * kMiB));
  EXPECT_FALSE(policy.wants_trim(33 * kMiB)) << "nothing more comes of it at once";
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

size_t resident_bytes() {
  size_t pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * 4096;
}

TEST(MemoryTrimmer, GivesBackWhatABurstLeaves) {
  const size_t before = resident_bytes();
  const MemoryTrimmer trimmer({.interval = std::chrono::milliseconds(20)});
  {
    // Small enough for the heap, where the last of them would hold all others.
    std::vector<std::unique_ptr<std::string>> pieces;
    for (size_t i = 0; i < 4000; ++i) pieces.push_back(std::make_unique<std::string>(50'000, 'x'));
    pieces.resize(1);
    EXPECT_GT(resident_bytes(), before + 150 * kMiB);
    for (int i = 0; i < 500 && resident_bytes() > before + 50 * kMiB; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_LT(resident_bytes(), before + 50 * kMiB);
  }
}

#endif

}  // namespace troupe::memory_trimmer_test
