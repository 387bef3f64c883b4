// sum += every word of some memory: it is read, and nothing else is. What the last level of the cache then
// holds is this memory as it is, so the next kernel writes nothing back for others.
//
// memory (N) words of 32 bits, 16 bytes a read · sum (1), of a warp's threads at once. Bytes: 4 · N.

#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/device/ptx.cuh"
#include "kernels/cuda/device/read_memory.h"

namespace troupe::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocksOfProcessor = 4;

__global__ void __launch_bounds__(kThreads) add_words(const uint4* memory, int64_t count, unsigned* sum) {
  await_launch_before();
  unsigned own = 0;
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    const uint4 words = __ldcg(memory + i);
    own += words.x + words.y + words.z + words.w;
  }
  own = warp_reduce(own, Sum());
  if (threadIdx.x % kWarp == 0) atomicAdd(sum, own);
}

}  // namespace

void read_memory(const LaunchStream& stream, const void* memory, size_t bytes, uint32_t* sum) {
  const auto count = static_cast<int64_t>(bytes / sizeof(uint4));
  if (count == 0) return;
  int device = 0, processors = 0;
  check_cuda("read_memory", cudaGetDevice(&device));
  check_cuda("read_memory", cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
  const Grid grid{dim3(static_cast<unsigned>(processors * kBlocksOfProcessor)), kThreads};
  launch("read_memory", add_words, grid, stream, static_cast<const uint4*>(memory), count, sum);
}

}  // namespace troupe::cuda
