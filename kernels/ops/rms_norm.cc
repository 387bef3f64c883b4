#include "kernels/ops/rms_norm.h"

#include "kernels/check.h"
#include "kernels/ops/expect.h"

namespace troupe {

void check_params(const RmsNormParams& params, DType activation) {
  constexpr const char* kOp = "rms_norm";
  expect::rank2(kOp, "x", params.x);
  const int64_t rows = params.x.shape[0];
  const int64_t columns = params.x.shape[1];
  expect::shape(kOp, "x", params.x, DType::kFloat32, {rows, columns});
  expect::shape(kOp, "weight", params.weight, DType::kFloat32, {columns});
  expect::shape(kOp, "out", params.out, activation, {rows, columns});
}

void check_normed(const char* op, const RmsNormParams& norm, const Tensor& x) {
  if (x.data != norm.out.data) check_failed(op, "x is not the norm's out");
  expect::same(op, "x", x, norm.out);
}

}  // namespace troupe
