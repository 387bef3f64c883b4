// out = Σ_pieces sums · 2^(largest - of all) / Σ_pieces total · 2^(largest - of all): the pieces of a decode
// that tile_attention.cu left behind, in order.
//
// partials (pieces · rows, G, C + 2) float32: sums, largest (a power of two's), total · out (T, H·C) bfloat16
// A block a request and key/value head; a thread a row and dimension at a time, neighbours neighbouring ones,
// and eight pieces at a time, all of which are on their way together.
// Bytes: 4 · pieces · rows · (C + 2), a 32nd of the keys and values behind them at a group of four.

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/ptx.cuh"

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

// What the pieces so far come to, of one dimension of a row.
struct Merged {
  float largest = -INFINITY;
  float sum = 0, total = 0;

  // Adds the first `count` pieces, kPieces at most, of one row; they are `to_next` apart.
  __device__ __forceinline__ void add(const float* of_row, int64_t to_next, int count, int dim,
                                      int head_dim) {
    float largests[kPieces], sums[kPieces], totals[kPieces];
#pragma unroll
    for (int n = 0; n < kPieces; ++n) {
      const float* const from = of_row + n * to_next;
      largests[n] = n < count ? from[head_dim] : -INFINITY;
      totals[n] = n < count ? from[head_dim + 1] : 0.0f;
      sums[n] = n < count ? from[dim] : 0.0f;
    }
    const float before = largest;
#pragma unroll
    for (int n = 0; n < kPieces; ++n) largest = fmaxf(largest, largests[n]);
    // A row may see nothing of a piece, and of none where all its scores are -inf.
    const float base = largest == -INFINITY ? 0.0f : largest;
    const float factor = exp2_approx(before - base);
    sum *= factor;
    total *= factor;
#pragma unroll
    for (int n = 0; n < kPieces; ++n) {
      const float weight = exp2_approx(largests[n] - base);
      sum += sums[n] * weight;
      total += totals[n] * weight;
    }
  }
};

__global__ void __launch_bounds__(kThreads) merge_pieces(MergePieces p) {
  const MergeItem merge = p.merges[blockIdx.x];
  const int kv_head = static_cast<int>(blockIdx.y);
  const int group = p.heads / p.kv_heads;
  const int first_token = p.query_starts[merge.request];
  const int rows = (p.query_starts[merge.request + 1] - first_token) * group;
  await_launch_before();
  const int64_t width = p.head_dim + 2;
  const int64_t to_next_row = p.kv_heads * width;
  const int64_t to_next_piece = rows * to_next_row;
  for (int i = static_cast<int>(threadIdx.x); i < rows * p.head_dim; i += kThreads) {
    const int row = i / p.head_dim;
    const int dim = i % p.head_dim;
    const float* const first = p.partials + (merge.first_partial + row) * to_next_row + kv_head * width;
    Merged merged;
    for (int n = 0; n < merge.count; n += kPieces)
      merged.add(first + n * to_next_piece, to_next_piece, merge.count - n, dim, p.head_dim);
    const int64_t token = first_token + row / group;
    const int64_t to = (token * p.heads + kv_head * group + row % group) * p.head_dim + dim;
    p.out[to] = from_f32<__nv_bfloat16>(merged.sum / merged.total);
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
