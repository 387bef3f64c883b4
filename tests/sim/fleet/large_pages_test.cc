#include "sim/fleet/large_pages.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

namespace troupe::sim {
namespace large_pages_test {

// Memory of this process on large pages, in kB.
int64_t large_kb() {
  std::ifstream lines("/proc/self/smaps_rollup");
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("AnonHugePages:")) return std::atoll(line.c_str() + 14);
  }
  return -1;
}

// In a process of its own, whose heap is fresh: prints how much of 64 MB is on large pages.
void take_memory() {
  const bool asked = prefer_large_pages();
  constexpr size_t kBytes = size_t{64} << 20;
  const int64_t before = large_kb();
  char* const memory = static_cast<char*>(std::malloc(kBytes));
  if (memory == nullptr) std::exit(1);
  std::memset(memory, 7, kBytes);
  const int64_t large = large_kb() - before;
  std::fprintf(stderr, "asked %d, checksum %d, %s", asked, memory[0] + memory[kBytes - 1],
               large > 0 ? "large" : "small");
  std::free(memory);
  std::exit(0);
}

TEST(LargePagesDeathTest, LaterAllocationsLieOnLargePages) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  std::string mode;
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::getline(file, mode);
  const bool has_them = large_kb() >= 0 && !mode.empty() && mode.find("[never]") == std::string::npos;
  // Without large pages, or under a sanitizer's malloc(), memory is as always.
  EXPECT_EXIT(take_memory(), ::testing::ExitedWithCode(0),
              has_them ? "asked 1, checksum 14, large|asked 0, checksum 14" : "checksum 14");
}

}  // namespace large_pages_test
}  // namespace troupe::sim
