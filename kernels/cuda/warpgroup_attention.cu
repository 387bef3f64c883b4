// The tiles of prompts (tile_attention.cu) as Hopper computes fastest: out[t][h] as there, bfloat16, head
// dims 64 and 128, by products of whole warpgroups.
//
// A block is three warpgroups and takes one item of the plan, kWarpgroupRows rows, for one key/value head.
// Two warps of the first have the copy engine bring keys and values, 128 a turn, two turns ahead; the two
// others have 64 rows each. Turn by turn such a one asks for the scores of the next turn and for the values
// of this one, and while those are multiplied softens the scores (FlashAttention-3, Shah et al. 2024, §3.2);
// what one of the two waits for, the other has the tensor cores meanwhile. Weights stay in registers: the
// accumulators of q·kᵀ are the left operand of the product with v.
//
// The map (kv_map.h) has the KV memory as rows of one key's or value's dims, a box is 64 dims of a block's
// keys. A block of the table that is filled in part is copied by hand, with zeros for the rest: a weight of 0
// times what lay there before could be a NaN. Scores of such keys are masked whatever they are. The copy
// engine is asked for a warp's boxes one after the other, so at 16 keys a block it takes long to ask: keys
// and values each have a warp, which looks up the next turn's blocks before it waits for room.
//
// What is the same for a warp is told to the compiler by a shuffle: it then keeps where tiles lie in uniform
// registers, which products want, and does not move it there before each (140 such moves were 15 after it).
//
// Turns begin at multiples of 128 from key 0, so a row's bits depend on its request alone, however it is cut.
//
// Flops: 4 · rows · keys · C, half of it masked at the diagonal; a turn is 2 · 2 · 128 · 128 · C of them,
// 2,048 clocks of the tensor cores at C = 128, beside which its 16,384 powers are 1,024 clocks of the four
// units for them. 160 KB of shared memory, a block a multiprocessor. Not yet measured on a GPU; whether a
// model's tiles are these is measured when it starts (attention_timing.h).

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/kv_map.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/tile_attention_rows.cuh"
#include "kernels/cuda/warpgroup_attention.cuh"

namespace troupe::cuda {
namespace {

constexpr int kThreads = (1 + kConsumers) * kWarpgroup;
constexpr int kTurns = 2;  // in shared memory

template <int kHeadDim>
struct Shared {
  using T = WarpgroupTiles<kHeadDim>;

  __nv_bfloat16 queries[T::kHalves * T::kQueryHalf];
  __nv_bfloat16 keys[kTurns][T::kHalves * T::kKeyHalf];
  __nv_bfloat16 values[kTurns][T::kHalves * T::kKeyHalf];
  PhaseBarrier full_keys[kTurns], full_values[kTurns];  // there they are
  PhaseBarrier free_keys[kTurns], free_values[kTurns];  // nobody reads them any more
};
template <int kHeadDim>
constexpr size_t kSharedBytes = sizeof(Shared<kHeadDim>) + kSwizzleAlignment;

#if TROUPE_HAS_WARPGROUPS

constexpr int kWarpsOfGroup = kWarpgroup / kWarp;

template <int kHeadDim>
__device__ __forceinline__ Shared<kHeadDim>& aligned(unsigned char* memory) {
  const uint32_t beyond = shared_address(memory) % kSwizzleAlignment;
  return *reinterpret_cast<Shared<kHeadDim>*>(memory + (kSwizzleAlignment - beyond) % kSwizzleAlignment);
}

// --- the warps that copy

// Of keys (which = 0) or values, a warp each: neither is held up by what the other waits for or copies by
// hand. A lane has one box of every turn.
template <int kHeadDim>
struct Copies {
  using S = WarpgroupTiles<kHeadDim>;
  using Tile = __nv_bfloat16[S::kHalves * S::kKeyHalf];
  static_assert(kTurnKeys / kLeastKvBlock * S::kHalves <= kWarp && kLargestKvBlock <= kTurnKeys,
                "a box a lane");

  const CUtensorMap& map;
  const TileAttention& p;
  const Work& w;
  int which;
  int end_key;
  int shift;          // from a key's number to its block's in the table
  int half, row;      // of the lane's box: of the tile's halves, and of a turn's keys
  bool has_box;       // else the lane has none
  int filled;         // values' block from this key on is copied by hand
  int rows_of_block;  // of the map, in a block of the table
  int row_of_head;    // in it

  __device__ __forceinline__ Copies(const CUtensorMap& map_, const TileAttention& p_, const Work& w_,
                                    int which_)
      : map(map_), p(p_), w(w_), which(which_), end_key(w_.item.end_key) {
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
    return has_box && key < end_key ? w.table[key >> shift] : -1;
  }

  // The block that is filled in part: its rows by hand.
  __device__ __forceinline__ void copy_by_hand(__nv_bfloat16* to, int first_row) const {
    constexpr int kChunks = kHeadDim / 8;
    const int64_t place = p.places.tile(w.table[filled >> shift], which, w.kv_head);
    const auto* const from = reinterpret_cast<const uint4*>(p.kv + place);
    for (int i = static_cast<int>(threadIdx.x) % kWarp; i < kChunks << shift; i += kWarp) {
      const int of_block = i / kChunks, chunk = i % kChunks;
      const uint4 value = filled + of_block < end_key ? from[i] : make_uint4(0, 0, 0, 0);
      const int at = chunk / 8 * S::kKeyHalf + swizzled_at(first_row + of_block, chunk % 8);
      *reinterpret_cast<uint4*>(to + at) = value;
    }
  }

  // A turn's; zeros from the item's end on. `barrier` expects what was asked for.
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

  __device__ __forceinline__ void run(Tile (&tiles)[kTurns], PhaseBarrier (&full)[kTurns],
                                      PhaseBarrier (&free)[kTurns]) const {
    int block = block_of(0);
    for (int turn = 0; turn * kTurnKeys < end_key; ++turn) {
      const int next_block = block_of(turn + 1);  // it comes while the turn is waited for
      const int at = turn % kTurns;
      wait(free[at], (turn / kTurns + 1) % 2);
      ask_for(turn, block, tiles[at], full[at]);
      block = next_block;
    }
  }
};

// --- the warpgroups that compute

// Rows of the tile that this warpgroup has; past the item's end zeros.
template <int kHeadDim>
__device__ __forceinline__ void load_queries(const TileAttention& p, const Work& w, int first_row,
                                             __nv_bfloat16* queries) {
  constexpr int kChunks = kHeadDim / 8;
  for (int i = static_cast<int>(threadIdx.x) % kWarpgroup; i < kGroupRows * kChunks; i += kWarpgroup) {
    const int tile_row = first_row + i / kChunks, chunk = i % kChunks;
    const int row = w.item.first_row + tile_row;
    uint4 value = make_uint4(0, 0, 0, 0);
    if (row < w.item.end_row) {
      const int64_t place = row_of<false>(p, w, row).place * kHeadDim + chunk * 8;
      value = *reinterpret_cast<const uint4*>(p.q + place);
    }
    const int at = chunk / 8 * WarpgroupTiles<kHeadDim>::kQueryHalf + swizzled_at(tile_row, chunk % 8);
    *reinterpret_cast<uint4*>(queries + at) = value;
  }
  fence_async_proxy();
}

// What a warpgroup's 64 rows come to.
template <int kHeadDim, bool kSlopes>
struct Consumer {
  const TileAttention& p;
  const Work& w;
  Shared<kHeadDim>& shared;
  int first_row;  // of the tile
  Rows rows;
  int first_position;  // of the warpgroup's rows
  Running<kHeadDim> running;
  Scores scores;
  Weights weights;

  __device__ __forceinline__ void ask_for_scores_of(int turn) {
    wait(shared.full_keys[turn % kTurns], turn / kTurns % 2);
    ask_for_scores<kHeadDim>(shared.queries + first_row * kSwizzled, shared.keys[turn % kTurns], scores);
  }
  __device__ __forceinline__ void ask_for_values_of(int turn) {
    wait(shared.full_values[turn % kTurns], turn / kTurns % 2);
    ask_for_values<kHeadDim>(weights, shared.values[turn % kTurns], running.sums);
  }
  // Keys behind a query, and those behind the item's end, are in its last turns.
  __device__ __forceinline__ float2 soften_turn(int turn) {
    const int first = turn * kTurnKeys;
    if (first + kTurnKeys - 1 > first_position) return soften<true, kSlopes>(p, rows, first, scores, running);
    return soften<false, kSlopes>(p, rows, first, scores, running);
  }

  __device__ __forceinline__ void run() {
    const int turns = (w.item.end_key + kTurnKeys - 1) / kTurnKeys;
    ask_for_scores_of(0);
    wait_products<0>();
    fence_operand(scores);
    release(shared.free_keys[0]);
    soften_turn(0);
    pack(scores, weights);
    for (int turn = 1; turn < turns; ++turn) {
      ask_for_scores_of(turn);
      ask_for_values_of(turn - 1);
      wait_products<1>();
      fence_operand(scores);
      release(shared.free_keys[turn % kTurns]);
      const float2 factors = soften_turn(turn);
      wait_products<0>();
      fence_operand(running.sums);
      fence_operand(scores);  // weights, which the values were multiplied by until now, are made of them
      release(shared.free_values[(turn - 1) % kTurns]);
      rescale(running, factors);
      pack(scores, weights);
    }
    ask_for_values_of(turns - 1);
    wait_products<0>();
    fence_operand(running.sums);
  }

  // Into out by way of the queries' memory, so that rows are written 16 bytes a lane.
  __device__ __forceinline__ void write() {
    constexpr int kChunks = kHeadDim / 8;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int warp_row = first_row + static_cast<int>(threadIdx.x) % kWarpgroup / kWarp * 16;  // of the tile
    named_barrier(1 + first_row / kGroupRows, kWarpgroup);  // nobody multiplies the queries any more
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = warp_row + lane / 4 + 8 * i;
      const float scale = 1.0f / quad_sum(running.total[i]);
#pragma unroll
      for (int d = 0; d < kChunks; ++d) {
        const int at = d / 8 * WarpgroupTiles<kHeadDim>::kQueryHalf + swizzled_at(row, d % 8) + lane % 4 * 2;
        *reinterpret_cast<uint32_t*>(shared.queries + at) =
            pack_pair(running.sums[d][2 * i] * scale, running.sums[d][2 * i + 1] * scale);
      }
    }
    __syncwarp();
    for (int i = lane; i < 16 * kChunks; i += kWarp) {
      const int tile_row = warp_row + i / kChunks, chunk = i % kChunks;
      const int row = w.item.first_row + tile_row;
      if (row >= w.item.end_row) continue;
      const int at = chunk / 8 * WarpgroupTiles<kHeadDim>::kQueryHalf + swizzled_at(tile_row, chunk % 8);
      const int64_t place = row_of<false>(p, w, row).place * kHeadDim + chunk * 8;
      *reinterpret_cast<uint4*>(p.out + place) = *reinterpret_cast<const uint4*>(shared.queries + at);
    }
  }
};

template <int kHeadDim, bool kSlopes>
__device__ __forceinline__ void attend(const CUtensorMap& map, const TileAttention& p,
                                       unsigned char* memory) {
  Shared<kHeadDim>& shared = aligned<kHeadDim>(memory);
  Work w = work_of(p);
  w.item.first_row = __shfl_sync(kAllLanes, w.item.first_row, 0);
  w.item.end_key = __shfl_sync(kAllLanes, w.item.end_key, 0);
  if (threadIdx.x == 0) {
    prefetch_map(map);
    for (int i = 0; i < kTurns; ++i) {
      init_barrier(shared.full_keys[i], 1);
      init_barrier(shared.full_values[i], 1);
      init_barrier(shared.free_keys[i], kConsumers * kWarpgroup / kWarp);
      init_barrier(shared.free_values[i], kConsumers * kWarpgroup / kWarp);
    }
    fence_barrier_init();
  }
  __syncthreads();
  // The same for a warp, and known to be: addresses of tiles are then computed once, not by every thread.
  const int warp = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / kWarp, 0);
  const int warpgroup = warp / kWarpsOfGroup;
  if (warpgroup == 0) {
    give_registers<kProducerRegisters>();
    if (warp == 0) Copies<kHeadDim>(map, p, w, 0).run(shared.keys, shared.full_keys, shared.free_keys);
    if (warp == 1) Copies<kHeadDim>(map, p, w, 1).run(shared.values, shared.full_values, shared.free_values);
  } else {
    take_registers<kConsumerRegisters>();
    const int first_row = (warpgroup - 1) * kGroupRows;
    load_queries<kHeadDim>(p, w, first_row, shared.queries);
    named_barrier(warpgroup, kWarpgroup);
    Consumer<kHeadDim, kSlopes> consumer{
        p,
        w,
        shared,
        first_row,
        rows_of<false>(p, w, w.item.first_row + first_row + warp % kWarpsOfGroup * 16),
        w.first_position + p.by_group.quotient(w.item.first_row + first_row),
        {},
        {},
        {}};
    consumer.run();
    consumer.write();
  }
}

#endif

template <int kHeadDim, bool kSlopes>
__global__ void __launch_bounds__(kThreads, 1)
    attend_warpgroups(const __grid_constant__ CUtensorMap map, const TileAttention p) {
#if TROUPE_HAS_WARPGROUPS
  await_launch_before();
  TROUPE_DYNAMIC_SHARED(memory);
  attend<kHeadDim, kSlopes>(map, p, memory);
#else
  __trap();  // has_hopper_code() was not asked
#endif
}

template <int kHeadDim, bool kSlopes>
void launch_tiles(const LaunchStream& stream, const TileAttention& p, const CUtensorMap& map, size_t count) {
  const auto kernel = attend_warpgroups<kHeadDim, kSlopes>;
  check_cuda("attention", cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                               static_cast<int>(kSharedBytes<kHeadDim>)));
  const dim3 blocks(static_cast<unsigned>(count), static_cast<unsigned>(p.places.kv_heads));
  launch("attention", kernel, {blocks, kThreads, kSharedBytes<kHeadDim>}, stream, map, p);
}

}  // namespace

bool has_hopper_code() {
  cudaFuncAttributes attributes{};
  check_cuda("loaded code", cudaFuncGetAttributes(&attributes, attend_warpgroups<128, false>));
  return attributes.ptxVersion >= 90;
}

void warpgroup_attention(const LaunchStream& stream, TileAttention p, const CUtensorMap& map,
                         const AttentionItem* tiles, size_t count) {
  if (count == 0) return;
  p.items = tiles;
  const bool slopes = p.indices.alibi_slopes != nullptr;
  if (p.places.head_dim == 64) {
    slopes ? launch_tiles<64, true>(stream, p, map, count) : launch_tiles<64, false>(stream, p, map, count);
  } else {
    slopes ? launch_tiles<128, true>(stream, p, map, count) : launch_tiles<128, false>(stream, p, map, count);
  }
}

}  // namespace troupe::cuda
