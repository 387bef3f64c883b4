#pragma once

// The state that the functions of hopper.h keep of the block that runs.

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "tests/kernels/emulated/async_view.h"
#include "tests/kernels/emulated/hopper.h"
#include "tests/kernels/emulated/host.h"
#include "tests/kernels/emulated/products.h"

namespace troupe::emulated {

class Engine;

inline constexpr int kWarps = kThreadsMax / kLanes;
inline constexpr int kWarpsOfGroup = 4;

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
  std::vector<Box> boxes;
  std::array<int, 16> arrived{};  // at named barriers
  std::array<WarpProducts, kWarps> products;
};

// Made by the block's first use of it.
HopperBlock& hopper_block();
HopperBlock* hopper_block_if_made();

// The running warp's.
WarpProducts& warp_products();

// The place of the byte at `linear`: bits 4 to 6 are mixed with bits 7 to 9 (CUtensorMapSwizzle, 128 bytes).
inline uint32_t swizzled(uint32_t linear) {
  return linear ^ (linear >> 7 & 7) << 4;
}

}  // namespace troupe::emulated
