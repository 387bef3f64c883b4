#pragma once

// The launches of attention (ops.h has the contract of a launch), and what their choice depends on.

#include <cuda.h>

#include <cstdint>

#include "kernels/cuda/attention/attention_plan.h"
#include "kernels/cuda/device/launch_stream.h"
#include "kernels/ops/attention.h"

namespace troupe::cuda {

// Whether the code that the device has loaded was made for sm_90 or later (all kernels are compiled for the
// same architectures): launches are awaited.
bool has_hopper_code();
// Whether it is sm_90a's own: attention_wgmma.cu has a body. Compiled from sm_90's PTX it has none.
bool has_warpgroup_code();

struct AttentionIndices {
  const int32_t* token_requests;  // (T): the request of each query
  const int32_t* query_starts;
  const int32_t* context_counts;
  const int32_t* block_tables;
  const float* alibi_slopes;  // or null
};
// Any head dim and type, a block a query and head: the reference op.
void plain_attention(const LaunchStream& stream, const AttentionParams& params, const BoundKv& kv,
                     const AttentionIndices& indices);

// bfloat16 with head dims 64 and 128, by tensor cores (attention_mma.cu).
struct PlannedAttention {
  const AttentionPlan& plan;
  // Its arrays on the device.
  const AttentionItem* tiles;
  const AttentionItem* shared;
  const SharedRow* shared_rows;
  const AttentionItem* pieces;
  const MergeItem* merges;
  float* partials;     // partial_floats() of them
  bool lanes = false;  // pieces without tensor cores (attention_simt.cu); REQUIRES: lane_attention_takes()
  // Tiles by warpgroups (attention_wgmma.cu), planned with kWarpgroupRows: of the KV memory; or null.
  const CUtensorMap* kv_map = nullptr;
  bool in_turn = false;  // that take turns at the tensor cores
};
bool tile_attention_takes(const AttentionParams& params, const BoundKv& kv);
// Groups of few heads: a row of them is a register's.
inline constexpr int kLaneHeadsMax = 4;
inline bool lane_attention_takes(int64_t heads, const KvLayout& layout) {
  return heads <= int64_t{kLaneHeadsMax} * layout.kv_heads;
}
// Whether a model has these kernels at all, whatever the step.
inline bool tile_attention_takes(DType activation, const KvLayout& layout) {
  return activation == DType::kBFloat16 && (layout.head_dim == 64 || layout.head_dim == 128);
}
inline int64_t floats_of_partial(const KvLayout& layout) {
  return int64_t{layout.kv_heads} * (layout.head_dim + 2);
}
// Tiles of a key/value head that the device has under way at once (AttentionShape). A multiprocessor has room
// for one of warpgroups', for as many of the others as its shared memory holds.
int32_t tiles_at_once(const KvLayout& layout, bool warpgroups);
int64_t partial_floats(const AttentionPlan& plan, const BoundKv& kv);
void attention_mma(const LaunchStream& stream, const AttentionParams& params, const BoundKv& kv,
                   const AttentionIndices& indices, const PlannedAttention& planned);
// Adds up what the pieces left in `planned.partials`; a part of attention_mma, launched by it.
void merge_attention(const LaunchStream& stream, const AttentionParams& params, const BoundKv& kv,
                     const AttentionIndices& indices, const PlannedAttention& planned);

}  // namespace troupe::cuda
