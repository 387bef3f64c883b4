// out = Σ_pieces sums · 2^(largest - of all) / Σ_pieces total · 2^(largest - of all): what the pieces of
// decodes, and of tiles that were cut, left behind, in order.
//
// partials (pieces · rows, G, C + 2) float32: sums, largest (a power of two's), total · out (T, H·C) bfloat16
// A block an item of the plan and key/value head: some rows, a thread two neighbouring dims of one at a time,
// and eight pieces at a time, all of which are on their way together.
// Bytes: 4 · pieces · rows · (C + 2), a 32nd of the keys and values behind a decode's at a group of four.

#include "kernels/cuda/attention/attention_kernels.h"
#include "kernels/cuda/attention/warp_attention.cuh"
#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/device/ptx.cuh"

namespace troupe::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kPieces = 8;  // at a time

struct MergePieces {
  const MergeItem* merges;
  const float* partials;
  const int32_t* query_starts;
  __nv_bfloat16* out;
  int heads, kv_heads, head_dim;
};

// The sum of the pieces so far, of two neighbouring dims of a row.
struct Merged {
  float largest = -INFINITY;
  float2 sums = {0.0f, 0.0f};
  float total = 0;

  // Adds the first `count` pieces, kPieces at most, of one row; they are `to_next` apart.
  __device__ __forceinline__ void add(const float* of_row, int64_t to_next, int count, int dim,
                                      int head_dim) {
    float2 sums_of[kPieces], ends[kPieces];
#pragma unroll
    for (int n = 0; n < kPieces; ++n) {
      const float* const from = of_row + n * to_next;
      const bool is_there = n < count;
      ends[n] = is_there ? *reinterpret_cast<const float2*>(from + head_dim) : make_float2(-INFINITY, 0.0f);
      sums_of[n] = is_there ? *reinterpret_cast<const float2*>(from + dim) : make_float2(0.0f, 0.0f);
    }
    const float before = largest;
#pragma unroll
    for (int n = 0; n < kPieces; ++n) largest = fmaxf(largest, ends[n].x);
    // A row may see nothing of a piece, and of none where all its scores are -inf.
    const float base = largest == -INFINITY ? 0.0f : largest;
    const float factor = exp2_approx(before - base);
    sums.x *= factor;
    sums.y *= factor;
    total *= factor;
#pragma unroll
    for (int n = 0; n < kPieces; ++n) {
      const float weight = exp2_approx(ends[n].x - base);
      sums.x += sums_of[n].x * weight;
      sums.y += sums_of[n].y * weight;
      total += ends[n].y * weight;
    }
  }
};

__global__ void __launch_bounds__(kThreads) merge_pieces(MergePieces p) {
  const MergeItem merge = p.merges[blockIdx.x];
  const int kv_head = static_cast<int>(blockIdx.y);
  const int group = p.heads / p.kv_heads;
  const int first_token = p.query_starts[merge.request];
  await_launch_before();
  const int64_t width = p.head_dim + 2;
  const int64_t to_next_row = p.kv_heads * width;
  const int64_t to_next_piece = merge.piece_rows * to_next_row;
  const int pairs = p.head_dim / 2;
  for (int i = static_cast<int>(threadIdx.x); i < (merge.end_row - merge.first_row) * pairs; i += kThreads) {
    const int of_item = i / pairs;
    const int dim = i % pairs * 2;
    const float* const first = p.partials + (merge.first_partial + of_item) * to_next_row + kv_head * width;
    Merged merged;
    for (int n = 0; n < merge.count; n += kPieces)
      merged.add(first + n * to_next_piece, to_next_piece, merge.count - n, dim, p.head_dim);
    const int row = merge.first_row + of_item;
    const int64_t token = first_token + row / group;
    const int64_t to = (token * p.heads + kv_head * group + row % group) * p.head_dim + dim;
    *reinterpret_cast<uint32_t*>(p.out + to) =
        pack_pair(merged.sums.x / merged.total, merged.sums.y / merged.total);
  }
}

}  // namespace

void merge_attention(const LaunchStream& stream, const AttentionParams& params, const BoundKv& kv,
                     const AttentionIndices& indices, const PlannedAttention& planned) {
  if (planned.plan.merges.empty()) return;
  const MergePieces p{planned.merges,
                      planned.partials,
                      indices.query_starts,
                      params.out.as<__nv_bfloat16>(),
                      static_cast<int>(params.q.shape[1]),
                      kv.layout.kv_heads,
                      kv.layout.head_dim};
  const dim3 blocks(static_cast<unsigned>(planned.plan.merges.size()), static_cast<unsigned>(p.kv_heads));
  launch("attention", merge_pieces, {blocks, kThreads}, stream, p);
}

}  // namespace troupe::cuda
