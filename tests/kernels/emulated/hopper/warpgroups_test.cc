// Instructions of a whole warpgroup, and the registers of a block.

#include <cuda_runtime.h>

#include "kernels/cuda/device/hopper.cuh"
#include "tests/kernels/emulated/emulator_testing.h"

namespace troupe::warpgroups_test {

using namespace emulator_testing;
using namespace cuda;

// Three warpgroups of 168 registers a thread: one gives what the two others take, and those come first.
template <int kGiven, int kTaken>
__global__ void share_out() {
  if (threadIdx.x >= 2 * kWarpgroup) {
    give_registers<kGiven>();
  } else {
    take_registers<kTaken>();
  }
}

using Warpgroups = EmulatorTest;

TEST_F(Warpgroups, TakeWhatAnotherGave) {
  for (const OrderCase& order : kOrders) {
    set_order(order.order, order.seed);
    run(2, 3 * kWarpgroup, 0, share_out<40, 232>);
  }
}

TEST_F(Warpgroups, ThatTakeMoreThanIsLeftWaitForever) {
  EXPECT_DEATH((run(1, 3 * kWarpgroup, 0, share_out<48, 232>)), "deadlock.*\n.*the block has too few left");
  EXPECT_DEATH((run(1, 3 * kWarpgroup, 0, share_out<40, 240>)), "deadlock.*\n.*the block has too few left");
}

TEST_F(Warpgroups, DoNotTakeFewerOrGiveMoreThanTheyHave) {
  EXPECT_DEATH((run(1, 3 * kWarpgroup, 0, share_out<40, 160>)), "take_registers of fewer than the warp has");
  EXPECT_DEATH((run(1, 3 * kWarpgroup, 0, share_out<176, 232>)), "give_registers of more than the warp has");
}

enum class Part { kAll, kOneWarpLess, kOneWarpOtherwise, kOneWarpElsewhere, kOneWarpTwice, kOneLaneLess };

template <Part kPart>
__global__ void give_in_part() {
  const unsigned warp = threadIdx.x / 32;
  if (kPart == Part::kOneWarpLess && warp == 2) return;
  if (kPart == Part::kOneLaneLess && threadIdx.x == 70) return;
  if (kPart == Part::kOneWarpOtherwise && warp == 2) {
    fence_products();
    return;
  }
  if (kPart == Part::kOneWarpElsewhere && warp == 2) {
    give_registers<40>();
    return;
  }
  give_registers<40>();
  if (kPart == Part::kOneWarpTwice && warp == 2) give_registers<40>();
}

TEST_F(Warpgroups, AreInStep) {
  for (const OrderCase& order : kOrders) {
    set_order(order.order, order.seed);
    run(2, 2 * kWarpgroup, 0, give_in_part<Part::kAll>);
  }
}

TEST_F(Warpgroups, ThatAreNotInStepEndTheProcess) {
  const auto only = "give_registers, to which only 3 of the warpgroup's 4 warps came,";
  EXPECT_DEATH(run(1, kWarpgroup, 0, give_in_part<Part::kOneWarpLess>), only);
  EXPECT_DEATH(run(1, kWarpgroup, 0, give_in_part<Part::kOneWarpOtherwise>),
               "fence_products where another warp of the warpgroup has give_registers");
  EXPECT_DEATH(run(1, kWarpgroup, 0, give_in_part<Part::kOneWarpElsewhere>),
               "give_registers where another warp of the warpgroup has give_registers");
  EXPECT_DEATH(run(1, kWarpgroup, 0, give_in_part<Part::kOneWarpTwice>),
               "give_registers, to which only 1 of the warpgroup's 4 warps came,");
  EXPECT_DEATH(run(1, kWarpgroup, 0, give_in_part<Part::kOneLaneLess>), "lanes which have ended|deadlock");
  EXPECT_DEATH(run(1, 96, 0, give_in_part<Part::kAll>), "a warpgroup of less than four warps");
}

// Products of different tiles by the warps of a warpgroup.
__global__ void multiply_apart() {
  TROUPE_DYNAMIC_SHARED(memory);
  float sums[16][4];
  fence_products();
  const uint64_t tile = tile_descriptor(memory, 1024);
  multiply_tiles(sums, tile, advanced(tile, threadIdx.x >= 64 ? 32 : 0), false);
  commit_products();
  wait_products<0>();
}

TEST_F(Warpgroups, MultiplyTheSameTiles) {
  EXPECT_DEATH(run(1, kWarpgroup, 128 * 128, multiply_apart), "a product where another warp.*has a product");
}

}  // namespace troupe::warpgroups_test
