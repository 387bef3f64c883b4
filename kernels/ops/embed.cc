#include "kernels/ops/embed.h"

#include "kernels/ops/expect.h"

namespace troupe {

void check_params(const EmbedParams& params) {
  constexpr const char* kOp = "embed";
  const auto count = static_cast<int64_t>(params.ids.size());
  expect::rank2(kOp, "table", params.table);
  expect::shape(kOp, "out", params.out, DType::kFloat32, {count, params.table.shape[1]});
  const int64_t drawn_count = expect::drawn(kOp, params.drawn);
  for (int32_t id : params.ids) {
    if (id >= 0) {
      expect::index(kOp, "ids", id, params.table.shape[0]);
    } else {
      expect::index(kOp, "ids' places in drawn", -1 - int64_t{id}, drawn_count);
    }
  }
}

}  // namespace troupe
