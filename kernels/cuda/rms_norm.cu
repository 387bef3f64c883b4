// out[t] = x[t] / sqrt(mean(x[t]²) + epsilon) · weight
//
// x (T, D) float32 · weight (D) float32 · out (T, D) activation
// A block a row, whatever the batch: a row's bits do not depend on its neighbours. Thread i takes columns i,
// i + 256, …; the second pass finds the row (16–32 KB) in L1.
// Bytes: T · D · (4 + size of out's type) and the weight once; one read and one write of the stream.

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/ptx.cuh"

namespace troupe::cuda {
namespace {

constexpr int kThreads = 256;

template <typename T>
struct NormRows {
  const float* x;
  const float* weight;
  T* out;
  int64_t columns;
  float epsilon;
};

template <typename T>
__global__ void __launch_bounds__(kThreads) norm_rows(NormRows<T> p) {
  __shared__ float scratch[kThreads / kWarp];
  await_launch_before();
  const float* const x = p.x + int64_t{blockIdx.x} * p.columns;
  T* const out = p.out + int64_t{blockIdx.x} * p.columns;
  float squares = 0;
  for (int64_t d = threadIdx.x; d < p.columns; d += kThreads) squares += x[d] * x[d];
  squares = block_reduce<kThreads>(squares, Sum(), scratch);
  const float scale = 1.0f / sqrtf(squares / static_cast<float>(p.columns) + p.epsilon);
  for (int64_t d = threadIdx.x; d < p.columns; d += kThreads) {
    out[d] = from_f32<T>(x[d] * scale * p.weight[d]);
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
    launch("rms_norm", norm_rows<T>, grid, stream, p);
  });
}

}  // namespace troupe::cuda
