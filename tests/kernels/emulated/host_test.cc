// The host's side: launches, memory, streams; and the types and arithmetic that both sides have.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <array>
#include <cmath>
#include <thread>
#include <vector>

#include "kernels/cuda/device/ptx.cuh"
#include "tests/kernels/emulated/emulator.h"
#include "tests/kernels/emulated/emulator_testing.h"

namespace troupe::emulated_host_test {

using namespace emulator_testing;

using EmulatedHost = EmulatorTest;

__global__ void count_threads(int* total) {
  atomicAdd(total, 1);
}

__global__ void sum_block(const float* in, float* out) {
  __shared__ float sum;
  if (threadIdx.x == 0) sum = 0.0f;
  __syncthreads();
  atomicAdd(&sum, in[threadIdx.x]);
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

TEST_F(EmulatedHost, LaunchesAreCheckedAsOnTheDevice) {
  int total = 0;
  const auto launch_error = [&](dim3 grid, dim3 block, size_t shared_bytes) {
    const cudaLaunchConfig_t config{grid, block, shared_bytes, nullptr, nullptr, 0};
    return cudaLaunchKernelEx(&config, count_threads, &total);
  };
  EXPECT_EQ(launch_error(0, 32, 128), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch_error(1, dim3(32, 0), 128), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch_error(1, dim3(32, 33), 128), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch_error(dim3(1, 65536), 32, 128), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch_error(1, 32, (48 << 10) + 1), cudaErrorInvalidValue);
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorInvalidValue);
  EXPECT_STREQ(cudaGetErrorName(cudaGetLastError()), "cudaErrorInvalidValue");
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(cudaFuncSetAttribute(count_threads, cudaFuncAttributeMaxDynamicSharedMemorySize, 232449),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaFuncSetAttribute(count_threads, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 << 10),
            cudaSuccess);
  EXPECT_EQ(launch_error(1, 32, 200 << 10), cudaSuccess);
  EXPECT_EQ(launch_error(1, 32, (200 << 10) + 1), cudaErrorInvalidValue);
}

TEST_F(EmulatedHost, ClustersDivideTheGrid) {
  int total = 0;
  const auto launch_error = [&](dim3 grid, unsigned x, unsigned y) {
    cudaLaunchAttribute cluster{cudaLaunchAttributeClusterDimension, {0, {x, y, 1}, 0}};
    const cudaLaunchConfig_t config{grid, 32, 128, nullptr, &cluster, 1};
    return cudaLaunchKernelEx(&config, count_threads, &total);
  };
  EXPECT_EQ(launch_error(dim3(4, 2), 2, 2), cudaSuccess);
  EXPECT_EQ(total, 8 * 32);
  EXPECT_EQ(launch_error(3, 2, 1), cudaErrorInvalidClusterSize);
  EXPECT_EQ(launch_error(2, 0, 1), cudaErrorInvalidClusterSize);
  EXPECT_EQ(launch_error(16, 16, 1), cudaErrorInvalidClusterSize);
  EXPECT_EQ(total, 8 * 32);
}

TEST_F(EmulatedHost, BlocksOfAMultiprocessorFitItsSharedMemory) {
  set_device_size({.shared_bytes = 100 << 10});
  const auto blocks_of = [](auto* kernel, int threads, size_t shared_bytes) {
    int blocks = -1;
    EXPECT_EQ(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, shared_bytes),
              cudaSuccess);
    return blocks;
  };
  constexpr auto kBytes = cudaFuncAttributeMaxDynamicSharedMemorySize;
  EXPECT_EQ(cudaFuncSetAttribute(count_threads, kBytes, (99 << 10) + 1), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFuncSetAttribute(count_threads, kBytes, 99 << 10), cudaSuccess);
  EXPECT_EQ(blocks_of(count_threads, 128, 99 << 10), 1);
  EXPECT_EQ(blocks_of(count_threads, 128, 49 << 10), 2) << "and 1 KB of each is CUDA's own";
  EXPECT_EQ(blocks_of(count_threads, 128, (49 << 10) + 1), 1);
  EXPECT_EQ(blocks_of(count_threads, 128, 0), 16) << "as many threads as it has";
  EXPECT_EQ(blocks_of(sum_block, 128, (48 << 10) + 1), 0) << "nothing was asked for";
  set_device_size({});
}

TEST_F(EmulatedHost, TheLastLaunchIsKnown) {
  int total = 0;
  const uint64_t before = last_launch().number;
  run(dim3(3, 2), 64, 0, count_threads, &total);
  run(2, 32, 256, count_threads, &total);
  EXPECT_EQ(last_launch().number, before + 2);
  EXPECT_EQ(last_launch().grid.x, 2u);
  EXPECT_EQ(last_launch().block.x, 32u);
  EXPECT_EQ(last_launch().dynamic_shared_bytes, 256u);
  EXPECT_EQ(last_launch().switches, 2u * 2u);  // no thread waits: one fiber runs them all
  EXPECT_EQ(total, 3 * 2 * 64 + 2 * 32);
}

TEST_F(EmulatedHost, AKernelIsLoadedByItsFirstLaunchOrCapture) {
  int total = 0;
  float in[32] = {}, out = 0;
  forget_kernels();
  EXPECT_EQ(kernels_launched(), 0u);
  run(1, 32, 0, count_threads, &total);
  run(2, 64, 0, count_threads, &total);
  EXPECT_EQ(kernels_launched(), 1u);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  const cudaLaunchConfig_t refused{0, 32, 0, stream, nullptr, 0}, taken{1, 32, 0, stream, nullptr, 0};
  EXPECT_NE(cudaLaunchKernelEx(&refused, sum_block, in, &out), cudaSuccess);
  EXPECT_EQ(kernels_launched(), 1u);
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), cudaSuccess);
  EXPECT_EQ(cudaLaunchKernelEx(&taken, sum_block, in, &out), cudaSuccess);
  EXPECT_EQ(kernels_launched(), 2u);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

TEST_F(EmulatedHost, MemoryIsGarbageAlignedAndCounted) {
  set_device_size({.processors = 132, .memory_bytes = 1 << 20});
  int* memory = nullptr;
  ASSERT_EQ(cudaMalloc(&memory, 1000), cudaSuccess);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 256, 0u);
  EXPECT_EQ(memory[249], -1);
  size_t free_bytes = 0, total_bytes = 0;
  EXPECT_EQ(cudaMemGetInfo(&free_bytes, &total_bytes), cudaSuccess);
  EXPECT_EQ(total_bytes, size_t{1} << 20);
  EXPECT_EQ(free_bytes, total_bytes - 1000);
  int* more = nullptr;
  EXPECT_EQ(cudaMalloc(&more, free_bytes + 1), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaFree(memory + 1), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
  cudaDeviceProp properties;
  EXPECT_EQ(cudaGetDeviceProperties(&properties, 0), cudaSuccess);
  EXPECT_EQ(properties.multiProcessorCount, 132);
  set_device_size({});
}

TEST_F(EmulatedHost, SystemThreadsLaunchSideBySide) {
  std::vector<float> in(256, 1.0f);
  std::vector<std::thread> threads;
  std::array<std::vector<float>, 3> outs;
  for (auto& out : outs) {
    out.resize(4);
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) run(4, 256, 0, sum_block, in.data(), out.data());
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& out : outs) EXPECT_EQ(out, std::vector<float>(4, 256.0f));
}

TEST_F(EmulatedHost, StreamsAndEventsSucceed) {
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
  int from = 3, to = 0;
  EXPECT_EQ(cudaMemcpyAsync(&to, &from, sizeof(to), cudaMemcpyHostToDevice, stream), cudaSuccess);
  EXPECT_EQ(to, 3);
  EXPECT_EQ(cudaEventRecord(event, stream), cudaSuccess);
  EXPECT_EQ(cudaEventSynchronize(event), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(nullptr, stream), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

TEST(EmulatedTypes, BFloat16RoundsToNearestEven) {
  const auto bits = [](float x) { return __bfloat16_as_ushort(__float2bfloat16(x)); };
  EXPECT_EQ(bits(1.0f + 0x1p-8f), 0x3f80);
  EXPECT_EQ(bits(1.0f + 3 * 0x1p-8f), 0x3f82);
  EXPECT_EQ(bits(1.0f + 0x1p-8f + 0x1p-20f), 0x3f81);
  EXPECT_EQ(bits(-3.4e38f), 0xff80);
  EXPECT_TRUE(std::isnan(__bfloat162float(__float2bfloat16(__uint_as_float(0x7f800001)))));
  for (unsigned i = 0; i < 0x10000; ++i) {
    const __nv_bfloat16 value = __ushort_as_bfloat16(static_cast<unsigned short>(i));
    if (!std::isnan(__bfloat162float(value))) {
      ASSERT_EQ(bits(__bfloat162float(value)), i);
    }
  }
  const float2 pair = __bfloat1622float2(__floats2bfloat162_rn(2.0f, -3.0f));
  EXPECT_EQ(pair.x, 2.0f);
  EXPECT_EQ(pair.y, -3.0f);
}

TEST(EmulatedTypes, HalvesAreExact) {
  const auto value = [](unsigned short bits) { return __half2float(__ushort_as_half(bits)); };
  EXPECT_EQ(value(0xc000), -2.0f);
  EXPECT_EQ(value(0x7bff), 65504.0f);
  EXPECT_EQ(value(0x0001), 0x1p-24f);
  EXPECT_EQ(value(0x83ff), -1023 * 0x1p-24f);
  EXPECT_EQ(value(0xfc00), -INFINITY);
  EXPECT_TRUE(std::isnan(value(0x7e00)));
}

TEST(EmulatedMath, IsCudas) {
  EXPECT_EQ(min(3, -2), -2);
  EXPECT_EQ(max(3u, 7), 7u);
  EXPECT_EQ(max(2.0f, NAN), 2.0f);
  EXPECT_EQ(rsqrtf(4.0f), 0.5f);
  EXPECT_NEAR(__expf(1.0f), 2.7182818f, 1e-6f);
  EXPECT_EQ(cuda::exp2_approx(-3.0f), 0.125f);
  EXPECT_EQ(cuda::exp2_approx(-127.0f), 0.0f);
  EXPECT_EQ(cuda::exp2_approx(-INFINITY), 0.0f);
  EXPECT_EQ(__ffs(8), 4);
  EXPECT_EQ(__clz(1), 31);
}

}  // namespace troupe::emulated_host_test
