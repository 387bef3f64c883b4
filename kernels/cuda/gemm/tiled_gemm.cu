// out[t][n] = Σ_k x[t][k] · weight[n][k] + bias[n] (+ out[t][n]): any shape, any activation type.
//
// x (T, K) · weight (N, K) · out (T, N)
// A block of 256 threads a tile of 32 tokens by 32 features, four sums a thread; x and the weight go through
// shared memory 32 columns at a time, a column more a row against bank conflicts. k ascends, so that a row's
// bits do not depend on its neighbours, and float32 operands are multiplied as they are.
// Plain float32 arithmetic: right for every shape, far from any roofline. What must be fast goes to the other
// products; --reference-ops goes here.

#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/device/ptx.cuh"
#include "kernels/cuda/gemm/gemm_kernels.h"

namespace troupe::cuda {
namespace {

constexpr int kTile = 32;
constexpr int kDepth = 32;
constexpr int kThreads = 256;
constexpr int kSumsPerThread = kTile * kTile / kThreads;

template <typename T, typename Out>
struct Product {
  const T* x;
  const T* weight;
  Out* out;
  const float* bias;  // or null
  int64_t tokens, features, depth;
  bool accumulate;
};

// Rows [first, first + kTile) by columns [k, k + kDepth) of `from` (rows, depth); zeros outside.
template <typename T>
__device__ __forceinline__ void load_tile(float (&tile)[kTile][kDepth + 1], const T* from, int64_t first,
                                          int64_t rows, int64_t k, int64_t depth) {
#pragma unroll
  for (int i = 0; i < kTile * kDepth / kThreads; ++i) {
    const int at = i * kThreads + static_cast<int>(threadIdx.x);
    const int64_t row = first + at / kDepth;
    const int64_t column = k + at % kDepth;
    const bool inside = row < rows && column < depth;
    tile[at / kDepth][at % kDepth] = inside ? to_f32(from[row * depth + column]) : 0.0f;
  }
}

template <typename T, typename Out>
__global__ void __launch_bounds__(kThreads) multiply_tiles(Product<T, Out> p) {
  __shared__ float x[kTile][kDepth + 1];
  __shared__ float w[kTile][kDepth + 1];
  await_launch_before();
  const int64_t first_token = int64_t{blockIdx.y} * kTile;
  const int64_t first_feature = int64_t{blockIdx.x} * kTile;
  // A warp's threads are neighbouring features of one token.
  const int feature = static_cast<int>(threadIdx.x) % kTile;
  const int token = static_cast<int>(threadIdx.x) / kTile * kSumsPerThread;
  float sums[kSumsPerThread] = {};
  for (int64_t k = 0; k < p.depth; k += kDepth) {
    load_tile(x, p.x, first_token, p.tokens, k, p.depth);
    load_tile(w, p.weight, first_feature, p.features, k, p.depth);
    __syncthreads();
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
#pragma unroll
      for (int i = 0; i < kSumsPerThread; ++i) sums[i] = fmaf(x[token + i][d], w[feature][d], sums[i]);
    }
    __syncthreads();
  }
  const int64_t n = first_feature + feature;
#pragma unroll
  for (int i = 0; i < kSumsPerThread; ++i) {
    const int64_t t = first_token + token + i;
    if (t >= p.tokens || n >= p.features) continue;
    Out* const to = p.out + t * p.features + n;
    float value = sums[i];
    if (p.bias != nullptr) value += p.bias[n];
    if (p.accumulate) value += to_f32(*to);
    *to = from_f32<Out>(value);
  }
}

template <typename T, typename Out>
void launch_tiles(const LaunchStream& stream, const ProductOperands& o) {
  const Product<T, Out> p{
      o.x.as<const T>(), o.weight.as<const T>(), o.out.as<Out>(),   o.bias.as<const float>(),
      o.x.shape[0],      o.weight.shape[0],      o.weight.shape[1], o.accumulate};
  constexpr int64_t kTokensPerLaunch = int64_t{65535} * kTile;  // the grid's second dimension
  if (p.tokens > kTokensPerLaunch) check_failed("tile_product", "x is " + o.x.shape_text());
  const Grid grid{dim3(blocks_for(p.features, kTile), blocks_for(p.tokens, kTile)), kThreads};
  launch("tile_product", multiply_tiles<T, Out>, grid, stream, p);
}

}  // namespace

void tiled_gemm(const LaunchStream& stream, const ProductOperands& operands) {
  if (operands.out.elements() == 0) return;
  with_activation("tile_product", operands.x.dtype, [&](auto type) {
    using T = decltype(type);
    if (operands.out.dtype == DType::kFloat32) return launch_tiles<T, float>(stream, operands);
    launch_tiles<T, T>(stream, operands);
  });
}

}  // namespace troupe::cuda
