#include "kernels/ops/rope_kv.h"

#include "kernels/check.h"
#include "kernels/ops/expect.h"

namespace troupe {

void check_params(const RopeKvParams& params, DType activation, const BoundKv& kv) {
  constexpr const char* kOp = "rope_kv";
  expect_bound(kOp, kv, params.layer);
  const int64_t groups = kv.layout.kv_heads;
  const int64_t head_dim = kv.layout.head_dim;
  if (params.q_out.rank != 3)
    check_failed(kOp, "q_out is " + params.q_out.shape_text() + ", expected (T, H, C)");
  const int64_t tokens = params.q_out.shape[0];
  const int64_t heads = params.q_out.shape[1];
  expect::shape(kOp, "q_out", params.q_out, activation, {tokens, heads, head_dim});
  expect::shape(kOp, "qkv", params.qkv, activation, {tokens, (heads + 2 * groups) * head_dim});
  expect::optional(kOp, "q_norm", params.q_norm, head_dim);
  expect::optional(kOp, "k_norm", params.k_norm, head_dim);
  expect::count(kOp, "positions", params.positions.size(), tokens);
  expect::count(kOp, "slots", params.slots.size(), tokens);
  if (!params.cos_sin.empty()) {
    expect::rank2(kOp, "cos_sin", params.cos_sin);
    expect::shape(kOp, "cos_sin", params.cos_sin, DType::kFloat32, {params.cos_sin.shape[0], head_dim});
    for (int32_t position : params.positions) {
      expect::index(kOp, "positions", position, params.cos_sin.shape[0]);
    }
  }
  const int64_t slot_count = kv.block_count * kv.layout.block_size;
  for (int32_t slot : params.slots) expect::index(kOp, "slots", slot, slot_count);
}

}  // namespace troupe
