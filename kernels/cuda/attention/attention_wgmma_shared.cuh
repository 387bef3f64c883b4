#pragma once

// The shared memory of attention_wgmma.cu's blocks, and the four warps that fill it: one brings keys, one
// values, and two say what is next and bring its queries.

#include "kernels/cuda/attention/attention_kernels.h"
#include "kernels/cuda/attention/attention_mma_rows.cuh"
#include "kernels/cuda/attention/attention_wgmma.cuh"
#include "kernels/cuda/attention/kv_map.h"
#include "kernels/cuda/device/hopper.cuh"

namespace troupe::cuda {

inline constexpr int kTurns = 2;  // of keys and values, in shared memory
inline constexpr int kWorks = 2;  // of queries: what is computed, and what is next
inline constexpr int kWarpsOfGroup = kWarpgroup / kWarp;
inline constexpr int kQueryWarps = kConsumers;  // a consumer's rows each
inline constexpr int kCopyWarps = 2;
static_assert(kQueryWarps + kCopyWarps == kWarpsOfGroup, "of one warpgroup");

template <int kHeadDim>
struct WarpgroupShared {
  using T = WarpgroupTiles<kHeadDim>;

  __nv_bfloat16 queries[kWorks][T::kHalves * T::kQueryHalf];
  __nv_bfloat16 keys[kTurns][T::kHalves * T::kKeyHalf];
  __nv_bfloat16 values[kTurns][T::kHalves * T::kKeyHalf];
  Work works[kWorks];
  PhaseBarrier full_keys[kTurns], full_values[kTurns];  // there they are
  PhaseBarrier free_keys[kTurns], free_values[kTurns];  // read by no warp any more
  PhaseBarrier full_works[kWorks], full_queries[kWorks];
  PhaseBarrier free_works[kWorks];  // and their queries

  // One thread's, before the others come.
  __device__ __forceinline__ void init_barriers() {
    constexpr int kConsumerWarps = kConsumers * kWarpsOfGroup;
    for (int i = 0; i < kTurns; ++i) {
      init_barrier(full_keys[i], 1);
      init_barrier(full_values[i], 1);
      init_barrier(free_keys[i], kConsumerWarps);
      init_barrier(free_values[i], kConsumerWarps);
    }
    for (int i = 0; i < kWorks; ++i) {
      init_barrier(full_works[i], 1);
      init_barrier(full_queries[i], kQueryWarps);
      init_barrier(free_works[i], kConsumerWarps + kCopyWarps);
    }
    fence_barrier_init();
  }
};

// The works of a block. All works, which are the plan's items, longest first, each for every key/value head,
// are dealt out in rounds, one to each block, in every other round from the last block to the first. So
// blocks get about as much, whatever the lengths, and those that run together read the same heads' keys.
struct BlocksWorks {
  int items, kv_heads;

  __device__ __forceinline__ int index(int n) const {
    const int blocks = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
    return n * blocks + (n % 2 == 0 ? block : blocks - 1 - block);
  }
  __device__ __forceinline__ bool has(int n) const { return index(n) < items * kv_heads; }
  // REQUIRES: has(n)
  __device__ __forceinline__ Work at(const MmaAttention& p, int n) const {
    return work_of(p, index(n) / kv_heads, index(n) % kv_heads);
  }
};

// A work's turns: of kTurnKeys keys, from multiples of that on.
__device__ __forceinline__ int first_turn_of(const Work& w) {
  return w.item.first_key / kTurnKeys;
}
__device__ __forceinline__ int end_turn_of(const Work& w) {
  return (w.item.end_key + kTurnKeys - 1) / kTurnKeys;
}

// Brings keys (which = 0) or values, a warp each: neither is held up by what the other waits for or copies
// by hand. A lane has one box of every turn.
template <int kHeadDim>
struct Copies {
  using S = WarpgroupTiles<kHeadDim>;
  using Tile = __nv_bfloat16[S::kHalves * S::kKeyHalf];
  static_assert(kTurnKeys / kLeastKvBlock * S::kHalves <= kWarp && kLargestKvBlock <= kTurnKeys,
                "a box a lane");

  const CUtensorMap& map;
  const MmaAttention& p;
  const Work& w;
  const int32_t* table;
  int which;
  int end_key;
  int shift;          // from a key's number to its block's in the table
  int half, row;      // of the lane's box: of the tile's halves, and of a turn's keys
  bool has_box;       // else the lane has none
  int filled;         // values' block from this key on is copied by hand
  int rows_of_block;  // of the map, in a block of the table
  int row_of_head;    // in it

  __device__ __forceinline__ Copies(const CUtensorMap& map_, const MmaAttention& p_, const Work& w_,
                                    int which_)
      : map(map_),
        p(p_),
        w(w_),
        // The same as w's, but known not to be shared memory.
        table(p.indices.block_tables + int64_t{w.item.request} * p.block_table_stride),
        which(which_),
        end_key(w_.item.end_key) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    shift = __ffs(p.places.block_size) - 1;
    half = lane % S::kHalves;
    row = lane / S::kHalves << shift;
    has_box = row < kTurnKeys;
    filled = end_key >> shift << shift;
    rows_of_block = static_cast<int>(p.places.block_elements / kHeadDim);
    row_of_head = ((p.places.layer * p.places.kv_heads + w.kv_head) * 2 + which) << shift;
  }

  // The block of the table that the lane's box of a turn is of; -1: behind the item's end.
  __device__ __forceinline__ int block_of(int turn) const {
    const int key = turn * kTurnKeys + row;
    return has_box && key < end_key ? table[key >> shift] : -1;
  }

  // The block that is filled in part: its rows by hand.
  __device__ __forceinline__ void copy_by_hand(__nv_bfloat16* to, int first_row) const {
    constexpr int kChunks = kHeadDim / 8;
    const int64_t place = p.places.tile(table[filled >> shift], which, w.kv_head);
    const auto* const from = reinterpret_cast<const uint4*>(p.kv + place);
    for (int i = static_cast<int>(threadIdx.x) % kWarp; i < kChunks << shift; i += kWarp) {
      const int of_block = i / kChunks, chunk = i % kChunks;
      const uint4 value = filled + of_block < end_key ? from[i] : make_uint4(0, 0, 0, 0);
      const int at = chunk / 8 * S::kKeyHalf + swizzled_at(first_row + of_block, chunk % 8);
      store_to_tile(to + at, value);
    }
  }

  // Starts the copies of a turn; zeros from the item's end on. `barrier` expects their bytes.
  __device__ __forceinline__ void ask_for(int turn, int block, __nv_bfloat16* to,
                                          PhaseBarrier& barrier) const {
    const int first = turn * kTurnKeys;
    const bool by_hand = which == 1 && filled < end_key && filled >= first && filled < first + kTurnKeys;
    if (has_box && !(by_hand && first + row == filled)) {
      const int from = block < 0 ? kNoKvRow : block * rows_of_block + row_of_head;
      copy_box(to + half * S::kKeyHalf + row * kSwizzled, map, half * kSwizzled, from, barrier);
    }
    if (by_hand) {
      copy_by_hand(to, filled - first);
      fence_async_proxy();
    }
    // Also: all lanes have seen the phase before this one end, and none can take the next for it.
    __syncwarp();
    const int bytes = S::kHalves * kRowBytes * (kTurnKeys - (by_hand ? 1 << shift : 0));
    if (threadIdx.x % kWarp == 0) arrive_and_expect(barrier, bytes);
  }

  // `before`: turns of the works before this one. Returns them with this one's.
  __device__ __forceinline__ int run(Tile (&tiles)[kTurns], PhaseBarrier (&full)[kTurns],
                                     PhaseBarrier (&free)[kTurns], int before) const {
    const int first = first_turn_of(w), end = end_turn_of(w);
    int block = block_of(first);
    for (int turn = first; turn < end; ++turn) {
      const int next_block = block_of(turn + 1);  // it comes while the turn is waited for
      const int number = before + turn - first;
      const int at = number % kTurns;
      wait(free[at], (number / kTurns + 1) % 2);
      ask_for(turn, block, tiles[at], full[at]);
      block = next_block;
    }
    return before + end - first;
  }
};

// Keys (which = 0) or values of all of the block's works.
template <int kHeadDim>
__device__ __forceinline__ void bring_keys(const CUtensorMap& map, const MmaAttention& p,
                                           const BlocksWorks& works, int which,
                                           WarpgroupShared<kHeadDim>& shared) {
  int turns = 0;
  for (int n = 0; works.has(n); ++n) {
    const int at = n % kWorks;
    wait(shared.full_works[at], n / kWorks % 2);
    const Work w = shared.works[at];
    const Copies<kHeadDim> copies(map, p, w, which);
    turns = which == 0 ? copies.run(shared.keys, shared.full_keys, shared.free_keys, turns)
                       : copies.run(shared.values, shared.full_values, shared.free_values, turns);
    release(shared.free_works[at]);
  }
}

// Rows of a work that a consumer has; past the item's end zeros.
template <int kHeadDim>
__device__ __forceinline__ void copy_queries(const MmaAttention& p, const Work& w, int consumer,
                                             __nv_bfloat16* queries) {
  constexpr int kChunks = kHeadDim / 8;
  constexpr int kRowsAtOnce = kWarp / kChunks;
  const int lane = static_cast<int>(threadIdx.x) % kWarp, chunk = lane % kChunks;
  const int last = w.item.end_row - 1;
  // The first product of a block with one work waits for this.
#pragma unroll 4
  for (int i = lane / kChunks; i < kGroupRows; i += kRowsAtOnce) {
    const int tile_row = consumer * kGroupRows + i;
    const int row = w.item.first_row + tile_row;
    const int64_t place = row_of<false>(p, w, min(row, last)).place * kHeadDim + chunk * 8;
    const int to = chunk / 8 * WarpgroupTiles<kHeadDim>::kQueryHalf + swizzled_at(tile_row, chunk % 8);
    cp_async_16(queries + to, p.q + place, row <= last);
  }
  cp_async_commit();
  cp_async_wait<0>();
  fence_async_proxy();
}

// One consumer's queries of all of the block's works, a work ahead of what is computed; the first consumer's
// warp publishes the works. This warp looks up the next work while it waits for room, and the first one
// before the launch before this one has ended.
template <int kHeadDim>
__device__ __forceinline__ void bring_queries(const MmaAttention& p, const BlocksWorks& works, int consumer,
                                              const Work& first, WarpgroupShared<kHeadDim>& shared) {
  Work w = first;
  for (int n = 0; works.has(n); ++n) {
    const int at = n % kWorks;
    wait(shared.free_works[at], (n / kWorks + 1) % 2);
    if (consumer == 0) {
      if (threadIdx.x % kWarp == 0) shared.works[at] = w;
      release(shared.full_works[at]);
    }
    copy_queries<kHeadDim>(p, w, consumer, shared.queries[at]);
    release(shared.full_queries[at]);
    if (works.has(n + 1)) w = works.at(p, n + 1);
  }
}

}  // namespace troupe::cuda
