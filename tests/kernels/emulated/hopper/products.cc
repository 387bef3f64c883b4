// wgmma on the CPU: each warp's share by itself.

#include "tests/kernels/emulated/hopper/products.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>

#include "tests/kernels/emulated/emulator.h"
#include "tests/kernels/emulated/engine.h"
#include "tests/kernels/emulated/hopper/hopper_block.h"

namespace troupe::emulated {
namespace {

constexpr uint32_t kEveryLane = ~0u;
constexpr int kRowBytes = 128;  // of a tile
constexpr int kRowsOfWarp = 16;
constexpr int kChunkElements = static_cast<int>(TileChunk().size());
constexpr int kLeftRegisters = 4;
constexpr uint32_t kPoison = 0xffffffffu;  // a NaN, and two of bfloat16

// A lane's.
struct Asked {
  TiledGemm product;
  Place where;
};
const Asked& asked_by(const Operands& operands, size_t lane) {
  return *static_cast<const Asked*>(operands[lane]);
}

// Visits the places of the tile's chunks: row by row, or, by columns, depth by depth.
template <class Visit>
void for_each_chunk(const TileOperand& operand, const Visit& visit) {
  const auto field = [&](int shift) {
    return static_cast<uint32_t>(operand.descriptor >> shift & 0x3fff) << 4;
  };
  const uint32_t start = field(0), leading = field(16), stride = field(32);
  const int lines = operand.by_columns ? kTileDepth : operand.rows;  // of 128 bytes
  const int columns = operand.by_columns ? operand.rows : kTileDepth;
  for (int i = 0; i < lines; ++i) {
    const int line = operand.by_columns ? i : operand.first_row + i;
    for (int column = 0; column < columns; column += kChunkElements) {
      visit(swizzled(start + static_cast<uint32_t>(line / 8) * stride +
                     static_cast<uint32_t>(line % 8 * kRowBytes + column % 64 * 2) +
                     static_cast<uint32_t>(column / 64) * leading));
    }
  }
}

void read_tile(TileOperand& operand, const Place& where) {
  const unsigned char* const shared = dynamic_shared();
  const unsigned char* const view = hopper_block().view.bytes();
  operand.chunks.reserve(static_cast<size_t>(operand.rows * kTileDepth / kChunkElements));
  for_each_chunk(operand, [&](uint32_t place) {
    TileChunk& chunk = operand.chunks.emplace_back();
    std::memcpy(chunk.data(), view + place, sizeof(chunk));
    if (std::memcmp(chunk.data(), shared + place, sizeof(chunk)) != 0)
      fail_kernel("a product of bytes that no fence_async_proxy() of the thread that stored them covers",
                  where);
  });
}

bool has_changed(const TileOperand& operand) {
  const unsigned char* const shared = dynamic_shared();
  const TileChunk* chunk = operand.chunks.data();
  bool changed = false;
  for_each_chunk(operand, [&](uint32_t place) {
    changed |= std::memcmp(chunk++, shared + place, sizeof(TileChunk)) != 0;
  });
  return changed;
}

float float_of(uint32_t bfloat16) {
  return std::bit_cast<float>(bfloat16 << 16);
}

// The registers that products under way have already, or new ones with their present values.
HeldRegisters& hold(uint32_t* (*registers_of)(const TiledGemm&), int count, const Operands& operands) {
  WarpProducts& warp = warp_products();
  auto held = std::find_if(warp.held.begin(), warp.held.end(), [&](const HeldRegisters& other) {
    return other.registers[0] == registers_of(asked_by(operands, 0).product);
  });
  if (held == warp.held.end()) {
    held = warp.held.insert(held, {{}, count});
    for (size_t lane = 0; lane < kLanes; ++lane) {
      uint32_t* const registers = registers_of(asked_by(operands, lane).product);
      held->registers[lane] = registers;
      held->values.insert(held->values.end(), registers, registers + count);
      std::fill_n(registers, count, kPoison);
    }
  }
  held->group = warp.group;
  return *held;
}

// The warp's 16 rows of the left operand.
std::vector<float> left_rows(const Operands& operands) {
  std::vector<float> rows(size_t{kRowsOfWarp} * kTileDepth);
  const auto& [product, where] = asked_by(operands, 0);
  if (product.a_registers == nullptr) {
    const int warp = Engine::running().warp() % kWarpsOfGroup;
    TileOperand operand{product.a, kRowsOfWarp, warp * kRowsOfWarp, false};
    read_tile(operand, where);
    float* row = rows.data();
    for (const TileChunk& chunk : operand.chunks)
      row = std::transform(chunk.begin(), chunk.end(), row, float_of);
    warp_products().operands.emplace_back(warp_products().group, std::move(operand));
    return rows;
  }
  const HeldRegisters& held =
      hold([](const TiledGemm& asked) { return asked.a_registers; }, kLeftRegisters, operands);
  for (int lane = 0; lane < kLanes; ++lane) {
    const uint32_t* const a = held.values.data() + lane * kLeftRegisters;
    for (int i = 0; i < kLeftRegisters; ++i) {
      const int row = lane / 4 + i % 2 * 8, column = lane % 4 * 2 + i / 2 * 8;
      rows[static_cast<size_t>(row * kTileDepth + column)] = float_of(a[i] & 0xffff);
      rows[static_cast<size_t>(row * kTileDepth + column + 1)] = float_of(a[i] >> 16);
    }
  }
  return rows;
}

// The right operand, (depth, columns): the loop over the product's columns is the one to vectorise.
std::vector<float> right_columns(const TileOperand& right) {
  const auto columns = static_cast<size_t>(right.rows);
  std::vector<float> b(kTileDepth * columns);
  if (right.by_columns) {
    float* out = b.data();
    for (const TileChunk& chunk : right.chunks)
      out = std::transform(chunk.begin(), chunk.end(), out, float_of);
    return b;
  }
  const TileChunk* chunk = right.chunks.data();
  for (size_t n = 0; n < columns; ++n) {
    for (size_t k = 0; k < kTileDepth; k += kChunkElements, ++chunk) {
      for (size_t i = 0; i < kChunkElements; ++i) b[(k + i) * columns + n] = float_of((*chunk)[i]);
    }
  }
  return b;
}

// sums += a b, or = where not `adds`: a lane's are those of mma_m16n8k16, 8 columns after 8 columns.
void add_product(const std::vector<float>& a, const std::vector<float>& b, bool adds, HeldRegisters& sums) {
  const size_t columns = b.size() / kTileDepth;
  std::vector<float> row_sums(columns);
  for (int row = 0; row < kRowsOfWarp; ++row) {
    const auto for_each_sum = [&](const auto& visit) {
      for (int lane = row % 8 * 4; lane < row % 8 * 4 + 4; ++lane) {
        for (int i = row / 8 * 2; i < sums.count; i += 4) {
          for (int c = 0; c < 2; ++c) {
            const auto column = static_cast<size_t>(i / 4 * 8 + lane % 4 * 2 + c);
            visit(sums.values[static_cast<size_t>(lane * sums.count + i + c)], row_sums[column]);
          }
        }
      }
    };
    for_each_sum([&](uint32_t before, float& sum) { sum = adds ? std::bit_cast<float>(before) : 0; });
    for (size_t k = 0; k < kTileDepth; ++k) {
      const float factor = a[static_cast<size_t>(row) * kTileDepth + k];
      for (size_t n = 0; n < columns; ++n) row_sums[n] += factor * b[k * columns + n];
    }
    for_each_sum([&](uint32_t& place, float sum) { place = std::bit_cast<uint32_t>(sum); });
  }
}

void multiply(const Operands& operands, uint32_t) {
  WarpProducts& warp = warp_products();
  const auto& [first, where] = asked_by(operands, 0);
  for (size_t lane = 0; lane < kLanes; ++lane) {
    const TiledGemm& other = asked_by(operands, lane).product;
    if (other.a != first.a || other.b != first.b)
      fail_kernel("lanes that disagree about a product's tiles", where);
  }
  come_to({"a product", where, {first.a, first.b}});
  if (!warp.fenced) fail_kernel("a product without fence_products() behind the last wait", where);
  const std::vector<float> a = left_rows(operands);
  TileOperand right{first.b, first.columns, 0, first.a_registers != nullptr};
  read_tile(right, where);
  HeldRegisters& sums = hold([](const TiledGemm& asked) { return reinterpret_cast<uint32_t*>(asked.sums); },
                             first.columns / 2, operands);
  add_product(a, right_columns(right), first.adds, sums);
  warp.operands.emplace_back(warp.group, std::move(right));
}

struct Wait {
  int groups_left;
  Place where;
};

void wait(const Operands& operands, uint32_t) {
  WarpProducts& warp = warp_products();
  const auto& [groups_left, where] = *static_cast<const Wait*>(operands[0]);
  come_to({"wait_products", where, {static_cast<uint64_t>(groups_left), 0}});
  const int64_t landed_before = int64_t{warp.group} - groups_left;
  for (const auto& [group, operand] : warp.operands) {
    if (group < landed_before && has_changed(operand))
      fail_kernel("a tile that changed while a product read it", where);
  }
  std::erase_if(warp.operands, [&](const auto& operand) { return operand.first < landed_before; });
  for (const HeldRegisters& held : warp.held) {
    if (held.group >= landed_before) continue;
    const uint32_t* value = held.values.data();
    for (uint32_t* const registers : held.registers) {
      for (uint32_t& place : std::span(registers, static_cast<size_t>(held.count))) {
        if (place != kPoison) fail_kernel("registers that were written while a product had them", where);
        place = *value++;
      }
    }
  }
  std::erase_if(warp.held, [&](const HeldRegisters& held) { return held.group < landed_before; });
  warp.fenced = false;
}

const Collective kMultiplyTiles{"a warpgroup's product", multiply};
const Collective kFence{"fence_products", [](const Operands& operands, uint32_t) {
                          come_to({"fence_products", *static_cast<const Place*>(operands[0])});
                          warp_products().fenced = true;
                        }};
const Collective kCommit{"commit_products", [](const Operands& operands, uint32_t) {
                           come_to({"commit_products", *static_cast<const Place*>(operands[0])});
                           ++warp_products().group;
                           note_commit();
                         }};
const Collective kWait{"wait_products", wait};

}  // namespace

void fence_products(const Place& where) {
  Place operand = where;
  warp_collective(kFence, kEveryLane, &operand, where);
}
void commit_products(const Place& where) {
  Place operand = where;
  warp_collective(kCommit, kEveryLane, &operand, where);
}
void wait_products(int groups_left, const Place& where) {
  Wait operand{groups_left, where};
  warp_collective(kWait, kEveryLane, &operand, where);
}
void multiply_tiles(const TiledGemm& product, const Place& where) {
  Asked operand{product, where};
  warp_collective(kMultiplyTiles, kEveryLane, &operand, where);
}

}  // namespace troupe::emulated
