// out[i] = x[i] in bfloat16: a bias as cuBLASLt wants it, of the output's type. Exact where the checkpoint is
// in bfloat16.
//
// x (N) float32 · out (N) bfloat16 · a thread an element. Bytes: 6 · N, a few kilobytes: launch time is all
// it costs.

#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/device/ptx.cuh"
#include "kernels/cuda/gemm/gemm_kernels.h"

namespace troupe::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    round_elements(const float* x, __nv_bfloat16* out, int64_t count) {
  await_launch_before();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < count) out[i] = from_f32<__nv_bfloat16>(x[i]);
}

}  // namespace

void round_vector(const LaunchStream& stream, const Tensor& x, const Tensor& out) {
  const int64_t count = x.elements();
  if (count == 0) return;
  const Grid grid{dim3(blocks_for(count, kThreads)), kThreads};
  launch("round_vector", round_elements, grid, stream, x.as<const float>(), out.as<__nv_bfloat16>(), count);
}

}  // namespace troupe::cuda
