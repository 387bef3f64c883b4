// The inner loops (vector_ops.h) for sse.

#include <immintrin.h>

#include "kernels/cpu/vec_sse.h"
#include "kernels/cpu/vector_ops.h"
#include "kernels/int8.h"
#include "kernels/tensor.h"

namespace troupe::cpu::sse {

#include "kernels/cpu/ops_body.h"

}  // namespace troupe::cpu::sse

namespace troupe::cpu {

const VectorOps& sse_vector_ops() {
  return sse::kOps;
}

}  // namespace troupe::cpu
