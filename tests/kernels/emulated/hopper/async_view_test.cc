// Stores to shared memory that a product is to read: which fences make them visible to it.

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <vector>

#include "kernels/cuda/device/hopper.cuh"
#include "tests/kernels/emulated/emulator_testing.h"

namespace troupe::async_view_test {

using namespace emulator_testing;
using namespace cuda;

constexpr int kRows = 64, kColumns = 128, kDepth = 16;
constexpr int kTileBytes = (kRows + kColumns) * kSwizzled * 2;

enum class Way {
  kByHand,
  kByHandAfterABox,  // into a place that the copy engine wrote before
  kAsync,            // cp.async
  // Something is left out, or done in a wrong order:
  kByHandNoFence,
  kByHandFenceOfOneLane,
  kByHandFenceBefore,
  kPlainStore,
  kAsyncNoFence,
  kAsyncFenceBeforeWait,
};

constexpr bool is_async(Way way) {
  return way == Way::kAsync || way == Way::kAsyncNoFence || way == Way::kAsyncFenceBeforeWait;
}

// Rows of kDepth elements to rows of a tile, 16 bytes a thread at a time; and the fence.
template <Way kWay>
__device__ void fill_tiles(const __nv_bfloat16* values, __nv_bfloat16* tiles) {
  constexpr int kChunks = kDepth / 8;
  if (kWay == Way::kByHandFenceBefore) fence_async_proxy();
  for (int i = static_cast<int>(threadIdx.x); i < (kRows + kColumns) * kChunks; i += kWarpgroup) {
    __nv_bfloat16* const to = tiles + swizzled_at(i / kChunks, i % kChunks);
    const auto* const from = reinterpret_cast<const uint4*>(values) + i;
    if (is_async(kWay)) {
      cp_async_16(to, from, true);
    } else if (kWay == Way::kPlainStore) {
      *reinterpret_cast<uint4*>(to) = *from;
    } else {
      store_to_tile(to, *from);
    }
  }
  cp_async_commit();
  if (kWay == Way::kAsyncFenceBeforeWait) fence_async_proxy();
  cp_async_wait<0>();
  switch (kWay) {
    case Way::kByHandFenceOfOneLane:
      if (threadIdx.x % 32 == 0) fence_async_proxy();
      break;
    case Way::kByHandNoFence:
    case Way::kByHandFenceBefore:
    case Way::kAsyncNoFence:
    case Way::kAsyncFenceBeforeWait:
      break;
    default:
      fence_async_proxy();
  }
}

// d [64, 128] = a [64, 16] · bᵀ [128, 16]; `values`: a's rows, then b's.
template <Way kWay>
__global__ void multiply_stored(const __grid_constant__ CUtensorMap map, const __nv_bfloat16* values,
                                float* d) {
  TROUPE_DYNAMIC_SHARED(memory);
  auto* const tiles = reinterpret_cast<__nv_bfloat16*>(memory);
  auto& full = *reinterpret_cast<PhaseBarrier*>(memory + kTileBytes);
  if (threadIdx.x == 0) {
    init_barrier(full, 1);
    fence_barrier_init();
  }
  __syncthreads();
  if (kWay == Way::kByHandAfterABox) {
    if (threadIdx.x == 0) copy_box(tiles, map, 0, 0, full);
    if (threadIdx.x == 0) arrive_and_expect(full, 8 * kSwizzled * 2);
    wait(full, 0);
  }
  fill_tiles<kWay>(values, tiles);
  __syncthreads();
  float sums[kColumns / 8][4];
  fence_products();
  multiply_tiles(sums, tile_descriptor(tiles, 1024), tile_descriptor(tiles + kRows * kSwizzled, 1024), false);
  commit_products();
  wait_products<0>();
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int row = warp * 16 + lane / 4, column = lane % 4 * 2;
  for (int n = 0; n < kColumns / 8; ++n) {
    for (int i = 0; i < 4; ++i) d[(row + i / 2 * 8) * kColumns + n * 8 + column + i % 2] = sums[n][i];
  }
}

template <Way kWay>
void product() {
  const auto values = random_values((kRows + kColumns) * kDepth, 3);
  const auto box = random_values(8 * kSwizzled, 5);
  const CUtensorMap map{reinterpret_cast<const unsigned char*>(box.data()), kSwizzled, 8, 128, kSwizzled, 8};
  std::vector<float> d(size_t{kRows} * kColumns);
  run(1, kWarpgroup, kTileBytes + sizeof(PhaseBarrier), multiply_stored<kWay>, map, values.data(), d.data());
  for (size_t m = 0; m < kRows; ++m) {
    for (size_t n = 0; n < kColumns; ++n) {
      float sum = 0;
      for (size_t k = 0; k < kDepth; ++k) {
        sum += __bfloat162float(values[m * kDepth + k]) * __bfloat162float(values[(kRows + n) * kDepth + k]);
      }
      ASSERT_EQ(d[m * kColumns + n], sum) << m << " " << n;
    }
  }
}

using AsyncView = EmulatorTest;

TEST_F(AsyncView, AProductReadsWhatEachThreadStoredAndFenced) {
  for (const OrderCase& order : kOrders) {
    set_order(order.order, order.seed);
    product<Way::kByHand>();
    product<Way::kByHandAfterABox>();
    product<Way::kAsync>();
  }
}

constexpr char kNotFenced[] = "a product of bytes that no fence_async_proxy";

TEST_F(AsyncView, AStoreByHandWithoutItsThreadsFenceEndsTheProcess) {
  EXPECT_DEATH(product<Way::kByHandNoFence>(), kNotFenced);
  EXPECT_DEATH(product<Way::kByHandFenceOfOneLane>(), kNotFenced);
  EXPECT_DEATH(product<Way::kByHandFenceBefore>(), kNotFenced);
  EXPECT_DEATH(product<Way::kPlainStore>(), kNotFenced);
}

TEST_F(AsyncView, AnAsynchronousCopyIsFencedBehindItsWait) {
  EXPECT_DEATH(product<Way::kAsyncNoFence>(), kNotFenced);
  EXPECT_DEATH(product<Way::kAsyncFenceBeforeWait>(), kNotFenced);
}

enum class Publishing { kOfTheMaker, kOfAnother, kOfThoseBefore };

// A box to a barrier of which another thread says that it was made.
template <Publishing kPublishing>
__global__ void copy_to_barrier(const __grid_constant__ CUtensorMap map) {
  TROUPE_DYNAMIC_SHARED(memory);
  auto& full = *reinterpret_cast<PhaseBarrier*>(memory + 8 * kSwizzled * 2);
  if (kPublishing == Publishing::kOfThoseBefore && threadIdx.x == 0) fence_barrier_init();
  if (threadIdx.x == 0) init_barrier(full, 1);
  if (kPublishing == Publishing::kOfTheMaker && threadIdx.x == 0) fence_barrier_init();
  if (kPublishing == Publishing::kOfAnother && threadIdx.x == 1) fence_barrier_init();
  __syncthreads();
  if (threadIdx.x == 32) {
    copy_box(memory, map, 0, 0, full);
    arrive_and_expect(full, 8 * kSwizzled * 2);
  }
  wait(full, 0);
}

template <Publishing kPublishing>
void copy_one_box() {
  const auto box = random_values(8 * kSwizzled, 5);
  const CUtensorMap map{reinterpret_cast<const unsigned char*>(box.data()), kSwizzled, 8, 128, kSwizzled, 8};
  run(1, 64, 8 * kSwizzled * 2 + sizeof(PhaseBarrier), copy_to_barrier<kPublishing>, map);
}

TEST_F(AsyncView, ABarrierIsPublishedByTheThreadThatMadeIt) {
  copy_one_box<Publishing::kOfTheMaker>();
  EXPECT_DEATH(copy_one_box<Publishing::kOfAnother>(), "made without fence_barrier_init");
  EXPECT_DEATH(copy_one_box<Publishing::kOfThoseBefore>(), "made without fence_barrier_init");
}

}  // namespace troupe::async_view_test
