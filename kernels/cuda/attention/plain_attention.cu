// out[t][h] = Σ_j softmax_j(scale · q[t][h]·k[j] + slope[h] · (j - p)) · v[j], j in [0, p], p the position of
// t
//
// q (T, H, C) · keys and values in the blocks of t's request (kernels.h) · out (T, H·C)
// A block of 128 threads a query and head, 128 keys at a time: thread j scores key j against q in shared
// memory, the block finds the tile's largest and sum, then thread c adds up dimension c of the values. The
// running maximum rescales what came before (Milakov & Gimelshein 2018). The tiles begin at key 0 whatever
// the batch: a query's bits do not depend on it. Every query and every head of a group reads the keys again:
// the reference op, and the attention of float32 and of head dims that no other kernel takes.

#include "kernels/cuda/attention/attention_kernels.h"
#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/device/head_dim.h"
#include "kernels/cuda/device/ptx.cuh"

namespace troupe::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kDimsPerThread = kHeadDimMax / kThreads;

template <typename T>
struct PlainAttention {
  const T* q;
  const T* kv;
  T* out;
  AttentionIndices indices;
  int block_table_stride;
  int heads;
  KvPlaces places;
  float scale;
};

template <typename T>
__global__ void __launch_bounds__(kThreads) attend_plainly(PlainAttention<T> p) {
  __shared__ float q[kHeadDimMax];
  __shared__ float weights[kThreads];
  __shared__ float scratch[kThreads / kWarp];
  await_launch_before();
  const int64_t t = blockIdx.x;
  const int h = static_cast<int>(blockIdx.y);
  const int g = h / (p.heads / p.places.kv_heads);
  const int me = static_cast<int>(threadIdx.x);
  const int32_t request = p.indices.token_requests[t];
  const int32_t* const table = p.indices.block_tables + int64_t{request} * p.block_table_stride;
  const int after = p.indices.query_starts[request + 1] - static_cast<int>(t) - 1;  // queries behind t
  const int keys = p.indices.context_counts[request] - after;
  const float slope = p.indices.alibi_slopes == nullptr ? 0.0f : p.indices.alibi_slopes[h];
  for (int c = me; c < p.places.head_dim; c += kThreads)
    q[c] = to_f32(p.q[(t * p.heads + h) * p.places.head_dim + c]);
  __syncthreads();

  float largest = -INFINITY, total = 0;
  float sums[kDimsPerThread] = {};
  for (int first = 0; first < keys; first += kThreads) {
    const int j = first + me;
    float score = -INFINITY;
    if (j < keys) {
      const T* const key =
          p.kv + p.places.tile(table[p.places.block_of(j)], 0, g) + p.places.in_block(j) * p.places.head_dim;
      float dot = 0;
      for (int c = 0; c < p.places.head_dim; ++c) dot = fmaf(q[c], to_f32(key[c]), dot);
      score = dot * p.scale;
      if (p.indices.alibi_slopes != nullptr) score += slope * static_cast<float>(j - (keys - 1));
    }
    const float now = fmaxf(largest, block_reduce<kThreads>(score, Max(), scratch));
    const float weight = j < keys ? expf(score - now) : 0.0f;
    const float before = expf(largest - now);  // 0 for the first tile
    weights[me] = weight;
    total =
        total * before + block_reduce<kThreads>(weight, Sum(), scratch);  // and the weights are there for all
    largest = now;
    const int count = keys - first < kThreads ? keys - first : kThreads;
#pragma unroll
    for (int i = 0; i < kDimsPerThread; ++i) {
      const int c = me + i * kThreads;
      if (c >= p.places.head_dim) continue;
      float sum = sums[i] * before;
      for (int n = 0; n < count; ++n) {
        const int at = first + n;
        const T* const value = p.kv + p.places.tile(table[p.places.block_of(at)], 1, g) +
                               p.places.in_block(at) * p.places.head_dim;
        sum = fmaf(weights[n], to_f32(value[c]), sum);
      }
      sums[i] = sum;
    }
    __syncthreads();  // the weights have been read
  }
#pragma unroll
  for (int i = 0; i < kDimsPerThread; ++i) {
    const int c = me + i * kThreads;
    if (c < p.places.head_dim)
      p.out[(t * p.heads + h) * p.places.head_dim + c] = from_f32<T>(sums[i] / total);
  }
}

}  // namespace

void plain_attention(const LaunchStream& stream, const AttentionParams& params, const BoundKv& kv,
                     const AttentionIndices& indices) {
  if (params.out.elements() == 0) return;
  check_head_dim("attention", kv.layout);
  with_activation("attention", params.q.dtype, [&](auto type) {
    using T = decltype(type);
    PlainAttention<T> p{};
    p.q = params.q.as<const T>();
    p.kv = static_cast<const T*>(kv.data);
    p.out = params.out.as<T>();
    p.indices = indices;
    p.block_table_stride = params.block_table_stride;
    p.heads = static_cast<int>(params.q.shape[1]);
    p.places = KvPlaces(kv.layout, params.layer);
    p.scale = params.scale;
    const dim3 blocks(static_cast<unsigned>(params.q.shape[0]), static_cast<unsigned>(p.heads));
    launch("attention", attend_plainly<T>, {blocks, kThreads}, stream, p);
  });
}

}  // namespace troupe::cuda
