#pragma once

// The state that the functions of hopper.h keep of the block that runs.

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "tests/kernels/emulated/hopper/async_view.h"
#include "tests/kernels/emulated/hopper/hopper.h"
#include "tests/kernels/emulated/hopper/products.h"
#include "tests/kernels/emulated/hopper/warpgroups.h"

namespace troupe::emulated {

class Engine;

// A box on its way.
struct Box {
  PhaseBarrier* barrier;
  uint32_t to;  // shared_offset()
  std::vector<unsigned char> rows;
};

struct HopperBlock {
  const Engine* engine = nullptr;
  uint64_t serial = 0;  // Engine::block_serial()
  AsyncView view;
  RegisterPool registers;
  std::vector<Box> boxes;
  std::array<int, 16> arrived{};  // at named barriers
  std::array<WarpProducts, kWarps> products;
  std::array<Warpgroup, kWarps / kWarpsOfGroup> groups;
  std::vector<int> commits;  // warpgroups, as their first warps committed products
};

// Made by the block's first use of it.
HopperBlock& hopper_block();
HopperBlock* hopper_block_if_made();

// The running warp, whose lanes are all here.
WarpProducts& warp_products();
void come_to(const AlignedInstruction& instruction);
void note_commit();

// The place of the byte at `linear`: bits 4 to 6 are mixed with bits 7 to 9 (CUtensorMapSwizzle, 128 bytes).
inline uint32_t swizzled(uint32_t linear) {
  return linear ^ (linear >> 7 & 7) << 4;
}

}  // namespace troupe::emulated
