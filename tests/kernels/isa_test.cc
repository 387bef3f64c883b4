#include "kernels/cpu/isa.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace troupe {
namespace isa_test {

// The flags of the first processor, by Linux.
std::set<std::string> cpu_flags() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("flags", 0) != 0) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    std::set<std::string> flags;
    for (std::string word; words >> word;) flags.insert(word);
    return flags;
  }
  return {};
}

// The sets are those that target_avx2.cc and target_avx512.cc are compiled for.
TEST(Isa, IsTheBestLevelOfWhichThisMachineHasEveryInstruction) {
  const std::set<std::string> flags = cpu_flags();
  if (flags.empty()) GTEST_SKIP() << "/proc/cpuinfo lists no flags here";
  const std::vector<std::pair<CpuIsa, std::vector<std::string>>> levels{
      {CpuIsa::kAvx2, {"avx2", "fma", "f16c"}},
      {CpuIsa::kAvx512, {"avx512f", "avx512bw", "avx512dq", "avx512vl"}},
      {CpuIsa::kAvx512Bf16, {"avx512_vnni", "avx512_bf16"}},
      {CpuIsa::kAmx, {"amx_tile", "amx_bf16"}}};
  CpuIsa best = CpuIsa::kSse;
  for (const auto& [isa, needs] : levels) {
    bool has_all = true;
    for (const std::string& need : needs) has_all = has_all && flags.count(need) > 0;
    if (!has_all) break;
    best = isa;
  }
  // Tile registers need a permission, which a sandbox may refuse.
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  if (best == CpuIsa::kAmx && syscall(SYS_arch_prctl, kRequestPermission, kTileData) != 0)
    best = CpuIsa::kAvx512Bf16;
  EXPECT_EQ(cpu::detect_isa(), best);
}

}  // namespace isa_test
}  // namespace troupe
