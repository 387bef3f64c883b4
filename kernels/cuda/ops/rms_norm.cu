// out[t] = x[t] / sqrt(mean(x[t]²) + epsilon) · weight
//
// x (T, D) float32 · weight (D) float32 · out (T, D) activation
// A block a row, whatever the batch: a row's bits do not depend on its neighbours. Rows of norm_row.cuh are
// read at once, their weights while the launch before this one ends: a decode of few rows is done as soon as
// memory has answered. Other rows are read twice, a column a thread at a time; the second pass finds them
// in L1. Bytes: T · D · (4 + size of out's type) and the weight once; one read and one write of the stream.

#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/device/norm_row.cuh"
#include "kernels/cuda/device/ptx.cuh"
#include "kernels/cuda/ops/ops.h"

namespace troupe::cuda {
namespace {

constexpr int kThreads = kNormThreads;

template <typename T>
struct NormRows {
  const float* x;
  const float* weight;
  T* out;
  int64_t columns;
  float epsilon;
};

template <typename T, int kPieces>
__global__ void __launch_bounds__(kThreads) norm_pieces_of_rows(NormRows<T> p) {
  using Row = NormRow<kThreads, kPieces>;
  __shared__ float scratch[Row::kScratch];
  const auto columns = static_cast<int>(p.columns);
  const int64_t first = blockIdx.x * p.columns;
  Row row;
  row.load_weight(p.weight, columns);
  await_launch_before();
  row.normalize(p.x + first, columns, p.epsilon, p.out + first, scratch);
}

template <typename T>
__global__ void __launch_bounds__(kThreads) norm_columns_of_rows(NormRows<T> p) {
  __shared__ float scratch[kThreads / kWarp];
  await_launch_before();
  const float* const x = p.x + int64_t{blockIdx.x} * p.columns;
  T* const out = p.out + int64_t{blockIdx.x} * p.columns;
  float squares = 0;
  for (int64_t d = threadIdx.x; d < p.columns; d += kThreads) squares += x[d] * x[d];
  const float scale = norm_scale(block_reduce<kThreads>(squares, Sum(), scratch), p.columns, p.epsilon);
  for (int64_t d = threadIdx.x; d < p.columns; d += kThreads) {
    out[d] = from_f32<T>(x[d] * scale * p.weight[d]);
  }
}

template <typename T>
auto kernel_for(const RmsNormParams& params) {
  const bool aligned = norm_aligned(params.x) && norm_aligned(params.weight) && norm_aligned(params.out);
  switch (aligned ? norm_pieces(params.x.shape[1]) : 0) {
    case 2:
      return norm_pieces_of_rows<T, 2>;
    case 4:
      return norm_pieces_of_rows<T, 4>;
    default:
      return norm_columns_of_rows<T>;
  }
}

}  // namespace

void rms_norm(const LaunchStream& stream, const RmsNormParams& params) {
  if (params.out.elements() == 0) return;
  with_activation("rms_norm", params.out.dtype, [&](auto type) {
    using T = decltype(type);
    const NormRows<T> p{params.x.as<const float>(), params.weight.as<const float>(), params.out.as<T>(),
                        params.x.shape[1], params.epsilon};
    const Grid grid{dim3(static_cast<unsigned>(params.x.shape[0])), kThreads};
    launch("rms_norm", kernel_for<T>(params), grid, stream, p);
  });
}

}  // namespace troupe::cuda
