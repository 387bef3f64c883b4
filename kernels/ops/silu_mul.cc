#include "kernels/ops/silu_mul.h"

#include "kernels/ops/expect.h"

namespace troupe {

void check_params(const SiluMulParams& params, DType activation) {
  constexpr const char* kOp = "silu_mul";
  expect::rank2(kOp, "out", params.out);
  const int64_t rows = params.out.shape[0];
  const int64_t columns = params.out.shape[1];
  expect::shape(kOp, "out", params.out, activation, {rows, columns});
  expect::shape(kOp, "gate_up", params.gate_up, activation, {rows, 2 * columns});
}

}  // namespace troupe
