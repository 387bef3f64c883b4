#pragma once

// Products of warpgroups that are under way, a warp's share of them.

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "tests/kernels/emulated/collectives.h"

namespace troupe::emulated {

inline constexpr int kTileDepth = 16;  // of a product

// 16 bytes of a tile: the swizzle keeps them together.
using TileChunk = std::array<uint16_t, 8>;

// A tile as it was when a product was started.
struct TileOperand {
  uint64_t descriptor;
  int rows;
  int first_row;
  bool by_columns;
  std::vector<TileChunk> chunks = {};  // for_each_chunk()'s
};

// The lanes' registers that a product under way has, full of 0xFF meanwhile, and what they are to be at the
// wait: its sums, or its left operand as it was.
struct HeldRegisters {
  std::array<uint32_t*, kLanes> registers;
  int count;
  uint32_t group = 0;                 // the last that uses them
  std::vector<uint32_t> values = {};  // (lane, count)
};

struct WarpProducts {
  bool fenced = false;
  uint32_t group = 0;  // not yet committed
  std::vector<HeldRegisters> held;
  std::vector<std::pair<uint32_t, TileOperand>> operands;  // and their groups
};

}  // namespace troupe::emulated
