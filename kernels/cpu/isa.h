#pragma once

// The instruction sets of this machine, and the cpu backend's choices by them.

#include <string_view>

#include "kernels/kernels.h"

namespace troupe::cpu {

CpuIsa detect_isa();                    // the best this machine has, never kAuto
std::string_view isa_name(CpuIsa isa);  // "avx512_bf16"
bool isa_includes(CpuIsa a, CpuIsa b);  // a machine with `a` can run code for `b`

// kAuto becomes the best; kInvalidArgument names the best where `wanted` is more than the machine has.
StatusOr<CpuIsa> resolve_isa(CpuIsa wanted);

}  // namespace troupe::cpu
