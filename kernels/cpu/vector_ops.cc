#include "kernels/cpu/vector_ops.h"

namespace troupe::cpu {

const VectorOps& vector_ops(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kAmx:
      return amx_vector_ops();
    case CpuIsa::kAvx512Bf16:
      return avx512_bf16_vector_ops();
    case CpuIsa::kAvx512:
      return avx512_vector_ops();
    case CpuIsa::kAvx2:
      return avx2_vector_ops();
    case CpuIsa::kAuto:
    case CpuIsa::kSse:
      break;
  }
  return sse_vector_ops();
}

}  // namespace troupe::cpu
