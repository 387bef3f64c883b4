// out = silu(gate) · up, silu(g) = g / (1 + e^-g)
//
// gate_up (T, 2F) activation: gate in columns [0, F), up in [F, 2F) · out (T, F) activation
// A thread takes 16 bytes of gate, of up and of out where rows are whole such pieces, else one element.
// Bytes: 3 · T · F · size. The exact exponential and division cost nothing beside them.

#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/device/ptx.cuh"
#include "kernels/cuda/ops/ops.h"

namespace troupe::cuda {
namespace {

constexpr int kThreads = 256;

// `columns`: pieces of a row of out.
template <typename T, int kCount>
__global__ void __launch_bounds__(kThreads)
    silu_pieces(const Piece<T, kCount>* gate_up, Piece<T, kCount>* out, int64_t columns, int64_t pieces) {
  await_launch_before();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= pieces) return;
  const int64_t row = i / columns;
  const Piece<T, kCount> gate = gate_up[i + row * columns];
  const Piece<T, kCount> up = gate_up[i + (row + 1) * columns];
  Piece<T, kCount> result;
#pragma unroll
  for (int c = 0; c < kCount; ++c) {
    result.values[c] = from_f32<T>(silu_times(to_f32(gate.values[c]), to_f32(up.values[c])));
  }
  out[i] = result;
}

template <typename T, int kCount>
void launch_pieces(const LaunchStream& stream, const SiluMulParams& params) {
  using P = Piece<T, kCount>;
  const int64_t columns = params.out.shape[1] / kCount;
  const int64_t pieces = params.out.shape[0] * columns;
  const Grid grid{dim3(blocks_for(pieces, kThreads)), kThreads};
  launch("silu_mul", silu_pieces<T, kCount>, grid, stream, params.gate_up.as<const P>(), params.out.as<P>(),
         columns, pieces);
}

}  // namespace

void silu_mul(const LaunchStream& stream, const SiluMulParams& params) {
  if (params.out.elements() == 0) return;
  with_activation("silu_mul", params.out.dtype, [&](auto type) {
    using T = decltype(type);
    constexpr int kCount = 16 / sizeof(T);
    const auto place =
        reinterpret_cast<uintptr_t>(params.gate_up.data) | reinterpret_cast<uintptr_t>(params.out.data);
    const bool whole = params.out.shape[1] % kCount == 0 && place % 16 == 0;
    if (whole) return launch_pieces<T, kCount>(stream, params);
    launch_pieces<T, 1>(stream, params);
  });
}

}  // namespace troupe::cuda
