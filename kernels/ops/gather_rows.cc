#include "kernels/ops/gather_rows.h"

#include "kernels/ops/expect.h"

namespace troupe {

void check_params(const GatherRowsParams& params) {
  constexpr const char* kOp = "gather_rows";
  expect::rank2(kOp, "x", params.x);
  expect::shape(kOp, "x", params.x, DType::kFloat32, {params.x.shape[0], params.x.shape[1]});
  const auto count = static_cast<int64_t>(params.rows.size());
  expect::shape(kOp, "out", params.out, DType::kFloat32, {count, params.x.shape[1]});
  for (int32_t row : params.rows) expect::index(kOp, "rows", row, params.x.shape[0]);
}

}  // namespace troupe
