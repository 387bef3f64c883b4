#include "kernels/cpu/isa.h"

#include <asm/prctl.h>
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace troupe::cpu {

namespace {

// __builtin_cpu_supports() does not know f16c in clang. Whether the system keeps the registers it works on is
// part of "avx2".
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

// The tile registers are larger than the state of a thread that never requested them: the process requests
// them once, for all its threads.
bool may_use_tiles() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kAmx = 1u << 22 | 1u << 24 | 1u << 25;  // bf16, tile, int8: of edx of leaf 7
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  if ((d & kAmx) != kAmx) return false;
  constexpr long kTileData = 18;  // the kernel's XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, kTileData) == 0;
}

}  // namespace

// Each level needs everything its target_*.cc is compiled for: a hypervisor may mask any of them.
CpuIsa detect_isa() {
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (avx512 && __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16"))
    return may_use_tiles() ? CpuIsa::kAmx : CpuIsa::kAvx512Bf16;
  if (avx512) return CpuIsa::kAvx512;
  return avx2 ? CpuIsa::kAvx2 : CpuIsa::kSse;
}

std::string_view isa_name(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kAuto:
      return "auto";
    case CpuIsa::kSse:
      return "sse4.2";
    case CpuIsa::kAvx2:
      return "avx2";
    case CpuIsa::kAvx512:
      return "avx512";
    case CpuIsa::kAvx512Bf16:
      return "avx512_bf16";
    case CpuIsa::kAmx:
      return "amx_bf16";
  }
  return "unknown";
}

bool isa_includes(CpuIsa a, CpuIsa b) {
  return static_cast<int>(a) >= static_cast<int>(b);  // the enum is ordered
}

StatusOr<CpuIsa> resolve_isa(CpuIsa wanted) {
  const CpuIsa best = detect_isa();
  if (wanted == CpuIsa::kAuto) return best;
  if (isa_includes(best, wanted)) return wanted;
  return invalid_argument("isa " + std::string(isa_name(wanted)) + " is not available; this machine has " +
                          std::string(isa_name(best)));
}

}  // namespace troupe::cpu
