// The inner loops (vector_ops.h) for avx2.
//
// Headers of the library come first: what they define must not be compiled for this target, or the linker
// could pick that copy for machines without it.

#include <immintrin.h>

#include "kernels/cpu/vector_ops.h"
#include "kernels/int8.h"
#include "kernels/tensor.h"

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif

#include "kernels/cpu/vec_avx2.h"

namespace troupe::cpu::avx2 {

#include "kernels/cpu/ops_body.h"

}  // namespace troupe::cpu::avx2

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace troupe::cpu {

const VectorOps& avx2_vector_ops() {
  return avx2::kOps;
}

}  // namespace troupe::cpu
