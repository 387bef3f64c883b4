// Splits qkv, norms and rotates q and k, writes k and v into their slots (formulas:
// kernels/ref/attention.cc).
//
// qkv (T, (H + 2G)·C) activation · cos_sin (positions, C) float32 or null · q_out (T, H, C)
// A block a token, a warp a head at a time. Lane i holds the pairs (x[i], x[i + C/2]), i + 32, …: both halves
// of a pair meet in one register file, and the head's norm is a sum over the warp.
// Bytes: 2 · T · (H + 2G) · C · size and C floats of the table a token: one read, one write.

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/ptx.cuh"

namespace troupe::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kPairsPerLane = kHeadDimMax / 2 / kWarp;

template <typename T>
struct RopeHeads {
  const T* qkv;
  const float* cos_sin;  // or null
  const int32_t* positions;
  const int32_t* slots;
  T* q_out;
  T* kv;
  const float* q_norm;  // or null
  const float* k_norm;  // or null
  float norm_epsilon;
  int heads;  // H
  KvPlaces places;
};

// (C) of one token's `which` (0 k, 1 v) of head g.
template <typename T>
__device__ __forceinline__ T* slot_of(const RopeHeads<T>& p, int32_t slot, int which, int g) {
  return p.kv + p.places.tile(p.places.block_of(slot), which, g) +
         p.places.in_block(slot) * p.places.head_dim;
}

template <typename T>
__global__ void __launch_bounds__(kWarps* kWarp) rope_heads(RopeHeads<T> p) {
  await_launch_before();
  const int64_t t = blockIdx.x;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int half = p.places.head_dim / 2;
  const int32_t slot = p.slots[t];
  const float* const angles =
      p.cos_sin == nullptr ? nullptr : p.cos_sin + int64_t{p.positions[t]} * p.places.head_dim;
  for (int h = static_cast<int>(threadIdx.x) / kWarp; h < p.heads + 2 * p.places.kv_heads; h += kWarps) {
    const bool is_q = h < p.heads;
    const bool is_v = h >= p.heads + p.places.kv_heads;
    const T* const from = p.qkv + (t * (p.heads + 2 * p.places.kv_heads) + h) * p.places.head_dim;
    T* const to = is_q   ? p.q_out + (t * p.heads + h) * p.places.head_dim
                  : is_v ? slot_of(p, slot, 1, h - p.heads - p.places.kv_heads)
                         : slot_of(p, slot, 0, h - p.heads);
    const float* const norm = is_q ? p.q_norm : is_v ? nullptr : p.k_norm;

    float a[kPairsPerLane], b[kPairsPerLane];
    float squares = 0;
#pragma unroll
    for (int i = 0; i < kPairsPerLane; ++i) {
      const int c = lane + i * kWarp;
      a[i] = c < half ? to_f32(from[c]) : 0.0f;
      b[i] = c < half ? to_f32(from[half + c]) : 0.0f;
      squares += a[i] * a[i] + b[i] * b[i];
    }
    float scale = 1.0f;
    if (norm != nullptr) {  // the same for the whole warp
      scale =
          1.0f / sqrtf(warp_reduce(squares, Sum()) / static_cast<float>(p.places.head_dim) + p.norm_epsilon);
    }
#pragma unroll
    for (int i = 0; i < kPairsPerLane; ++i) {
      const int c = lane + i * kWarp;
      if (c >= half) continue;
      const float x = norm == nullptr ? a[i] : a[i] * (scale * norm[c]);
      const float y = norm == nullptr ? b[i] : b[i] * (scale * norm[half + c]);
      const bool turns = angles != nullptr && !is_v;
      const float cosine = turns ? angles[c] : 1.0f;
      const float sine = turns ? angles[half + c] : 0.0f;
      // Without a turn nothing is multiplied: an infinite y would make x a NaN.
      to[c] = from_f32<T>(turns ? x * cosine - y * sine : x);
      to[half + c] = from_f32<T>(turns ? y * cosine + x * sine : y);
    }
  }
}

}  // namespace

void rope_kv(const LaunchStream& stream, const RopeKvParams& params, const BoundKv& kv,
             const RopeKvIndices& indices) {
  if (params.q_out.elements() == 0) return;
  check_head_dim("rope_kv", kv.layout);
  with_activation("rope_kv", params.qkv.dtype, [&](auto type) {
    using T = decltype(type);
    RopeHeads<T> p{};
    p.qkv = params.qkv.as<const T>();
    p.cos_sin = params.cos_sin.as<const float>();
    p.positions = indices.positions;
    p.slots = indices.slots;
    p.q_out = params.q_out.as<T>();
    p.kv = static_cast<T*>(kv.data);
    p.q_norm = params.q_norm.as<const float>();
    p.k_norm = params.k_norm.as<const float>();
    p.norm_epsilon = params.norm_epsilon;
    p.heads = static_cast<int>(params.q_out.shape[1]);
    p.places = KvPlaces(kv.layout, params.layer);
    const Grid grid{dim3(static_cast<unsigned>(params.q_out.shape[0])), kWarps * kWarp};
    launch("rope_kv", rope_heads<T>, grid, stream, p);
  });
}

}  // namespace troupe::cuda
