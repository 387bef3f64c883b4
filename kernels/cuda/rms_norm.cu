// out[t] = x[t] / sqrt(mean(x[t]²) + epsilon) · weight
//
// x (T, D) float32 · weight (D) float32 · out (T, D) activation
// A block a row, whatever the batch: a row's bits do not depend on its neighbours. A row of up to 8,192 whole
// pieces of 16 bytes is read once, all of it at once, and kept in registers, its weights while the launch
// before this one ends: a decode of few rows is done as soon as memory has answered. Other rows are read
// twice, a column a thread at a time; the second pass finds them in L1.
// Bytes: T · D · (4 + size of out's type) and the weight once; one read and one write of the stream.

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/ptx.cuh"

namespace troupe::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kWide = 4;  // columns of a piece

template <typename T>
struct NormRows {
  const float* x;
  const float* weight;
  T* out;
  int64_t columns;
  float epsilon;
};

__device__ __forceinline__ float scale_of(float squares, int64_t columns, float epsilon) {
  return 1.0f / sqrtf(squares / static_cast<float>(columns) + epsilon);
}

// kPieces: of a thread at most.
template <typename T, int kPieces>
__global__ void __launch_bounds__(kThreads) norm_pieces(NormRows<T> p) {
  __shared__ float scratch[kThreads / kWarp];
  const int64_t row = blockIdx.x;
  const int count = static_cast<int>(p.columns) / kWide;
  const auto* const x_pieces = reinterpret_cast<const Piece<float, kWide>*>(p.x + row * p.columns);
  const auto* const weight_pieces = reinterpret_cast<const Piece<float, kWide>*>(p.weight);
  auto* const out_pieces = reinterpret_cast<Piece<T, kWide>*>(p.out + row * p.columns);
  Piece<float, kWide> x[kPieces] = {}, weight[kPieces];
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    const int at = i * kThreads + static_cast<int>(threadIdx.x);
    if (at < count) weight[i] = weight_pieces[at];
  }
  await_launch_before();
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    const int at = i * kThreads + static_cast<int>(threadIdx.x);
    if (at < count) x[i] = x_pieces[at];
  }
  float squares = 0;
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
#pragma unroll
    for (int c = 0; c < kWide; ++c) squares += x[i].values[c] * x[i].values[c];
  }
  const float scale = scale_of(block_reduce<kThreads>(squares, Sum(), scratch), p.columns, p.epsilon);
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    const int at = i * kThreads + static_cast<int>(threadIdx.x);
    if (at >= count) continue;
    Piece<T, kWide> out;
#pragma unroll
    for (int c = 0; c < kWide; ++c) out.values[c] = from_f32<T>(x[i].values[c] * scale * weight[i].values[c]);
    out_pieces[at] = out;
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads) norm_columns(NormRows<T> p) {
  __shared__ float scratch[kThreads / kWarp];
  await_launch_before();
  const float* const x = p.x + int64_t{blockIdx.x} * p.columns;
  T* const out = p.out + int64_t{blockIdx.x} * p.columns;
  float squares = 0;
  for (int64_t d = threadIdx.x; d < p.columns; d += kThreads) squares += x[d] * x[d];
  const float scale = scale_of(block_reduce<kThreads>(squares, Sum(), scratch), p.columns, p.epsilon);
  for (int64_t d = threadIdx.x; d < p.columns; d += kThreads) {
    out[d] = from_f32<T>(x[d] * scale * p.weight[d]);
  }
}

// Null where rows are not whole pieces, or longer than registers hold.
template <typename T>
void (*pieces_kernel(const NormRows<T>& p))(NormRows<T>) {
  const auto place = reinterpret_cast<uintptr_t>(p.x) | reinterpret_cast<uintptr_t>(p.weight) |
                     reinterpret_cast<uintptr_t>(p.out);
  if (p.columns % kWide != 0 || place % sizeof(Piece<float, kWide>) != 0) return nullptr;
  if (p.columns <= 2 * kThreads * kWide) return norm_pieces<T, 2>;
  if (p.columns <= 4 * kThreads * kWide) return norm_pieces<T, 4>;
  return nullptr;
}

}  // namespace

void rms_norm(const LaunchStream& stream, const RmsNormParams& params) {
  if (params.out.elements() == 0) return;
  with_activation("rms_norm", params.out.dtype, [&](auto type) {
    using T = decltype(type);
    const NormRows<T> p{params.x.as<const float>(), params.weight.as<const float>(), params.out.as<T>(),
                        params.x.shape[1], params.epsilon};
    const Grid grid{dim3(static_cast<unsigned>(params.x.shape[0])), kThreads};
    const auto kernel = pieces_kernel(p);
    launch("rms_norm", kernel != nullptr ? kernel : norm_columns<T>, grid, stream, p);
  });
}

}  // namespace troupe::cuda
