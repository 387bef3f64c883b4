#pragma once

// The base of kernels/cuda/device/hopper.cuh on the CPU. As elsewhere, behaviour that the device leaves open
// is made to differ:
//   - boxes land when a thread waits for their barrier; until then their place is full of 0xFF;
//   - the sums of a product, and a left operand in registers, are NaN until it is waited for, and the tiles
//     it reads must stay what they were. Such registers are variables that live until then.
// Wrong use ends the process: a barrier that was not made or has too many arrivals, tiles that are not
// aligned, registers or tiles touched while a product has them, a product without a fence behind the last
// wait; a product of bytes that are not fenced, and a copy to a barrier that is not (async_view.h); a
// warpgroup that is not in step, and more registers than a block has (warpgroups.h).

#include <cuda.h>

#include <cstdint>

#include "tests/kernels/emulated/collectives.h"
#include "tests/kernels/emulated/vectors.h"

namespace troupe::emulated {

struct alignas(8) PhaseBarrier {
  uint32_t arrivals : 16;  // of a phase
  uint32_t missing : 15;
  uint32_t parity : 1;  // of the phase under way
  int32_t bytes;        // announced and not yet there
};

// Offset from the begin of the block's dynamic shared memory.
uint32_t shared_offset(const void* pointer);

void named_barrier(int id, int threads, const Place& where);
void arrive_named_barrier(int id, int threads);
void init_phases(PhaseBarrier& barrier, int arrivals);
void arrive_at(PhaseBarrier& barrier, int bytes, const Place& where);
void wait_for_phase(PhaseBarrier& barrier, int parity, const Place& where);
void fence_barriers();
// The first element of a box.
struct Corner {
  int column, row, plane = 0;
};
void copy_to_tile(void* shared, const CUtensorMap& map, const Corner& corner, PhaseBarrier& barrier,
                  const Place& where);

void fence_stores();
void store_to_tile(void* shared, const uint4& value, const Place& where);
// A cp.async of the running thread has landed.
void note_landed(const void* shared, const uint4& value);

void fence_products(const Place& where);
void commit_products(const Place& where);
void wait_products(int groups_left, const Place& where);

// One lane's of a product of 64 rows by `columns`, 16 deep.
struct TiledGemm {
  float* sums;  // the lane's: (columns / 8, 4)
  int columns;
  uint32_t* a_registers = nullptr;  // or, where null, `a`
  uint64_t a = 0;                   // (64, 16) by rows of the depth
  uint64_t b = 0;                   // (columns, 16) so, too; (16, columns) where a is in registers
  bool adds = false;
};
void multiply_tiles(const TiledGemm& product, const Place& where);

// All threads of the running block have ended.
void end_hopper_block();

}  // namespace troupe::emulated
