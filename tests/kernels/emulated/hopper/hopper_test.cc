// Barriers of phases, boxes and products of warpgroups, put together as our attention does.

#include "kernels/cuda/device/hopper.cuh"

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <vector>

#include "tests/kernels/emulated/emulator_testing.h"

namespace troupe::emulated_hopper_test {

using namespace emulator_testing;
using namespace cuda;

constexpr int kRows = 64, kColumns = 128, kDepth = 64;

CUtensorMap map_of(const std::vector<__nv_bfloat16>& values, uint64_t columns, uint32_t box_rows) {
  CUtensorMap map;
  const uint64_t sizes[] = {columns, values.size() / columns};
  const uint64_t strides[] = {columns * 2};
  const uint32_t box[] = {kSwizzled, box_rows}, steps[] = {1, 1};
  EXPECT_EQ(cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2,
                                   const_cast<__nv_bfloat16*>(values.data()), sizes, strides, box, steps,
                                   CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                   CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
            CUDA_SUCCESS);
  return map;
}

enum class Mistake {
  kNone,
  kNoBoxWait,
  kNoWait,
  kNoFence,
  kTouchedTile,
  kTouchedSums,
  kReadLeft,
  kTouchedLeft,
};

// One warpgroup: d [64, 128] = a [64, 64] · b, with b as [n][k] or, kFromRegisters, as [k][n] behind an `a`
// in registers, with halves of 64 columns.
template <bool kFromRegisters, Mistake kMistake = Mistake::kNone>
__global__ void multiply(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
                         float* d) {
  TROUPE_DYNAMIC_SHARED(memory);
  auto* const a_tile = reinterpret_cast<__nv_bfloat16*>(memory);
  __nv_bfloat16* const b_tile = a_tile + kRows * kDepth;
  auto& full = *reinterpret_cast<PhaseBarrier*>(b_tile + kColumns * kDepth);
  if (threadIdx.x == 0) {
    init_barrier(full, 1);
    fence_barrier_init();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    copy_box(a_tile, a, 0, 0, full);
    copy_box(b_tile, b, 0, 0, full);
    if (kFromRegisters) copy_box(b_tile + kDepth * kSwizzled, b, kSwizzled, 0, full);
    arrive_and_expect(full, (kRows + kColumns) * kDepth * 2);
  }
  if (kMistake != Mistake::kNoBoxWait) wait(full, 0);
  __syncthreads();
  float sums[kColumns / 8][4] = {};
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int row = warp * 16 + lane / 4, column = lane % 4 * 2;
  uint32_t left[kDepth / 16][4];
  if (kMistake != Mistake::kNoFence) fence_products();
  for (int k = 0; k < kDepth / 16; ++k) {
    if (kFromRegisters) {
      for (int i = 0; i < 4; ++i) {
        const int at = swizzled_at(row + i % 2 * 8, k * 2 + i / 2) + column;
        left[k][i] = *reinterpret_cast<const uint32_t*>(a_tile + at);
      }
      const uint64_t tile = tile_descriptor(b_tile, 1024, kDepth * 128);
      add_products(sums, left[k], advanced(tile, k * 2048));
    } else {
      multiply_tiles(sums, advanced(tile_descriptor(a_tile, 1024), k * 32),
                     advanced(tile_descriptor(b_tile, 1024), k * 32), k > 0);
    }
  }
  commit_products();
  if (kMistake == Mistake::kTouchedTile) b_tile[threadIdx.x] = __float2bfloat16(0.5f);
  if (kMistake == Mistake::kTouchedSums) sums[3][1] *= 2.0f;
  if (kMistake == Mistake::kTouchedSums) sums[3][2] = 2.0f;
  uint32_t read = 0;
  if (kMistake == Mistake::kReadLeft) read = left[1][2];
  if (kMistake == Mistake::kTouchedLeft && threadIdx.x == 40) left[1][2] = 0x3f803f80;
  if (kMistake != Mistake::kNoWait) wait_products<0>();
  if (kMistake == Mistake::kReadLeft) sums[0][0] += __uint_as_float(read);
  for (int n = 0; n < kColumns / 8; ++n) {
    for (int i = 0; i < 4; ++i) d[(row + i / 2 * 8) * kColumns + n * 8 + column + i % 2] = sums[n][i];
  }
}

template <bool kFromRegisters, Mistake kMistake = Mistake::kNone>
void product(std::vector<float>& d, unsigned seed) {
  const auto a = random_values(kRows * kDepth, seed), b = random_values(kColumns * kDepth, seed + 1);
  const CUtensorMap a_map = map_of(a, kDepth, kRows);
  const CUtensorMap b_map = kFromRegisters ? map_of(b, kColumns, kDepth) : map_of(b, kDepth, kColumns);
  d.assign(kRows * kColumns, 0);
  run(1, kWarpgroup, (kRows + kColumns) * kDepth * 2 + 8, multiply<kFromRegisters, kMistake>, a_map, b_map,
      d.data());
  if (kMistake != Mistake::kNone) return;
  for (size_t m = 0; m < kRows; ++m) {
    for (size_t n = 0; n < kColumns; ++n) {
      float sum = 0;
      for (size_t k = 0; k < kDepth; ++k) {
        sum += __bfloat162float(a[m * kDepth + k]) *
               __bfloat162float(b[kFromRegisters ? k * kColumns + n : n * kDepth + k]);
      }
      ASSERT_EQ(d[m * kColumns + n], sum) << m << " " << n;
    }
  }
}

using EmulatedHopper = EmulatorTest;

TEST_F(EmulatedHopper, AWarpgroupMultipliesTilesThatTheCopyEngineBrought) {
  std::vector<float> d;
  for (const OrderCase& order : kOrders) {
    set_order(order.order, order.seed);
    product<false>(d, 3);
    product<true>(d, 5);
  }
}

TEST_F(EmulatedHopper, SumsAreNaNUntilTheyAreWaitedFor) {
  std::vector<float> d;
  product<false, Mistake::kNoWait>(d, 3);
  for (const float value : d) ASSERT_TRUE(std::isnan(value));
  product<false, Mistake::kNoBoxWait>(d, 3);
  for (const float value : d) ASSERT_TRUE(std::isnan(value));
}

TEST_F(EmulatedHopper, ALeftOperandInRegistersIsNaNUntilItIsWaitedFor) {
  std::vector<float> d;
  product<true, Mistake::kReadLeft>(d, 3);
  for (size_t m = 0; m < kRows; ++m) {  // of every 16 a lane's first sum is in the first 8
    ASSERT_EQ(std::isnan(d[m * kColumns]), m % 16 < 8) << m;
    ASSERT_FALSE(std::isnan(d[m * kColumns + 1])) << m;
  }
}

TEST_F(EmulatedHopper, MistakesEndTheProcess) {
  std::vector<float> d;
  EXPECT_DEATH((product<true, Mistake::kNoFence>(d, 3)), "a product without fence_products");
  EXPECT_DEATH((product<true, Mistake::kTouchedTile>(d, 3)), "a tile that changed while a product read it");
  EXPECT_DEATH((product<false, Mistake::kTouchedSums>(d, 3)), "registers that were written while a product");
  EXPECT_DEATH((product<true, Mistake::kTouchedLeft>(d, 3)), "registers that were written while a product");
}

// A ring of two places, that one warp fills and two others empty; a box outside of the map is zeros.
__global__ void stream_through_ring(const __grid_constant__ CUtensorMap map, float* out, int count,
                                    int arrivals) {
  TROUPE_DYNAMIC_SHARED(memory);
  auto* const ring = reinterpret_cast<__nv_bfloat16*>(memory);
  auto* const full = reinterpret_cast<PhaseBarrier*>(ring + 2 * 8 * kSwizzled);
  PhaseBarrier* const empty = full + 2;
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; ++i) {
      init_barrier(full[i], 1);
      init_barrier(empty[i], arrivals);
    }
    fence_barrier_init();
  }
  __syncthreads();
  if (threadIdx.x < 32) {
    for (int i = 0; i < count; ++i) {
      wait(empty[i % 2], (i / 2 + 1) % 2);
      __syncwarp();  // a lane that comes to it two phases late would take one for the other
      if (threadIdx.x == 0) copy_box(ring + i % 2 * 8 * kSwizzled, map, 0, i * 8, full[i % 2]);
      if (threadIdx.x == 0) arrive_and_expect(full[i % 2], 8 * 128);
    }
    return;
  }
  float sum = 0;
  for (int i = 0; i < count; ++i) {
    wait(full[i % 2], i / 2 % 2);
    sum += __bfloat162float(ring[i % 2 * 8 * kSwizzled + swizzled_at(3, static_cast<int>(threadIdx.x) % 8)]);
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(empty[i % 2]);
  }
  out[threadIdx.x] = sum;
}

// The first warp waits for two that only arrive, whatever order they run in.
template <int kArriving>
__global__ void pass_on(int* seen) {
  if (threadIdx.x >= 32) {
    seen[threadIdx.x] = 1;
    if (threadIdx.x < 32 * (1 + kArriving)) cuda::arrive_named_barrier(3, 96);
    return;
  }
  named_barrier(3, 96);
  seen[threadIdx.x] = seen[threadIdx.x + 32] + seen[threadIdx.x + 64];
}

TEST_F(EmulatedHopper, ThreadsThatOnlyArriveLetOthersThroughANamedBarrier) {
  for (const Order order : {Order::kForward, Order::kReverse, Order::kShuffled}) {
    set_order(order, 7);
    std::vector<int> seen(96);
    run(1, 96, 64, pass_on<2>, seen.data());
    for (int lane = 0; lane < 32; ++lane) EXPECT_EQ(seen[static_cast<size_t>(lane)], 2);
  }
}

TEST_F(EmulatedHopper, ANamedBarrierThatTooFewComeToIsNoticed) {
  std::vector<int> seen(96);
  EXPECT_DEATH(run(1, 96, 64, pass_on<1>, seen.data()), "named_barrier");
}

TEST_F(EmulatedHopper, ARingOfBoxesStreams) {
  constexpr int kBoxes = 50;
  const auto values = random_values(kBoxes * 8 * kSwizzled, 7);
  const CUtensorMap map = map_of(values, kSwizzled, 8);
  for (const OrderCase& order : kOrders) {
    set_order(order.order, order.seed);
    std::vector<float> out(96);
    run(1, 96, 2 * 8 * 128 + 32, stream_through_ring, map, out.data(), kBoxes + 1, 2);
    for (size_t thread = 32; thread < 96; ++thread) {
      float sum = 0;
      for (size_t i = 0; i < kBoxes; ++i) {
        sum += __bfloat162float(values[(i * 8 + 3) * kSwizzled + thread % 8 * 8]);
      }
      ASSERT_EQ(out[thread], sum);
    }
  }
}

TEST_F(EmulatedHopper, ABarrierThatOthersNeverComeToIsNamed) {
  const auto values = random_values(8 * kSwizzled, 7);
  const CUtensorMap map = map_of(values, kSwizzled, 8);
  std::vector<float> out(96);
  EXPECT_DEATH(run(1, 96, 2 * 8 * 128 + 32, stream_through_ring, map, out.data(), 3, 3), "deadlock");
}

// Eight rows of each of two planes, from `row` on.
__global__ void copy_of_planes(const __grid_constant__ CUtensorMap map, int row, float* out) {
  TROUPE_DYNAMIC_SHARED(memory);
  auto* const tile = reinterpret_cast<__nv_bfloat16*>(memory);
  auto& full = *reinterpret_cast<PhaseBarrier*>(tile + 16 * kSwizzled);
  init_barrier(full, 1);
  fence_barrier_init();
  copy_planes(tile, map, 0, row, full);
  arrive_and_expect(full, 16 * kSwizzled * 2);
  wait(full, 0);
  for (int i = 0; i < 16 * kSwizzled; ++i) {
    const int place = swizzled_at(i / kSwizzled, i % kSwizzled / 8) + i % 8;
    out[i] = __bfloat162float(tile[place]);
  }
}

TEST_F(EmulatedHopper, BoxesOfPlanesLieBehindOneAnother) {
  constexpr uint64_t kPlaneRows = 12;
  const auto values = random_values(2 * kPlaneRows * kSwizzled, 9);
  CUtensorMap map;
  const uint64_t sizes[] = {kSwizzled, kPlaneRows, 2},
                 strides[] = {kSwizzled * 2, kPlaneRows * kSwizzled * 2};
  const uint32_t box[] = {kSwizzled, 8, 2}, steps[] = {1, 1, 1};
  ASSERT_EQ(cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3,
                                   const_cast<__nv_bfloat16*>(values.data()), sizes, strides, box, steps,
                                   CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                   CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
            CUDA_SUCCESS);
  std::vector<float> out(16 * kSwizzled);
  run(1, 1, 16 * 128 + 8, copy_of_planes, map, 8, out.data());
  for (size_t i = 0; i < out.size(); ++i) {
    const size_t row = 8 + i / kSwizzled % 8, plane = i / kSwizzled / 8;
    const bool is_inside = row < kPlaneRows;
    const float value =
        is_inside ? __bfloat162float(values[(plane * kPlaneRows + row) * kSwizzled + i % kSwizzled]) : 0;
    ASSERT_EQ(out[i], value) << i;
  }
}

__global__ void wait_for_nobody() {
  TROUPE_DYNAMIC_SHARED(memory);
  wait(*reinterpret_cast<PhaseBarrier*>(memory), 1);
}

TEST_F(EmulatedHopper, ABarrierThatWasNotMadeEndsTheProcess) {
  EXPECT_DEATH(run(1, 32, 8, wait_for_nobody), "a barrier that was not made");
}

}  // namespace troupe::emulated_hopper_test
