// The tiles of prompts (tile_attention.cu) as Hopper computes fastest: out[t][h] as there, bfloat16, head
// dims 64 and 128, by products of whole warpgroups.
//
// A block is three warpgroups and takes one item of the plan, kWarpgroupRows rows, for one key/value head.
// One warp of the first has the copy engine bring keys and values, 128 a turn, two turns ahead; the two
// others have 64 rows each. Turn by turn such a one asks for the scores of the next turn and for the values
// of this one, and while those are multiplied softens the scores (FlashAttention-3, Shah et al. 2024, §3.2);
// what one of the two waits for, the other has the tensor cores meanwhile. Weights stay in registers: the
// accumulators of q·kᵀ are the left operand of the product with v.
//
// The map (kv_map.h) has the KV memory as rows of one key's or value's dims, a box is 64 dims of a block's
// keys. A block of the table that is filled in part is copied by hand, with zeros for the rest: a weight of 0
// times what lay there before could be a NaN. Scores of such keys are masked whatever they are.
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

template <int kHeadDim>
__device__ __forceinline__ Shared<kHeadDim>& aligned(unsigned char* memory) {
  const uint32_t beyond = shared_address(memory) % kSwizzleAlignment;
  return *reinterpret_cast<Shared<kHeadDim>*>(memory + (kSwizzleAlignment - beyond) % kSwizzleAlignment);
}

// --- the warp that copies

// Of keys (which = 0) or values of a turn.
template <int kHeadDim>
struct Copies {
  using S = WarpgroupTiles<kHeadDim>;
  const CUtensorMap& map;
  const TileAttention& p;
  const Work& w;
  int which;

  // The block of keys from `key` on, filled in part: its rows by hand.
  __device__ __forceinline__ void copy_by_hand(int key, __nv_bfloat16* to, int first_row) const {
    constexpr int kChunks = kHeadDim / 8;
    const int64_t place = p.places.tile(w.table[key / p.places.block_size], which, w.kv_head);
    const auto* const from = reinterpret_cast<const uint4*>(p.kv + place);
    for (int i = static_cast<int>(threadIdx.x); i < p.places.block_size * kChunks; i += kWarp) {
      const int row = i / kChunks, chunk = i % kChunks;
      const uint4 value = key + row < w.item.end_key ? from[i] : make_uint4(0, 0, 0, 0);
      const int at = chunk / 8 * S::kKeyHalf + swizzled_at(first_row + row, chunk % 8);
      *reinterpret_cast<uint4*>(to + at) = value;
    }
  }

  // Keys [first, first + kTurnKeys); zeros from the item's end on. `barrier` expects what was asked for.
  __device__ __forceinline__ void ask_for(int first, __nv_bfloat16* to, PhaseBarrier& barrier) const {
    const int block_size = p.places.block_size;
    const int filled = w.item.end_key / block_size * block_size;  // values' blocks from there on: by hand
    const bool by_hand =
        which == 1 && filled < w.item.end_key && filled >= first && filled < first + kTurnKeys;
    const int row_of_head = ((p.places.layer * p.places.kv_heads + w.kv_head) * 2 + which) *
                            block_size;  // in a block of the table
    const int rows_of_block = static_cast<int>(p.places.block_elements / kHeadDim);
    for (int i = static_cast<int>(threadIdx.x); i < kTurnKeys / block_size * S::kHalves; i += kWarp) {
      const int half = i % S::kHalves, row = i / S::kHalves * block_size;
      const int key = first + row;
      if (by_hand && key == filled) continue;
      const int from =
          key < w.item.end_key ? w.table[key / block_size] * rows_of_block + row_of_head : kNoKvRow;
      copy_box(to + half * S::kKeyHalf + row * kSwizzled, map, half * kSwizzled, from, barrier);
    }
    if (by_hand) {
      copy_by_hand(filled, to, filled - first);
      fence_async_proxy();
    }
    // Also: all lanes have seen the phase before this one end, and none can take the next for it.
    __syncwarp();
    const int bytes =
        S::kHalves * kTurnKeys * kRowBytes - (by_hand ? S::kHalves * block_size * kRowBytes : 0);
    if (threadIdx.x == 0) arrive_and_expect(barrier, bytes);
  }
};

template <int kHeadDim>
__device__ __forceinline__ void copy_turns(const CUtensorMap& map, const TileAttention& p, const Work& w,
                                           Shared<kHeadDim>& shared) {
  const Copies<kHeadDim> keys{map, p, w, 0}, values{map, p, w, 1};
  for (int turn = 0; turn * kTurnKeys < w.item.end_key; ++turn) {
    const int at = turn % kTurns, before = (turn / kTurns + 1) % 2;
    wait(shared.free_keys[at], before);
    keys.ask_for(turn * kTurnKeys, shared.keys[at], shared.full_keys[at]);
    wait(shared.free_values[at], before);
    values.ask_for(turn * kTurnKeys, shared.values[at], shared.full_values[at]);
  }
}

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
    release(shared.free_keys[0]);
    soften_turn(0);
    pack(scores, weights);
    for (int turn = 1; turn < turns; ++turn) {
      ask_for_scores_of(turn);
      ask_for_values_of(turn - 1);
      wait_products<1>();
      release(shared.free_keys[turn % kTurns]);
      const float2 factors = soften_turn(turn);
      wait_products<0>();
      release(shared.free_values[(turn - 1) % kTurns]);
      rescale(running, factors);
      pack(scores, weights);
    }
    ask_for_values_of(turns - 1);
    wait_products<0>();
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
  const Work w = work_of(p);
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
  const int warpgroup = static_cast<int>(threadIdx.x) / kWarpgroup;
  if (warpgroup == 0) {
    give_registers<kProducerRegisters>();
    if (threadIdx.x < kWarp) copy_turns(map, p, w, shared);
  } else {
    take_registers<kConsumerRegisters>();
    const int first_row = (warpgroup - 1) * kGroupRows;
    const int warp = static_cast<int>(threadIdx.x) % kWarpgroup / kWarp;
    load_queries<kHeadDim>(p, w, first_row, shared.queries);
    named_barrier(warpgroup, kWarpgroup);
    Consumer<kHeadDim, kSlopes> consumer{p,
                                         w,
                                         shared,
                                         first_row,
                                         rows_of<false>(p, w, w.item.first_row + first_row + warp * 16),
                                         w.first_position + (w.item.first_row + first_row) / w.group,
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
  TROUPE_DYNAMIC_SHARED(memory);
  attend<kHeadDim, kSlopes>(map, p, memory);
#endif
}

template <int kHeadDim, bool kSlopes>
void launch_tiles(cudaStream_t stream, const TileAttention& p, const CUtensorMap& map, size_t count) {
  const auto kernel = attend_warpgroups<kHeadDim, kSlopes>;
  check_cuda("attention", cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                               static_cast<int>(kSharedBytes<kHeadDim>)));
  const dim3 blocks(static_cast<unsigned>(count), static_cast<unsigned>(p.places.kv_heads));
  launch("attention", kernel, {blocks, kThreads, kSharedBytes<kHeadDim>}, stream, map, p);
}

}  // namespace

void warpgroup_attention(cudaStream_t stream, TileAttention p, const CUtensorMap& map,
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
