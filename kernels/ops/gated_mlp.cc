#include "kernels/ops/gated_mlp.h"

#include <string>

#include "kernels/check.h"
#include "kernels/ops/expect.h"

namespace troupe {

void check_params(const GatedMlpParams& params, DType activation) {
  constexpr const char* kOp = "gated_mlp";
  if (params.gate_up == nullptr || params.down == nullptr) check_failed(kOp, "a weight is null");
  expect::rank2(kOp, "x", params.x);
  const int64_t rows = params.x.shape[0];
  const int64_t width = params.down->columns();
  if (params.gate_up->rows() != 2 * width || params.gate_up->columns() != params.down->rows()) {
    check_failed(kOp, "gate_up is [" + std::to_string(params.gate_up->rows()) + ", " +
                          std::to_string(params.gate_up->columns()) + "], expected [" +
                          std::to_string(2 * width) + ", " + std::to_string(params.down->rows()) + "]");
  }
  expect::shape(kOp, "x", params.x, activation, {rows, params.gate_up->columns()});
  expect::shape(kOp, "sum", params.sum, DType::kFloat32, {rows, params.down->rows()});
  expect::shape(kOp, "mixed", params.mixed, activation, {rows, 2 * width});
  expect::shape(kOp, "gated", params.gated, activation, {rows, width});
  expect::optional(kOp, "gate_up_bias", params.gate_up_bias, 2 * width);
  expect::optional(kOp, "down_bias", params.down_bias, params.down->rows());
}

}  // namespace troupe
