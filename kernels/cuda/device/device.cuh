#pragma once

// Code that the kernel files share: number types, sums over a warp and a block, and the launch that names
// the op when it fails. The same sources are compiled for the CPU by the tests (tests/kernels/emulated), so
// nothing here or in the kernels names a device feature that is not in ptx.cuh.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <array>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

#include "kernels/cuda/device/check_cuda.h"
#include "kernels/cuda/device/dynamic_shared.cuh"
#include "kernels/cuda/device/launch_stream.h"
#include "kernels/kernels.h"
#include "kernels/tensor.h"

namespace troupe::cuda {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;

__device__ __forceinline__ float to_f32(float x) {
  return x;
}
__device__ __forceinline__ float to_f32(__nv_bfloat16 x) {
  return __bfloat162float(x);
}
__device__ __forceinline__ float to_f32(__half x) {
  return __half2float(x);
}

template <typename T>
__device__ __forceinline__ T from_f32(float x);
template <>
__device__ __forceinline__ float from_f32<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ __nv_bfloat16 from_f32<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

// kCount neighbouring elements, moved as one.
template <typename T, int kCount>
struct __align__(sizeof(T) * kCount) Piece {
  T values[kCount];
};

__device__ __forceinline__ float silu_times(float gate, float up) {
  return gate / (1.0f + expf(-gate)) * up;
}

struct Sum {
  template <typename T>
  __device__ __forceinline__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Max {
  __device__ __forceinline__ float operator()(float a, float b) const { return fmaxf(a, b); }
  __device__ __forceinline__ unsigned long long operator()(unsigned long long a, unsigned long long b) const {
    return a > b ? a : b;
  }
};

// Every lane gets the warp's sum or maximum. The order is that of the butterfly, whatever the data.
template <typename T, typename Op>
__device__ __forceinline__ T warp_reduce(T x, Op op) {
#pragma unroll
  for (int lane = kWarp / 2; lane > 0; lane /= 2) x = op(x, __shfl_xor_sync(kAllLanes, x, lane));
  return x;
}

// Over a block of kThreads, which is whole warps. `scratch` has room for a value a warp; all threads get the
// result, and `scratch` may be used again at once.
template <int kThreads, typename T, typename Op>
__device__ __forceinline__ T block_reduce(T x, Op op, T* scratch) {
  x = warp_reduce(x, op);
  if (threadIdx.x % kWarp == 0) scratch[threadIdx.x / kWarp] = x;
  __syncthreads();
  T result = scratch[0];
#pragma unroll
  for (int w = 1; w < kThreads / kWarp; ++w) result = op(result, scratch[w]);
  __syncthreads();
  return result;
}

// Divides without dividing, which takes a GPU some twenty instructions: n / d is the upper word of 2n · m,
// shifted, m = ceil(2^(31 + s) / d), 2^s the power of two not below d. m · d is over 2^(31 + s) by less than
// 2^s, so for n < 2^31 the quotient is exact (Granlund and Montgomery 1994).
class Divisor {
 public:
  Divisor() = default;  // 1
  // REQUIRES: 1 <= divisor <= 2^30
  explicit Divisor(int divisor) {
    if (divisor < 1 || divisor > 1 << 30) check_failed("divide", "by " + std::to_string(divisor));
    while (1 << shift_ < divisor) ++shift_;
    const auto d = static_cast<uint64_t>(divisor);
    multiplier_ = static_cast<uint32_t>(((uint64_t{1} << (31 + shift_)) + d - 1) / d);
  }
  // n / divisor. REQUIRES: n >= 0
  __device__ __forceinline__ int quotient(int n) const {
    const auto upper = static_cast<uint32_t>(uint64_t{static_cast<uint32_t>(n) * 2} * multiplier_ >> 32);
    return static_cast<int>(upper >> shift_);
  }

 private:
  uint32_t multiplier_ = uint32_t{1} << 31;
  int shift_ = 0;
};

// The place of a layer's keys and values in the KV memory (kernels.h), in elements.
struct KvPlaces {
  int layer, kv_heads, head_dim, block_size;
  int64_t block_elements;
  Divisor by_block_size;

  KvPlaces() = default;
  KvPlaces(const KvLayout& layout, int of_layer)
      : layer(of_layer),
        kv_heads(layout.kv_heads),
        head_dim(layout.head_dim),
        block_size(layout.block_size),
        block_elements(layout.block_elements()),
        by_block_size(layout.block_size) {}
  // (B, C) of one block: keys (which = 0) or values (1) of head g.
  __device__ __forceinline__ int64_t tile(int64_t block, int which, int g) const {
    const int64_t tiles = (int64_t{layer} * kv_heads + g) * 2 + which;
    return block * block_elements + tiles * block_size * head_dim;
  }
  // A slot's, or a request's key's: its block's number in the memory or the table, and its place in that.
  __device__ __forceinline__ int block_of(int key) const { return by_block_size.quotient(key); }
  __device__ __forceinline__ int in_block(int key) const { return key - block_of(key) * block_size; }
};

// The launch of a kernel: blocks, threads of each, bytes of dynamic shared memory.
struct Grid {
  dim3 blocks;
  unsigned threads = 0;
  size_t shared_bytes = 0;
};

// A launch but for its parameters, which lie behind it in a list.
template <typename... Params>
struct KernelLaunch {
  void (*kernel)(Params...);
  dim3 blocks;
  unsigned threads;
  size_t shared_bytes;
  size_t overlaps;  // 1 or 0

  // Places of the parameters, and behind the last one: in whole words.
  static constexpr std::array<size_t, sizeof...(Params) + 1> places() {
    std::array<size_t, sizeof...(Params) + 1> at{sizeof(KernelLaunch)};
    size_t i = 0;
    ((at[i + 1] = at[i] + (sizeof(Params) + 7) / 8 * 8, ++i), ...);
    return at;
  }
};

template <typename... Params>
void launch_now(const char* op, cudaStream_t stream, const KernelLaunch<Params...>& of,
                const Params&... params) {
  cudaLaunchConfig_t config = {};
  config.gridDim = of.blocks;
  config.blockDim = dim3(of.threads);
  config.dynamicSmemBytes = of.shared_bytes;
  config.stream = stream;
  cudaLaunchAttribute overlaps = {};
  overlaps.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlaps.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &overlaps;
  config.numAttrs = of.overlaps != 0 ? 1 : 0;
  check_cuda(op, cudaLaunchKernelEx(&config, of.kernel, params...));
}

// LaunchList::Issue of it.
template <typename... Params>
void issue_kernel(cudaStream_t stream, const char* op, const unsigned char* values) {
  [&]<size_t... i>(std::index_sequence<i...>) {
    constexpr auto kPlaces = KernelLaunch<Params...>::places();
    launch_now<Params...>(op, stream, read_values<KernelLaunch<Params...>>(values),
                          read_values<Params>(values + kPlaces[i])...);
  }
  (std::index_sequence_for<Params...>());
}

template <typename... Params>
void write_launch(LaunchList& list, const char* op, const KernelLaunch<Params...>& of,
                  const Params&... params) {
  using Launch = KernelLaunch<Params...>;
  static_assert(std::has_unique_object_representations_v<Launch>);
  constexpr auto kPlaces = Launch::places();
  unsigned char* const values = list.add(op, issue_kernel<Params...>, kPlaces.back());
  write_values(values, of);
  size_t i = 0;
  (write_values<Params>(values + kPlaces[i++], params), ...);
}

template <typename... Params, typename... Args>
void launch(const char* op, void (*kernel)(Params...), const Grid& grid, const LaunchStream& stream,
            const Args&... args) {
  const KernelLaunch<Params...> of{kernel, grid.blocks, grid.threads, grid.shared_bytes,
                                   stream.overlaps ? size_t{1} : size_t{0}};
  if (stream.list != nullptr) {
    write_launch<Params...>(*stream.list, op, of, Params(args)...);
  } else {
    launch_now<Params...>(op, stream.handle, of, Params(args)...);
  }
  stream.launched(op);
}

inline unsigned blocks_for(int64_t count, int64_t per_block) {
  return static_cast<unsigned>((count + per_block - 1) / per_block);
}

// f(T{}) with the device's type of `dtype`: float32 or bfloat16.
template <typename F>
void with_activation(const char* op, DType dtype, F&& f) {
  if (dtype == DType::kFloat32) return f(float{});
  if (dtype == DType::kBFloat16) return f(__nv_bfloat16{});
  check_failed(op, "activations of type " + std::string(dtype_name(dtype)));
}

}  // namespace troupe::cuda
