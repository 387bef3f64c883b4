// The emulator itself: what a kernel may rely on holds, and what it may not is seen.

#include "tests/kernels/emulated/emulator.h"

#include <cuda_runtime.h>

#include <set>
#include <vector>

#include "tests/kernels/emulated/emulator_testing.h"

namespace troupe::emulator_test {

using namespace emulator_testing;

using Emulator = EmulatorTest;

// The values that `fill` writes into `count` ints of the device, in each order.
template <class Fill>
std::set<std::vector<int>> outcomes(size_t count, const Fill& fill) {
  std::set<std::vector<int>> seen;
  for (const OrderCase& one : kOrders) {
    set_order(one.order, one.seed);
    std::vector<int> out(count, -1);
    fill(out.data());
    seen.insert(out);
  }
  return seen;
}

// --- threads, blocks, shared memory

__global__ void write_indices(uint3* out) {
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned threads = blockDim.x * blockDim.y * blockDim.z;
  out[2 * (block * threads + thread)] = threadIdx;
  out[2 * (block * threads + thread) + 1] = blockIdx;
}

TEST_F(Emulator, EveryThreadOfEveryBlockRunsOnce) {
  const dim3 grid(3, 2, 2), block(5, 3, 2);
  for (const OrderCase& one : kOrders) {
    set_order(one.order, one.seed);
    std::vector<uint3> indices(2 * 12 * 30, uint3{99, 99, 99});
    run(grid, block, 0, write_indices, indices.data());
    for (unsigned i = 0; i < 12 * 30; ++i) {
      const uint3 thread = indices[2 * i], at = indices[2 * i + 1];
      ASSERT_EQ(thread.x + 5 * (thread.y + 3 * thread.z), i % 30);
      ASSERT_EQ(at.x + 3 * (at.y + 2 * at.z), i / 30);
    }
  }
}

__global__ void __launch_bounds__(256) sum_blocks(const float* in, float* out) {
  __shared__ float warp_sums[8];
  float sum = in[blockIdx.x * blockDim.x + threadIdx.x];
#pragma unroll
  for (int distance = warpSize / 2; distance > 0; distance /= 2) {
    sum += __shfl_xor_sync(~0u, sum, distance);
  }
  if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  sum = threadIdx.x < blockDim.x / 32 ? warp_sums[threadIdx.x] : 0.0f;
  for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_down_sync(~0u, sum, distance);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

TEST_F(Emulator, ABlockSumsByShufflesAndSharedMemory) {
  std::vector<float> in(4 * 256);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i);
  for (const OrderCase& one : kOrders) {
    set_order(one.order, one.seed);
    std::vector<float> out(4, -1.0f);
    run(4, 256, 0, sum_blocks, in.data(), out.data());
    for (size_t b = 0; b < 4; ++b) {
      EXPECT_EQ(out[b], 256.0f * 256.0f * static_cast<float>(b) + 255.0f * 128.0f);
    }
  }
}

template <bool waits>
__global__ void transpose(const int* in, int* out, int width) {
  TROUPE_DYNAMIC_SHARED(bytes);
  int* tile = reinterpret_cast<int*>(bytes);
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y);
  tile[y * width + x] = in[y * width + x];
  if (waits) __syncthreads();
  out[y * width + x] = tile[x * width + y];
}

TEST_F(Emulator, ABlockTransposesThroughDynamicSharedMemory) {
  std::vector<int> in(16 * 16), transposed(16 * 16);
  for (int i = 0; i < 256; ++i) {
    in[static_cast<size_t>(i)] = i;
    transposed[static_cast<size_t>(i % 16 * 16 + i / 16)] = i;
  }
  const auto seen =
      outcomes(256, [&](int* out) { run(1, dim3(16, 16), 1024, transpose<true>, in.data(), out, 16); });
  EXPECT_EQ(seen, std::set<std::vector<int>>{transposed});
}

TEST_F(Emulator, AMissingBarrierGivesAnotherResultInEachOrder) {
  const std::vector<int> in(16 * 16, 7);
  const auto seen =
      outcomes(256, [&](int* out) { run(1, dim3(16, 16), 1024, transpose<false>, in.data(), out, 16); });
  EXPECT_EQ(seen.size(), std::size(kOrders));
}

__global__ void copy_shared(int* out) {
  TROUPE_DYNAMIC_SHARED(bytes);
  out[threadIdx.x] = reinterpret_cast<const int*>(bytes)[threadIdx.x];
  reinterpret_cast<int*>(bytes)[threadIdx.x] = 1;
}

TEST_F(Emulator, DynamicSharedMemoryIsGarbageInEveryBlock) {
  std::vector<int> out(32);
  run(3, 32, 128, copy_shared, out.data());
  EXPECT_EQ(out, std::vector<int>(32, -1));
}

#ifdef __SANITIZE_ADDRESS__
TEST_F(Emulator, DynamicSharedMemoryIsAsLongAsLaunchedWith) {
  std::vector<int> out(33);
  EXPECT_DEATH(run(1, 33, 128, copy_shared, out.data()), "heap-buffer-overflow(.|\n)*copy_shared");
}

__global__ void leave_a_local_array(int* out, int index) {
  int values[8];
  for (int i = 0; i < 8; ++i) values[i] = out[i];
  __syncthreads();
  int* start = values;
  asm volatile("" : "+r"(start));  // else UBSan knows how long it is
  out[threadIdx.x] = start[index];
}

TEST_F(Emulator, TheSanitizerKnowsTheStacksOfThreads) {
  std::vector<int> out(32);
  run(1, 32, 0, leave_a_local_array, out.data(), 7);
  EXPECT_DEATH(run(1, 32, 0, leave_a_local_array, out.data(), 8),
               "stack-buffer-overflow(.|\n)*leave_a_local_array");
}
#endif

__global__ void fill_a_large_frame(int* out) {
  volatile int frame[4096];  // a quarter of a stack
  for (int i = 0; i < 4096; ++i) frame[i] = static_cast<int>(threadIdx.x) + i;
  __syncthreads();
  out[threadIdx.x] = frame[4095] - 4095;
}

TEST_F(Emulator, EveryThreadHasItsOwnLocals) {
  std::vector<int> out(1024);
  run(1, 1024, 0, fill_a_large_frame, out.data());
  for (int i = 0; i < 1024; ++i) ASSERT_EQ(out[static_cast<size_t>(i)], i);
}

// --- barriers

__global__ void leave_early(int* out) {
  __shared__ int last;
  if (threadIdx.x % 3 == 1) return;
  if (threadIdx.x == 63) last = 5;
  __syncthreads();
  out[threadIdx.x] = last;
}

TEST_F(Emulator, ThreadsThatHaveEndedCountAsArrived) {
  std::vector<int> expected(64, 5);
  for (size_t i = 1; i < 64; i += 3) expected[i] = -1;
  const auto seen = outcomes(64, [](int* out) { run(1, 64, 0, leave_early, out); });
  EXPECT_EQ(seen, std::set<std::vector<int>>{expected});
}

__global__ void diverge_at_barriers(int* out) {
  if (threadIdx.x < 40) {
    __syncthreads();
  } else {
    __syncwarp();
  }
  out[threadIdx.x] = 1;
}

TEST_F(Emulator, ABarrierThatOthersNeverReachEndsTheProcess) {
  std::vector<int> out(64);
  EXPECT_DEATH(
      run(dim3(2, 3), 64, 0, diverge_at_barriers, out.data()),
      R"(deadlock in block \(0, 0, 0\): 64 of 64 threads(.|\n)*)"
      R"(thread \(0, 0, 0\) and 39 more at __syncthreads, emulator_test.cc:(.|\n)*diverge_at_barriers)"
      R"((.|\n)*thread \(40, 0, 0\) and 23 more at __syncwarp, mask ffffffff)");
}

__global__ void end_before_shuffle(int* out) {
  if (threadIdx.x == 3) return;
  out[threadIdx.x] = __shfl_sync(~0u, 1, 0);
}

TEST_F(Emulator, ACollectiveOfALaneThatHasEndedEndsTheProcess) {
  std::vector<int> out(32);
  EXPECT_DEATH(run(1, 32, 0, end_before_shuffle, out.data()), "names lanes which have ended|deadlock");
  set_order(Order::kReverse);
  EXPECT_DEATH(run(1, 32, 0, end_before_shuffle, out.data()), "names lanes which have ended|deadlock");
}

__global__ void name_another(int* out) {
  out[threadIdx.x] = __shfl_sync(1u, 1, 0);
}

TEST_F(Emulator, ALaneThatIsNotInItsOwnMaskEndsTheProcess) {
  std::vector<int> out(32);
  set_order(Order::kReverse);
  EXPECT_DEATH(
      run(1, 32, 0, name_another, out.data()),
      R"(__shfl_sync with a mask that leaves out its own lane(.|\n)*by thread \(31, 0, 0\) of block)");
}

__global__ void shuffle_at_two_places(int* out) {
  if (threadIdx.x < 16) {
    out[threadIdx.x] = __shfl_sync(~0u, 1, 0);
  } else {
    out[threadIdx.x] = __shfl_sync(~0u, 2, 0);
  }
}

TEST_F(Emulator, LanesThatShuffleAtDifferentPlacesDoNotMeet) {
  std::vector<int> out(32);
  EXPECT_DEATH(run(1, 32, 0, shuffle_at_two_places, out.data()), "15 more at(.|\n)*15 more at");
}

// --- warp collectives

__global__ void shuffle_all(int* out) {
  const int lane = static_cast<int>(threadIdx.x);
  out[lane] = __shfl_sync(~0u, lane, lane + 1);
  out[32 + lane] = __shfl_up_sync(~0u, lane, 3);
  out[64 + lane] = __shfl_down_sync(~0u, lane, 3, 8);
  out[96 + lane] = __shfl_xor_sync(~0u, lane, 9, 8);
  out[128 + lane] = static_cast<int>(__shfl_sync(~0u, static_cast<double>(lane) * 0x1p40, 5, 16) * 0x1p-40);
  out[160 + lane] = static_cast<int>(__shfl_sync(~0u, static_cast<long long>(lane) << 40, 7) >> 40);
}

TEST_F(Emulator, ShufflesFollowPtx) {
  std::vector<int> expected;
  for (int lane = 0; lane < 32; ++lane) expected.push_back((lane + 1) % 32);
  for (int lane = 0; lane < 32; ++lane) expected.push_back(lane < 3 ? lane : lane - 3);
  for (int lane = 0; lane < 32; ++lane) expected.push_back(lane % 8 + 3 > 7 ? lane : lane + 3);
  // Segments before one's own may be read, those behind it not.
  for (int lane = 0; lane < 32; ++lane) expected.push_back((lane & 8) != 0 ? lane ^ 9 : lane);
  for (int lane = 0; lane < 32; ++lane) expected.push_back(lane / 16 * 16 + 5);
  for (int lane = 0; lane < 32; ++lane) expected.push_back(7);
  const auto seen = outcomes(192, [](int* out) { run(1, 32, 0, shuffle_all, out); });
  EXPECT_EQ(seen, std::set<std::vector<int>>{expected});
}

__global__ void vote_and_reduce(int* out) {
  const int lane = static_cast<int>(threadIdx.x);
  out[lane] = static_cast<int>(__ballot_sync(~0u, lane % 3 == 0));
  out[32 + lane] = __any_sync(~0u, lane == 31) * 2 + __all_sync(~0u, lane < 31);
  out[64 + lane] = __reduce_max_sync(~0u, lane - 40);
  out[96 + lane] = static_cast<int>(__reduce_max_sync(~0u, static_cast<unsigned>(lane - 16)));
  out[128 + lane] = __reduce_add_sync(~0u, lane - 16);
  // The halves go their own ways, each as often as it likes.
  const unsigned half = lane < 16 ? 0xffffu : 0xffff0000u;
  int rounds = 0;
  for (int i = 0; i < (lane < 16 ? 2 : 5); ++i) rounds += __popc(__ballot_sync(half, 1));
  out[160 + lane] = rounds;
  out[192 + lane] = static_cast<int>(__match_any_sync(half, static_cast<unsigned>(lane % 4)));
}

TEST_F(Emulator, VotesAndReductionsAreOfTheMask) {
  std::vector<int> expected(32, 0x49249249);
  expected.insert(expected.end(), 32, 2);
  expected.insert(expected.end(), 32, -9);
  expected.insert(expected.end(), 32, -1);
  expected.insert(expected.end(), 32, 31 * 16 - 16 * 32);
  expected.insert(expected.end(), 16, 32);
  expected.insert(expected.end(), 16, 80);
  for (int lane = 0; lane < 32; ++lane) expected.push_back(0x1111 << lane % 4 << lane / 16 * 16);
  const auto seen = outcomes(224, [](int* out) { run(1, 32, 0, vote_and_reduce, out); });
  EXPECT_EQ(seen, std::set<std::vector<int>>{expected});
}

__global__ void count_with_atomics(int* total, unsigned* largest, float* sum, int* claimed) {
  atomicAdd(total, 1);
  atomicMax(largest, blockIdx.x * blockDim.x + threadIdx.x);
  atomicAdd(sum, 0.5f);
  if (atomicCAS(claimed, 0, 1) == 0) atomicExch(claimed, 7);
}

TEST_F(Emulator, AtomicsAddUpOverBlocks) {
  int total = 0, claimed = 0;
  unsigned largest = 0;
  float sum = 0;
  run(5, 64, 0, count_with_atomics, &total, &largest, &sum, &claimed);
  EXPECT_EQ(total, 320);
  EXPECT_EQ(largest, 319u);
  EXPECT_EQ(sum, 160.0f);
  EXPECT_EQ(claimed, 7);
}

}  // namespace troupe::emulator_test
