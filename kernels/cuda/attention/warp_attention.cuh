#pragma once

// A warp's work on 16 rows of queries and some keys in shared memory: scores, and weighted values, by
// m16n8k16 products. A lane has the rows g and g + 8, g = lane / 4, and of every eight columns 2q and 2q +
// 1, q = lane % 4 (ptx.cuh).

#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/device/ptx.cuh"

namespace troupe::cuda {

// The low half is the first.
__device__ __forceinline__ uint32_t pack_pair(float first, float second) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
  return uint32_t{__bfloat16_as_ushort(pair.x)} | uint32_t{__bfloat16_as_ushort(pair.y)} << 16;
}

// A warp's running sums for its 16 rows; a lane has rows g and g + 8 (g = lane / 4).
template <int kHeadDim>
struct Running {
  float sums[kHeadDim / 8][4] = {};
  float largest[2] = {-INFINITY, -INFINITY};
  float total[2] = {};  // of the lane's own keys; of the row's after quad_sum
};

__device__ __forceinline__ float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, 1));
  return fmaxf(x, __shfl_xor_sync(kAllLanes, x, 2));
}
__device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(kAllLanes, x, 1);
  return x + __shfl_xor_sync(kAllLanes, x, 2);
}

// scores = q · keysᵀ for the warp's 16 rows and kWarpKeys keys.
template <int kHeadDim, int kWarpKeys, int kStride>
__device__ __forceinline__ void score_keys(const uint32_t (&q)[kHeadDim / 16][4], const __nv_bfloat16* keys,
                                           float (&scores)[kWarpKeys / 8][4]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  // ldmatrix's four tiles: keys 0–7 and 8–15, each by dims 0–7 and 8–15.
  const int key = lane / 16 * 8 + lane % 8;
  const int dim = lane / 8 % 2 * 8;
#pragma unroll
  for (int n = 0; n < kWarpKeys / 16; ++n) {
#pragma unroll
    for (int d = 0; d < kHeadDim / 16; ++d) {
      uint32_t k[4];
      ldmatrix_x4(k, keys + (n * 16 + key) * kStride + d * 16 + dim);
      const uint32_t low[2] = {k[0], k[1]};
      const uint32_t high[2] = {k[2], k[3]};
      mma_m16n8k16_bf16(scores[2 * n], q[d], low);
      mma_m16n8k16_bf16(scores[2 * n + 1], q[d], high);
    }
  }
}

// sums += weights · values, the weights being what the scores have become.
template <int kHeadDim, int kWarpKeys, int kStride>
__device__ __forceinline__ void add_values(const float (&weights)[kWarpKeys / 8][4],
                                           const __nv_bfloat16* values, float (&sums)[kHeadDim / 8][4]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  // Transposed tiles: dims 0–7 and 8–15, each of keys 0–7 and 8–15.
  const int key = lane / 8 % 2 * 8 + lane % 8;
  const int dim = lane / 16 * 8;
#pragma unroll
  for (int n = 0; n < kWarpKeys / 16; ++n) {
    const float(&near)[4] = weights[2 * n];
    const float(&far)[4] = weights[2 * n + 1];
    const uint32_t a[4] = {pack_pair(near[0], near[1]), pack_pair(near[2], near[3]),
                           pack_pair(far[0], far[1]), pack_pair(far[2], far[3])};
#pragma unroll
    for (int d = 0; d < kHeadDim / 16; ++d) {
      uint32_t v[4];
      ldmatrix_x4_trans(v, values + (n * 16 + key) * kStride + d * 16 + dim);
      const uint32_t low[2] = {v[0], v[1]};
      const uint32_t high[2] = {v[2], v[3]};
      mma_m16n8k16_bf16(sums[2 * d], a, low);
      mma_m16n8k16_bf16(sums[2 * d + 1], a, high);
    }
  }
}

}  // namespace troupe::cuda
