// The instructions of kernels/cuda/device/ptx.cuh: matrix fragments and asynchronous copies.

#include <array>
#include <bit>
#include <cstring>

#include "kernels/cuda/device/ptx.cuh"
#include "tests/kernels/emulated/engine.h"
#include "tests/kernels/emulated/hopper/hopper.h"

namespace troupe::emulated {
namespace {

constexpr int kM = 16;
constexpr int kN = 8;
constexpr int kK = 16;

struct Multiplication {
  float* d;
  const uint32_t* a;
  const uint32_t* b;
};

// A register of two bfloat16: the element of the lower index in the lower half.
void unpack(uint32_t pair, float* out) {
  out[0] = std::bit_cast<float>(pair << 16);
  out[1] = std::bit_cast<float>(pair & 0xffff0000u);
}

// The lane's place in every fragment: its row (for B: column) and its first of two columns (for B: rows).
struct Fragment {
  explicit Fragment(int lane) : row(lane / 4), column(lane % 4 * 2) {}
  int row;
  int column;
};

// Gathers the fragments of the lanes, multiplies, and gives each lane its own. Products of two bfloat16 are
// exact in float; the sum runs over k in order, in float, which the device does not promise either.
void multiply_fragments(const Operands& operands, uint32_t) {
  float a[kM][kK];
  float b[kN][kK];
  float d[kN][kM];  // columns: the loop over m is the one to vectorise
  for (int lane = 0; lane < kLanes; ++lane) {
    const auto& own = *static_cast<const Multiplication*>(operands[static_cast<size_t>(lane)]);
    const Fragment at(lane);
    unpack(own.a[0], &a[at.row][at.column]);
    unpack(own.a[1], &a[at.row + 8][at.column]);
    unpack(own.a[2], &a[at.row][at.column + 8]);
    unpack(own.a[3], &a[at.row + 8][at.column + 8]);
    unpack(own.b[0], &b[at.row][at.column]);
    unpack(own.b[1], &b[at.row][at.column + 8]);
    for (int i = 0; i < 4; ++i) d[at.column + i % 2][at.row + i / 2 * 8] = own.d[i];
  }
  float a_columns[kK][kM];
  for (int k = 0; k < kK; ++k) {
    for (int m = 0; m < kM; ++m) a_columns[k][m] = a[m][k];
  }
  for (int n = 0; n < kN; ++n) {
    for (int k = 0; k < kK; ++k) {
      for (int m = 0; m < kM; ++m) d[n][m] += a_columns[k][m] * b[n][k];
    }
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    const auto& own = *static_cast<const Multiplication*>(operands[static_cast<size_t>(lane)]);
    const Fragment at(lane);
    for (int i = 0; i < 4; ++i) own.d[i] = d[at.column + i % 2][at.row + i / 2 * 8];
  }
}

constexpr int kRows = 8;  // of a matrix that ldmatrix loads, each of 8 elements
using Row = std::array<uint16_t, kRows>;

struct Load {
  Row row;  // read when the lane came: stores of other lanes are ordered before it by a barrier or not at all
  uint32_t* registers;
};

template <int matrices, bool transposed>
void load_fragments(const Operands& operands, uint32_t) {
  const auto row_of = [&](int lane) -> const Row& {
    return static_cast<const Load*>(operands[static_cast<size_t>(lane)])->row;
  };
  for (int lane = 0; lane < kLanes; ++lane) {
    const auto& own = *static_cast<const Load*>(operands[static_cast<size_t>(lane)]);
    const Fragment at(lane);
    const auto row = static_cast<size_t>(at.row);
    const auto column = static_cast<size_t>(at.column);
    for (int matrix = 0; matrix < matrices; ++matrix) {
      const int first = matrix * kRows;
      const uint32_t low = transposed ? row_of(first + at.column)[row] : row_of(first + at.row)[column];
      const uint32_t high =
          transposed ? row_of(first + at.column + 1)[row] : row_of(first + at.row)[column + 1];
      own.registers[matrix] = low | high << 16;
    }
  }
}

const Collective kMultiply{"mma_m16n8k16_bf16", multiply_fragments};
const Collective kLoad4{"ldmatrix_x4", load_fragments<4, false>};
const Collective kLoad4Transposed{"ldmatrix_x4_trans", load_fragments<4, true>};
const Collective kLoad2{"ldmatrix_x2", load_fragments<2, false>};
const Collective kLoad2Transposed{"ldmatrix_x2_trans", load_fragments<2, true>};

constexpr uint32_t kWholeWarp = ~0u;

bool is_aligned(const void* address) {
  return reinterpret_cast<uintptr_t>(address) % 16 == 0;
}

}  // namespace

void multiply(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], const Place& where) {
  Multiplication operand{d, a, b};
  warp_collective(kMultiply, kWholeWarp, &operand, where);
}

void load_matrices(uint32_t* registers, const void* row, int matrices, bool transposed, const Place& where) {
  Load operand{{}, registers};
  if (lane_index() < matrices * kRows) {
    if (!is_aligned(row)) fail_kernel("ldmatrix from a row that is not aligned to 16 bytes", where);
    std::memcpy(operand.row.data(), row, sizeof(operand.row));
  }
  const Collective& kind =
      matrices == 4 ? (transposed ? kLoad4Transposed : kLoad4) : (transposed ? kLoad2Transposed : kLoad2);
  warp_collective(kind, kWholeWarp, &operand, where);
}

void copy_async(void* shared, const void* global, bool valid, const Place& where) {
  if (!is_aligned(shared) || (valid && !is_aligned(global))) {
    fail_kernel("cp_async_16 of addresses that are not aligned to 16 bytes", where);
  }
  Thread& thread = Engine::running().thread();
  Copy& copy = thread.copies.emplace_back(Copy{shared, {}, thread.groups});
  // Read now, while the address sanitizer can still name the line; written at the wait.
  if (valid) std::memcpy(&copy.bytes, global, sizeof(copy.bytes));
  std::memset(shared, 0xFF, sizeof(copy.bytes));
}

void commit_copies() {
  ++Engine::running().thread().groups;
}

void wait_for_copies(int groups_left) {
  Thread& thread = Engine::running().thread();
  auto& copies = thread.copies;
  const int64_t landed_before = int64_t{thread.groups} - groups_left;
  for (; thread.copies_begin < copies.size() && copies[thread.copies_begin].group < landed_before;
       ++thread.copies_begin) {
    const Copy& copy = copies[thread.copies_begin];
    std::memcpy(copy.shared, &copy.bytes, sizeof(copy.bytes));
    note_landed(copy.shared, copy.bytes);
  }
  // A pipeline's copies in flight move to the front now and then, in memory that stays.
  if (thread.copies_begin * 2 >= copies.size()) {
    copies.erase(copies.begin(), copies.begin() + static_cast<std::ptrdiff_t>(thread.copies_begin));
    thread.copies_begin = 0;
  }
}

}  // namespace troupe::emulated
