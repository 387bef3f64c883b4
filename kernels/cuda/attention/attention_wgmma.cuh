#pragma once

// A warpgroup's work on 64 rows of queries and 128 keys in shared memory: scores, weights, and weighted
// values, by Hopper's products. A lane has of its warp's 16 rows and of every eight columns what
// warp_attention.cuh says.

#include "kernels/cuda/attention/attention_kernels.h"
#include "kernels/cuda/attention/attention_mma_rows.cuh"
#include "kernels/cuda/attention/warp_attention.cuh"
#include "kernels/cuda/device/hopper.cuh"
#include "kernels/cuda/device/phase_ring.cuh"

namespace troupe::cuda {

inline constexpr int kConsumers = 2;   // warpgroups of a block that compute
inline constexpr int kGroupRows = 64;  // of each
inline constexpr int kTurnKeys = 128;
inline constexpr int kRowBytes = kSwizzled * static_cast<int>(sizeof(__nv_bfloat16));
inline constexpr int kEightRows = 8 * kRowBytes;
static_assert(kWarpgroupRows == kConsumers * kGroupRows, "whole products");
// Registers, of 65,536 a multiprocessor: warps that copy need few.
inline constexpr int kProducerRegisters = 40;
inline constexpr int kConsumerRegisters = 232;

// Tiles are halves of 64 dims, each all of its rows.
template <int kHeadDim>
struct WarpgroupTiles {
  static constexpr int kHalves = kHeadDim / kSwizzled;
  static constexpr int kKeyHalf = kTurnKeys * kSwizzled;  // elements
  static constexpr int kQueryHalf = kWarpgroupRows * kSwizzled;
};

// A lane's share of 64 rows by 128 keys.
using Scores = float[kTurnKeys / 8][4];
using Weights = uint32_t[kTurnKeys / 16][4];

// Starts scores = q · keysᵀ.
template <int kHeadDim>
__device__ __forceinline__ void ask_for_scores(const __nv_bfloat16* queries, const __nv_bfloat16* keys,
                                               Scores& scores) {
  using S = WarpgroupTiles<kHeadDim>;
  fence_products();
#pragma unroll
  for (int half = 0; half < S::kHalves; ++half) {
    const uint64_t q = tile_descriptor(queries + half * S::kQueryHalf, kEightRows);
    const uint64_t k = tile_descriptor(keys + half * S::kKeyHalf, kEightRows);
#pragma unroll
    for (int d = 0; d < kSwizzled / 16; ++d)
      multiply_tiles(scores, advanced(q, d * 32), advanced(k, d * 32), half > 0 || d > 0);
  }
  commit_products();
}

// Starts sums += weights · values.
template <int kHeadDim>
__device__ __forceinline__ void ask_for_values(const Weights& weights, const __nv_bfloat16* values,
                                               float (&sums)[kHeadDim / 8][4]) {
  using S = WarpgroupTiles<kHeadDim>;
  const uint64_t v =
      tile_descriptor(values, kEightRows, S::kKeyHalf * static_cast<int>(sizeof(__nv_bfloat16)));
  fence_products();
#pragma unroll
  for (int n = 0; n < kTurnKeys / 16; ++n) add_products(sums, weights[n], advanced(v, n * 2 * kEightRows));
  commit_products();
}

// Scores of keys [first, …) become weights 2^(score - largest). Returns what the sums before them are to be
// multiplied by, of the lane's two rows.
template <bool kMasked, bool kSlopes, int kHeadDim>
__device__ __forceinline__ float2 soften(const MmaAttention& p, const Rows& rows, int first, Scores& scores,
                                         Running<kHeadDim>& running) {
  const int q = static_cast<int>(threadIdx.x) % 4;
  float factors[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float largest = kSlopes ? running.largest[i] : -INFINITY;
#pragma unroll
    for (int n = 0; n < kTurnKeys / 8; ++n) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const int key = first + n * 8 + 2 * q + c;
        float& score = scores[n][2 * i + c];
        // Written out, so that a masked turn rounds as any other: a row may meet a key in either.
        if (kSlopes)
          score = fmaf(score, p.scale_log2, rows.slope[i] * static_cast<float>(key - rows.position[i]));
        if (kMasked && key > rows.position[i]) score = -INFINITY;
        largest = fmaxf(largest, score);
      }
    }
    // Unsloped scores are scaled as they are softened: scale_log2 > 0 leaves the largest the largest.
    if (!kSlopes) largest = fmaxf(largest * p.scale_log2, running.largest[i]);
    largest = quad_max(largest);
    // A row that has seen no key yet: its weights are 2^-inf, not 2^(inf - inf).
    const float base = largest == -INFINITY ? 0.0f : largest;
    factors[i] = exp2_approx(running.largest[i] - base);
    running.largest[i] = largest;
    float total = running.total[i] * factors[i];
#pragma unroll
    for (int n = 0; n < kTurnKeys / 8; ++n) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        float& score = scores[n][2 * i + c];
        score = exp2_approx(kSlopes ? score - base : fmaf(score, p.scale_log2, -base));
        total += score;
      }
    }
    running.total[i] = total;
  }
  return make_float2(factors[0], factors[1]);
}

template <int kHeadDim>
__device__ __forceinline__ void rescale(Running<kHeadDim>& running, float2 factors) {
#pragma unroll
  for (int d = 0; d < kHeadDim / 8; ++d) {
    running.sums[d][0] *= factors.x;
    running.sums[d][1] *= factors.x;
    running.sums[d][2] *= factors.y;
    running.sums[d][3] *= factors.y;
  }
}

// To the left operand of the next product.
__device__ __forceinline__ void pack(const Scores& scores, Weights& weights) {
#pragma unroll
  for (int n = 0; n < kTurnKeys / 16; ++n) {
    const float(&near)[4] = scores[2 * n];
    const float(&far)[4] = scores[2 * n + 1];
    weights[n][0] = pack_pair(near[0], near[1]);
    weights[n][1] = pack_pair(near[2], near[3]);
    weights[n][2] = pack_pair(far[0], far[1]);
    weights[n][3] = pack_pair(far[2], far[3]);
  }
}

}  // namespace troupe::cuda
