#include "tests/kernels/emulated/hopper.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "tests/kernels/emulated/emulator.h"
#include "tests/kernels/emulated/engine.h"

namespace troupe::emulated {
namespace {

constexpr uint32_t kWholeWarp = ~0u;
constexpr int kWarps = kThreadsMax / kLanes;
constexpr int kWarpsOfGroup = 4;
constexpr int kRowBytes = 128;  // of a tile
constexpr int kRowsOfWarp = 16;
constexpr int kDepth = 16;
constexpr uint32_t kPoison = 0xffffffffu;  // a NaN

std::atomic<bool> are_maps_refused = false;

// A box on its way.
struct Box {
  PhaseBarrier* barrier;
  uint32_t to;  // shared_offset()
  std::vector<unsigned char> rows;
};

// A tile's elements as they were when a product was started.
struct Operand {
  uint64_t descriptor;
  int rows;
  int first_row;
  bool by_columns;
  std::vector<uint16_t> values;  // (rows, kDepth)
};

// Registers that a product under way has: what they will be.
struct Sums {
  std::array<float*, kLanes> registers;
  int count;
  uint32_t group;             // the last that adds to them
  std::vector<float> values;  // (lane, count)
};

struct WarpProducts {
  bool fenced = false;
  uint32_t group = 0;  // not yet committed
  std::vector<Sums> sums;
  std::vector<std::pair<uint32_t, Operand>> operands;  // and their groups
};

// The state of the block that runs.
struct Block {
  uint64_t serial = 0;
  std::vector<Box> boxes;
  std::array<int, 16> arrived{};
  std::array<WarpProducts, kWarps> warps;
};

Block& block() {
  static thread_local Block own;
  const uint64_t serial = Engine::running().block_serial();
  if (own.serial != serial) {
    own = Block();
    own.serial = serial;
  }
  return own;
}

WarpProducts& warp_products() {
  return block().warps[static_cast<size_t>(Engine::running().warp())];
}

// The place of the byte at `linear`: bits 4 to 6 are mixed with bits 7 to 9 (CUtensorMapSwizzle, 128 bytes).
uint32_t swizzled(uint32_t linear) {
  return linear ^ (linear >> 7 & 7) << 4;
}

const Collective kNamedBarrier{"named_barrier", [](const Operands&, uint32_t) {}};
const Collective kPhase{"wait for a barrier's phase", [](const Operands&, uint32_t) {}};

void settle(PhaseBarrier& barrier) {
  if (barrier.missing > 0 || barrier.bytes != 0) return;
  barrier.parity ^= 1u;
  barrier.missing = barrier.arrivals;
  Engine::running().wake(&barrier);
}

void land_boxes(PhaseBarrier& barrier) {
  auto& boxes = block().boxes;
  unsigned char* const shared = dynamic_shared();
  for (Box& box : boxes) {
    if (box.barrier != &barrier) continue;
    for (uint32_t i = 0; i < box.rows.size(); ++i) shared[swizzled(box.to + i)] = box.rows[i];
    barrier.bytes -= static_cast<int32_t>(box.rows.size());
    box.barrier = nullptr;
  }
  std::erase_if(boxes, [](const Box& box) { return box.barrier == nullptr; });
  settle(barrier);
}

void check_made(const PhaseBarrier& barrier, const Place& where) {
  if (barrier.arrivals == 0 || barrier.arrivals > static_cast<uint32_t>(kThreadsMax)) {
    fail_kernel("a barrier that was not made", where);
  }
}

// --- products

std::vector<uint16_t> read_tile(const Operand& operand) {
  const auto field = [&](int shift) {
    return static_cast<uint32_t>(operand.descriptor >> shift & 0x3fff) << 4;
  };
  const uint32_t start = field(0), leading = field(16), stride = field(32);
  const unsigned char* const shared = dynamic_shared();
  std::vector<uint16_t> values;
  values.reserve(static_cast<size_t>(operand.rows) * kDepth);
  for (int i = 0; i < operand.rows; ++i) {
    for (int k = 0; k < kDepth; ++k) {
      const int row = operand.first_row + i;
      const int line = operand.by_columns ? k : row;  // of 128 bytes
      const int column = operand.by_columns ? row : k;
      const auto linear = start + static_cast<uint32_t>(line / 8) * stride +
                          static_cast<uint32_t>(line % 8 * kRowBytes + column % 64 * 2) +
                          static_cast<uint32_t>(column / 64) * leading;
      uint16_t value;
      std::memcpy(&value, shared + swizzled(linear), sizeof(value));
      values.push_back(value);
    }
  }
  return values;
}

float float_of(uint32_t bfloat16) {
  return std::bit_cast<float>(bfloat16 << 16);
}

// The warp's 16 rows of the left operand.
std::vector<float> left_rows(const Operands& operands, WarpProducts& warp) {
  std::vector<float> rows(size_t{kRowsOfWarp} * kDepth);
  const auto& first = *static_cast<const TiledGemm*>(operands[0]);
  if (first.a_registers == nullptr) {
    Operand operand{first.a, kRowsOfWarp, Engine::running().warp() % kWarpsOfGroup * kRowsOfWarp, false, {}};
    operand.values = read_tile(operand);
    std::transform(operand.values.begin(), operand.values.end(), rows.begin(), float_of);
    warp.operands.emplace_back(warp.group, std::move(operand));
    return rows;
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    const uint32_t* const a = static_cast<const TiledGemm*>(operands[static_cast<size_t>(lane)])->a_registers;
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + i % 2 * 8, column = lane % 4 * 2 + i / 2 * 8;
      rows[static_cast<size_t>(row * kDepth + column)] = float_of(a[i] & 0xffff);
      rows[static_cast<size_t>(row * kDepth + column + 1)] = float_of(a[i] >> 16);
    }
  }
  return rows;
}

// The sums under way in these registers, or new ones with their present values.
Sums& sums_of(const Operands& operands, WarpProducts& warp) {
  const auto& first = *static_cast<const TiledGemm*>(operands[0]);
  const auto found = std::find_if(warp.sums.begin(), warp.sums.end(),
                                  [&](const Sums& sums) { return sums.registers[0] == first.sums; });
  if (found != warp.sums.end()) return *found;
  Sums sums{{}, first.columns / 2, 0, {}};
  for (int lane = 0; lane < kLanes; ++lane) {
    float* const registers = static_cast<const TiledGemm*>(operands[static_cast<size_t>(lane)])->sums;
    sums.registers[static_cast<size_t>(lane)] = registers;
    sums.values.insert(sums.values.end(), registers, registers + sums.count);
    std::fill_n(registers, sums.count, std::bit_cast<float>(kPoison));
  }
  return warp.sums.emplace_back(std::move(sums));
}

void multiply(const Operands& operands, uint32_t) {
  WarpProducts& warp = warp_products();
  const auto& first = *static_cast<const TiledGemm*>(operands[0]);
  for (const void* operand : operands) {
    const auto& other = *static_cast<const TiledGemm*>(operand);
    if (other.a != first.a || other.b != first.b) fail_kernel("lanes that disagree about a product's tiles");
  }
  if (!warp.fenced) fail_kernel("a product without fence_products() behind the last wait");
  const bool by_columns = first.a_registers != nullptr;
  const std::vector<float> a = left_rows(operands, warp);
  Operand right{first.b, first.columns, 0, by_columns, {}};
  right.values = read_tile(right);
  Sums& sums = sums_of(operands, warp);
  sums.group = warp.group;
  // Columns of the depth one behind the other: the loop over the product's columns is the one to vectorise.
  const auto columns = static_cast<size_t>(first.columns);
  std::vector<float> b(kDepth * columns), row_sums(columns);
  for (size_t n = 0; n < columns; ++n) {
    for (size_t k = 0; k < kDepth; ++k) b[k * columns + n] = float_of(right.values[n * kDepth + k]);
  }
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
    for_each_sum([&](const float& before, float& sum) { sum = first.adds ? before : 0; });
    for (size_t k = 0; k < kDepth; ++k) {
      const float factor = a[static_cast<size_t>(row) * kDepth + k];
      for (size_t n = 0; n < columns; ++n) row_sums[n] += factor * b[k * columns + n];
    }
    for_each_sum([&](float& place, const float& sum) { place = sum; });
  }
  warp.operands.emplace_back(warp.group, std::move(right));
}

const Collective kMultiply{"a warpgroup's product", multiply};
const Collective kFence{"fence_products", [](const Operands&, uint32_t) { warp_products().fenced = true; }};
const Collective kCommit{"commit_products", [](const Operands&, uint32_t) { ++warp_products().group; }};
const Collective kWait{
    "wait_products", [](const Operands& operands, uint32_t) {
      WarpProducts& warp = warp_products();
      const int64_t landed_before = int64_t{warp.group} - *static_cast<const int*>(operands[0]);
      for (const auto& [group, operand] : warp.operands) {
        if (group < landed_before && read_tile(operand) != operand.values) {
          fail_kernel("a tile that changed while a product read it");
        }
      }
      std::erase_if(warp.operands, [&](const auto& operand) { return operand.first < landed_before; });
      for (const Sums& sums : warp.sums) {
        if (sums.group >= landed_before) continue;
        for (size_t lane = 0; lane < kLanes; ++lane) {
          for (int i = 0; i < sums.count; ++i) {
            float& place = sums.registers[lane][i];
            if (std::bit_cast<uint32_t>(place) != kPoison) {
              fail_kernel("registers that were written while a product had them");
            }
            place = sums.values[lane * static_cast<size_t>(sums.count) + static_cast<size_t>(i)];
          }
        }
      }
      std::erase_if(warp.sums, [&](const Sums& sums) { return sums.group < landed_before; });
      warp.fenced = false;
    }};

}  // namespace

void set_tensor_maps_refused(bool refused) {
  are_maps_refused = refused;
}

uint32_t shared_offset(const void* pointer) {
  return static_cast<uint32_t>(static_cast<const unsigned char*>(pointer) - dynamic_shared());
}

void named_barrier(int id, int threads, const Place& where) {
  int& arrived = block().arrived[static_cast<size_t>(id)];
  if (++arrived == threads) {
    arrived = 0;
    Engine::running().wake(&arrived);
  } else {
    Engine::running().wait_for(&arrived, kNamedBarrier, where);
  }
}

void init_phases(PhaseBarrier& barrier, int arrivals) {
  const auto count = static_cast<uint32_t>(arrivals);
  barrier = {count & 0xffff, count & 0x7fff, 0, 0};
}

void arrive_at(PhaseBarrier& barrier, int bytes, const Place& where) {
  check_made(barrier, where);
  if (barrier.missing == 0) fail_kernel("an arrival more than the barrier was made for", where);
  barrier.bytes += bytes;
  --barrier.missing;
  if (Engine::running().is_awaited(&barrier)) land_boxes(barrier);
  settle(barrier);
}

void wait_for_phase(PhaseBarrier& barrier, int parity, const Place& where) {
  check_made(barrier, where);
  land_boxes(barrier);
  while (barrier.parity == static_cast<uint32_t>(parity)) Engine::running().wait_for(&barrier, kPhase, where);
}

void copy_to_tile(void* shared, const CUtensorMap& map, int column, int row, PhaseBarrier& barrier,
                  const Place& where) {
  check_made(barrier, where);
  Box box{&barrier, shared_offset(shared), {}};
  if (box.to % kRowBytes != 0) fail_kernel("a box to a place that is not aligned to 128 bytes", where);
  for (uint32_t r = 0; r < map.box_rows; ++r) {
    for (uint32_t c = 0; c < map.box_columns * 2; ++c) {
      const auto at_row = static_cast<uint64_t>(row) + r, at = static_cast<uint64_t>(column) * 2 + c;
      const bool inside = at_row < map.rows && at < map.columns * 2;
      box.rows.push_back(inside ? map.data[at_row * map.row_bytes + at] : 0);
    }
  }
  std::memset(shared, 0xFF, box.rows.size());
  block().boxes.push_back(std::move(box));
  if (Engine::running().is_awaited(&barrier)) land_boxes(barrier);
}

void fence_products(const Place& where) {
  warp_collective(kFence, kWholeWarp, nullptr, where);
}
void commit_products(const Place& where) {
  warp_collective(kCommit, kWholeWarp, nullptr, where);
}
void wait_products(int groups_left, const Place& where) {
  warp_collective(kWait, kWholeWarp, &groups_left, where);
}
void multiply_tiles(const TiledGemm& product, const Place& where) {
  TiledGemm operand = product;
  warp_collective(kMultiply, kWholeWarp, &operand, where);
}

}  // namespace troupe::emulated

CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType, cuuint32_t rank, void* data,
                                const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box,
                                const cuuint32_t* steps, CUtensorMapInterleave, CUtensorMapSwizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  constexpr cuuint32_t kBoxMax = 256;
  const bool taken = rank == 2 && reinterpret_cast<uintptr_t>(data) % 16 == 0 && strides[0] % 16 == 0 &&
                     sizes[0] > 0 && sizes[1] > 0 && sizes[0] <= cuuint64_t{1} << 32 &&
                     sizes[1] <= cuuint64_t{1} << 32 && box[0] * 2 == 128 && box[1] > 0 &&
                     box[1] <= kBoxMax && steps[0] == 1 && steps[1] == 1 &&
                     reinterpret_cast<uintptr_t>(map) % 64 == 0;
  if (!taken || troupe::emulated::are_maps_refused) return CUDA_ERROR_INVALID_VALUE;
  *map = {static_cast<const unsigned char*>(data), sizes[0], sizes[1], strides[0], box[0], box[1]};
  return CUDA_SUCCESS;
}
