// The tiles of prompts (attention_mma.cu) as Hopper computes fastest: out[t][h] as there, bfloat16, head
// dims 64 and 128, by products of whole warpgroups.
//
// A block is three warpgroups. There are as many blocks as processors: each takes some of the works, a work
// being an item of the plan, kWarpgroupRows rows, for one key/value head. Two warps of the first warpgroup
// have the copy engine bring keys and values, 128 a turn, two turns ahead, over the end of a work into the
// next one; two bring the next work's queries. The two other warpgroups have 64 rows each. Turn by turn such
// a one asks for the scores of the next turn and for the values of this one, and while those are multiplied
// softens the scores (FlashAttention-3, Shah et al. 2024, §3.2); what one of the two waits for, the other has
// the tensor cores meanwhile. Where that was measured to be faster the two ask in turn (its §3.1, ping-pong):
// one's products are all behind the other's, so that one softens while the other's are multiplied, and not
// both at once. Weights stay in registers: the accumulators of q·kᵀ are the left operand of the product with
// v.
//
// The map (kv_map.h) has the KV memory as rows of one key's or value's dims, a box is 64 dims of a block's
// keys. A block of the table that is filled in part is copied by hand, with zeros for the rest: a weight of 0
// times what lay there before could be a NaN. Scores of such keys are masked whatever they are. The copy
// engine is asked for a warp's boxes one after the other, so at 16 keys a block it takes long to ask: keys
// and values each have a warp, which looks up the next turn's blocks before it waits for room.
//
// A shuffle shows the compiler what is the same for a warp: it then keeps tiles' addresses in uniform
// registers, which products want, and does not move them there before each (140 such moves became 15).
//
// Turns begin at multiples of 128 from key 0, so a row's bits depend on its request alone, however it is cut,
// unless its keys are cut into pieces (attention_plan.h).
//
// Flops: 4 · rows · keys · C, half of it masked at the diagonal; a turn is 2 · 2 · 128 · 128 · C of them,
// 2,048 clocks of the tensor cores at C = 128, beside which its 16,384 powers are 1,024 clocks of the four
// units for them. 193 KB of shared memory, a block a multiprocessor. Before blocks kept their processor, each
// work began with some 4 µs without a product (what its item is, barriers, first queries and keys) and ended
// with one: a tenth of 8,192 tokens' 36 µs a work, counted. Measured on an H200: 8,192 tokens at 552 to 597
// TFLOP/s, where attention_mma.cu has 224 to 230; whether a model's tiles are these is measured when it
// starts (attention_timing.h).

#include <algorithm>

#include "kernels/cuda/attention/attention_kernels.h"
#include "kernels/cuda/attention/attention_mma_rows.cuh"
#include "kernels/cuda/attention/attention_wgmma.cuh"
#include "kernels/cuda/attention/attention_wgmma_shared.cuh"
#include "kernels/cuda/attention/kv_map.h"
#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/device/find_device.h"
#include "kernels/cuda/device/hopper.cuh"
#include "kernels/cuda/device/ptx.cuh"

namespace troupe::cuda {
namespace {

constexpr int kThreads = (1 + kConsumers) * kWarpgroup;

template <int kHeadDim>
constexpr size_t kSharedBytes = sizeof(WarpgroupShared<kHeadDim>) + kSwizzleAlignment;

#if TROUPE_HAS_WARPGROUPS

template <int kHeadDim>
__device__ __forceinline__ WarpgroupShared<kHeadDim>& aligned(unsigned char* memory) {
  const uint32_t beyond = shared_address(memory) % kSwizzleAlignment;
  return *reinterpret_cast<WarpgroupShared<kHeadDim>*>(memory +
                                                       (kSwizzleAlignment - beyond) % kSwizzleAlignment);
}

// The consumers' turns at the tensor cores. Each ask is between await() and pass_on(), so the named barrier
// of the one whose turn is next has always half of its threads, the other consumer's: open() begins so, and
// close() ends it.
struct TensorCoreTurns {
  static constexpr int kThreadsOfBarrier = kConsumers * kWarpgroup;
  int consumer;
  bool taken;  // in this work: both consumers have rows

  __device__ __forceinline__ static int barrier_of(int consumer) { return 1 + kConsumers + consumer; }

  __device__ __forceinline__ void open() const {
    if (consumer == 1) arrive_named_barrier(barrier_of(0), kThreadsOfBarrier);
  }
  __device__ __forceinline__ void await() const {
    if (taken) named_barrier(barrier_of(consumer), kThreadsOfBarrier);
  }
  __device__ __forceinline__ void pass_on() const {
    if (taken) arrive_named_barrier(barrier_of(1 - consumer), kThreadsOfBarrier);
  }
  __device__ __forceinline__ void close() const {
    if (consumer == 0) named_barrier(barrier_of(0), kThreadsOfBarrier);
  }
};

// The result of a warpgroup's 64 rows of a work.
template <int kHeadDim, bool kSlopes>
struct Consumer {
  const MmaAttention& p;
  const Work& w;
  WarpgroupShared<kHeadDim>& shared;
  __nv_bfloat16* queries;  // the work's
  int first_row;           // of the tile
  int first_key;
  int before;  // turns of the works before
  TensorCoreTurns tensor_cores;
  Rows rows;
  int first_position;  // of the warpgroup's rows
  Running<kHeadDim> running;
  Scores scores;
  Weights weights;

  // The work's turn number i.
  __device__ __forceinline__ void ask_for_scores_of(int i) {
    const int number = before + i;
    wait(shared.full_keys[number % kTurns], number / kTurns % 2);
    ask_for_scores<kHeadDim>(queries + first_row * kSwizzled, shared.keys[number % kTurns], scores);
  }
  __device__ __forceinline__ void ask_for_values_of(int i) {
    const int number = before + i;
    wait(shared.full_values[number % kTurns], number / kTurns % 2);
    ask_for_values<kHeadDim>(weights, shared.values[number % kTurns], running.sums);
  }
  // Keys behind a query, and those behind the item's end, are in its last turns.
  __device__ __forceinline__ float2 soften_turn(int i) {
    const int first = first_key + i * kTurnKeys;
    if (first + kTurnKeys - 1 > first_position) return soften<true, kSlopes>(p, rows, first, scores, running);
    return soften<false, kSlopes>(p, rows, first, scores, running);
  }

  // Skips turns in which none of the rows is inside: the tensor cores are left to the other consumer.
  __device__ __forceinline__ void pass(int turns) {
    for (int number = before; number < before + turns; ++number) {
      const int at = number % kTurns, parity = number / kTurns % 2;
      wait(shared.full_keys[at], parity);
      release(shared.free_keys[at]);
      wait(shared.full_values[at], parity);
      release(shared.free_values[at]);
    }
  }

  // One of `turns` at least.
  __device__ __forceinline__ void run(int turns) {
    tensor_cores.await();
    ask_for_scores_of(0);
    tensor_cores.pass_on();
    wait_products<0>();
    fence_operand(scores);
    release(shared.free_keys[before % kTurns]);
    soften_turn(0);
    pack(scores, weights);
    for (int i = 1; i < turns; ++i) {
      tensor_cores.await();
      ask_for_scores_of(i);
      ask_for_values_of(i - 1);
      tensor_cores.pass_on();
      wait_products<1>();
      fence_operand(scores);
      release(shared.free_keys[(before + i) % kTurns]);
      const float2 factors = soften_turn(i);
      wait_products<0>();
      fence_operand(running.sums);
      fence_operand(scores);  // weights, which the values were multiplied by until now, are made of them
      release(shared.free_values[(before + i - 1) % kTurns]);
      rescale(running, factors);
      pack(scores, weights);
    }
    ask_for_values_of(turns - 1);
    wait_products<0>();
    fence_operand(running.sums);
    release(shared.free_values[(before + turns - 1) % kTurns]);
#pragma unroll
    for (int i = 0; i < 2; ++i) running.total[i] = quad_sum(running.total[i]);
  }

  __device__ __forceinline__ void write() {
    if (w.item.partial >= 0) return write_sums();
    write_out();
  }

 private:
  // The warp's part of the tile.
  __device__ __forceinline__ int first_of_warp() const {
    return first_row + static_cast<int>(threadIdx.x) % kWarpgroup / kWarp * 16;
  }

  // A piece's.
  __device__ __forceinline__ void write_sums() const {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = w.item.first_row + first_of_warp() + lane / 4 + 8 * i;
      if (row >= w.item.end_row) continue;
      float* const to = partial_at<kHeadDim>(p, w, row_of<false>(p, w, row).partial);
#pragma unroll
      for (int d = 0; d < kHeadDim / 8; ++d) {
        const float2 sums = make_float2(running.sums[d][2 * i], running.sums[d][2 * i + 1]);
        *reinterpret_cast<float2*>(to + d * 8 + lane % 4 * 2) = sums;
      }
      if (lane % 4 != 0) continue;
      *reinterpret_cast<float2*>(to + kHeadDim) = make_float2(running.largest[i], running.total[i]);
    }
  }

  // Goes by way of the queries' memory, so that rows are written 16 bytes a lane.
  __device__ __forceinline__ void write_out() const {
    constexpr int kChunks = kHeadDim / 8;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int warp_row = first_of_warp();
    named_barrier(1 + first_row / kGroupRows, kWarpgroup);  // no warp multiplies the queries any more
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = warp_row + lane / 4 + 8 * i;
      const float scale = 1.0f / running.total[i];
#pragma unroll
      for (int d = 0; d < kChunks; ++d) {
        const int at = d / 8 * WarpgroupTiles<kHeadDim>::kQueryHalf + swizzled_at(row, d % 8) + lane % 4 * 2;
        *reinterpret_cast<uint32_t*>(queries + at) =
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
      *reinterpret_cast<uint4*>(p.out + place) = *reinterpret_cast<const uint4*>(queries + at);
    }
  }
};

// The rows from first_row on of all of the block's works.
template <int kHeadDim, bool kSlopes>
__device__ __forceinline__ void consume(const MmaAttention& p, const BlocksWorks& works, int first_row,
                                        WarpgroupShared<kHeadDim>& shared) {
  const int warp_row = first_row + static_cast<int>(threadIdx.x) % kWarpgroup / kWarp * 16;
  TensorCoreTurns tensor_cores{first_row / kGroupRows, false};
  if (p.in_turn) tensor_cores.open();
  int turns = 0;
  for (int n = 0; works.has(n); ++n) {
    const int at = n % kWorks;
    wait(shared.full_queries[at], n / kWorks % 2);
    const Work& w = shared.works[at];
    // The same for a warp, and known to be.
    const int first = __shfl_sync(kAllLanes, w.item.first_row, 0);
    const int first_turn = __shfl_sync(kAllLanes, first_turn_of(w), 0);
    const int of_work = __shfl_sync(kAllLanes, end_turn_of(w), 0) - first_turn;
    const int first_position =
        __shfl_sync(kAllLanes, w.first_position + p.by_group.quotient(first + first_row), 0);
    const int end_row = __shfl_sync(kAllLanes, w.item.end_row, 0);
    tensor_cores.taken = p.in_turn && first + kGroupRows < end_row;
    Consumer<kHeadDim, kSlopes> consumer{p,
                                         w,
                                         shared,
                                         shared.queries[at],
                                         first_row,
                                         first_turn * kTurnKeys,
                                         turns,
                                         tensor_cores,
                                         rows_of<false>(p, w, first + warp_row),
                                         first_position,
                                         {},
                                         {},
                                         {}};
    if (first + first_row < end_row) {
      consumer.run(of_work);
      consumer.write();
    } else {
      consumer.pass(of_work);
    }
    release(shared.free_works[at]);
    turns += of_work;
  }
  if (p.in_turn) tensor_cores.close();
}

template <int kHeadDim, bool kSlopes>
__device__ __forceinline__ void attend(const CUtensorMap& map, const MmaAttention& p, int items,
                                       unsigned char* memory) {
  WarpgroupShared<kHeadDim>& shared = aligned<kHeadDim>(memory);
  const BlocksWorks works{items, p.places.kv_heads};
  // The same for a warp, and known to be: addresses of tiles are then computed once, not by every thread.
  const int warp = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / kWarp, 0);
  const int warpgroup = warp / kWarpsOfGroup;
  if (threadIdx.x == 0) {
    prefetch_map(map);
    shared.init_barriers();
  }
  Work first;
  if (warpgroup == 0 && warp >= kCopyWarps) first = works.at(p, 0);
  await_launch_before();
  __syncthreads();
  if (warpgroup == 0) {
    give_registers<kProducerRegisters>();
    if (warp < kCopyWarps) {
      bring_keys<kHeadDim>(map, p, works, warp, shared);
    } else {
      bring_queries<kHeadDim>(p, works, warp - kCopyWarps, first, shared);
    }
  } else {
    take_registers<kConsumerRegisters>();
    consume<kHeadDim, kSlopes>(p, works, (warpgroup - 1) * kGroupRows, shared);
  }
}

#endif

// `items`: of the plan.
template <int kHeadDim, bool kSlopes>
__global__ void __launch_bounds__(kThreads, 1)
    attend_warpgroups(const __grid_constant__ CUtensorMap map, const MmaAttention p, int items) {
#if TROUPE_HAS_WARPGROUPS
  TROUPE_DYNAMIC_SHARED(memory);
  attend<kHeadDim, kSlopes>(map, p, items, memory);
#else
  __trap();  // has_warpgroup_code() was not asked
#endif
}

template <int kHeadDim, bool kSlopes>
void launch_tiles(const LaunchStream& stream, const MmaAttention& p, const CUtensorMap& map, int items) {
  const auto kernel = attend_warpgroups<kHeadDim, kSlopes>;
  check_cuda("attention", cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                               static_cast<int>(kSharedBytes<kHeadDim>)));
  const dim3 blocks(static_cast<unsigned>(std::min(items * p.places.kv_heads, processor_count())));
  launch("attention", kernel, {blocks, kThreads, kSharedBytes<kHeadDim>}, stream, map, p, items);
}

}  // namespace

namespace {

cudaFuncAttributes loaded_code() {
  cudaFuncAttributes attributes{};
  check_cuda("loaded code", cudaFuncGetAttributes(&attributes, attend_warpgroups<128, false>));
  return attributes;
}

}  // namespace

bool has_hopper_code() {
  return loaded_code().ptxVersion >= 90;
}

// The versions of sm_90 and of sm_90a are the same number; a kernel without a body has next to no registers.
bool has_warpgroup_code() {
  return has_hopper_code() && loaded_code().numRegs > kProducerRegisters;
}

void attention_wgmma(const LaunchStream& stream, MmaAttention p, const PlannedAttention& planned) {
  const auto items = static_cast<int>(planned.plan.tiles.size());
  if (items == 0) return;
  p.items = planned.tiles;
  p.in_turn = planned.in_turn;
  const CUtensorMap& map = *planned.kv_map;
  const bool slopes = p.indices.alibi_slopes != nullptr;
  if (p.places.head_dim == 64) {
    slopes ? launch_tiles<64, true>(stream, p, map, items) : launch_tiles<64, false>(stream, p, map, items);
  } else {
    slopes ? launch_tiles<128, true>(stream, p, map, items) : launch_tiles<128, false>(stream, p, map, items);
  }
}

}  // namespace troupe::cuda
