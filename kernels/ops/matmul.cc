#include "kernels/ops/matmul.h"

#include "kernels/check.h"
#include "kernels/ops/expect.h"

namespace troupe {

void check_params(const MatmulParams& params, DType activation) {
  constexpr const char* kOp = "matmul";
  if (params.weight == nullptr) check_failed(kOp, "weight is null");
  expect::rank2(kOp, "x", params.x);
  const int64_t rows = params.x.shape[0];
  expect::shape(kOp, "x", params.x, activation, {rows, params.weight->columns()});
  const bool float_out = params.out.dtype == DType::kFloat32;
  expect::shape(kOp, "out", params.out, float_out ? DType::kFloat32 : activation,
                {rows, params.weight->rows()});
  if (params.accumulate && !float_out) {
    check_failed(kOp, "accumulate needs a float32 out, got " + params.out.shape_text());
  }
  expect::optional(kOp, "bias", params.bias, params.weight->rows());
}

}  // namespace troupe
