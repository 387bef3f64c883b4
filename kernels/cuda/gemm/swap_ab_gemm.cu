// out[t][n] = Σ_k x[t][k] · weight[n][k] + bias[n] (+ out[t][n]) for 9 to 64 tokens on Hopper: a decode step
// of as many requests.
//
// x (T, K) bfloat16 · weight (N, K) bfloat16 · out (T, N) bfloat16 or float32 · K a multiple of 8
// The tensor cores' products have 64 rows on their left, whatever T. So the weight's rows are the left
// operand and the tokens the columns, of which there may be any multiple of 8: the product is computed
// transposed ("swap AB"), and no lane computes a token that is not there.
//
// A turn is a tile of the weight, 64 rows of its upper half and 64 of its lower one by 64 columns, and the
// tokens' same 64 columns. There is a block a multiprocessor; all turns, tile row after tile row, are dealt
// out to the blocks in equal shares, whatever the shape ("stream-K", Osama et al. 2023): each reads as many
// bytes of the weight. A block is two warpgroups that multiply, 64 of the 128 rows each, and a warp that has
// the copy engine bring turns, four to six ahead, beyond the end of a tile row as well. The weight is
// constant: the first turns of it are on their way while the launch before this one still runs, which this
// one leaves room for beside its own.
//
// Gated, out[t][f] = silu(gate) · up of a weight of 2F rows, gate over up: the copy engine lays the halves'
// rows by eights in turns, so that a lane's rows g and g + 8 are gate and up of one feature. Tiles are the
// same, so are the sums, and it rounds where product and silu_mul would. What is saved is a launch, and 4 · T
// · F numbers that are not written and read.
//
// A share's ends may cut a tile row. Then each block leaves its sums of it in memory, and the block that is
// the last to do so adds up all of them, in the order of their columns. Where the cuts are is a matter of N,
// K and the device, not of T; so a token's bits depend on its row alone. (That sums of m64nNk16 do not depend
// on N is counted on; NVIDIA does not say so. cuda_gpu_test asks.)
//
// Bytes: 2 · N · K, read once, the floor up to some 200 tokens. x comes from L2 for each 128 rows of the
// weight: T / 128 of the weight's bytes there. Sums of cut tile rows: at most 2 · 512 · T a block, written
// and read in L2: for 64 tokens and N = K = 4,096 5 MB each way, beside 33.5 of the weight. In flight: 64 to
// 96 KB of the weight a multiprocessor, where 4.8 TB/s want some 45. Arithmetic: 64 tokens' turn is 256
// clocks of the tensor cores, and 790 of an H200's memory. Registers and shared memory:
// tests/bench/RESULTS.md. Not yet run on a device: whether it is taken is measured there (gemm.h).

#include <string>
#include <type_traits>

#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/device/hopper.cuh"
#include "kernels/cuda/device/phase_ring.cuh"
#include "kernels/cuda/device/ptx.cuh"
#include "kernels/cuda/gemm/gemm_kernels.h"

namespace troupe::cuda {
namespace swap_ab {

inline constexpr int kConsumers = 2;   // warpgroups
inline constexpr int kGroupRows = 64;  // of the weight, of each
inline constexpr int kWarpsOfGroup = kWarpgroup / kWarp;
inline constexpr int kConsumerWarps = kConsumers * kWarpsOfGroup;
inline constexpr int kThreads = kConsumers * kWarpgroup + kWarp;
inline constexpr int kEightRows = 8 * kSwizzled * static_cast<int>(sizeof(__nv_bfloat16));
static_assert(kSwapAbRows == kConsumers * kGroupRows && kSwapAbColumns == kSwizzled, "whole tiles");
// So much shared memory that two blocks have room in a multiprocessor's 228 KB: this launch's, and the next
// one's, which brings its first turns.
inline constexpr int kSharedBytesMax = 113 << 10;

// kTokens: the columns of a product.
template <int kTokens>
struct Shared {
  static constexpr int kWeightElements = kSwapAbRows * kSwapAbColumns;
  static constexpr int kXElements = kTokens * kSwapAbColumns;
  static constexpr int kTurnBytes = (kWeightElements + kXElements) * static_cast<int>(sizeof(__nv_bfloat16));
  static constexpr int kStages = (kSharedBytesMax - 2 * kSwizzleAlignment) / kTurnBytes;

  __nv_bfloat16 weight[kStages][kWeightElements];
  __nv_bfloat16 x[kStages][kXElements];
  PhaseBarrier full[kStages];     // there it is
  PhaseBarrier free[kStages];     // read by no warp any more
  unsigned arrivals[kConsumers];  // at a cut tile row, before a warpgroup's own

  __device__ __forceinline__ void init_barriers() {
    for (int i = 0; i < kStages; ++i) {
      init_barrier(full[i], 1);
      init_barrier(free[i], kConsumerWarps);
    }
    fence_barrier_init();
  }
};

template <int kTokens>
constexpr size_t kSharedBytes = sizeof(Shared<kTokens>) + kSwizzleAlignment;
static_assert(kSharedBytes<16> <= kSharedBytesMax && kSharedBytes<24> <= kSharedBytesMax &&
              kSharedBytes<32> <= kSharedBytesMax && kSharedBytes<40> <= kSharedBytesMax &&
              kSharedBytes<48> <= kSharedBytesMax && kSharedBytes<56> <= kSharedBytesMax &&
              kSharedBytes<64> <= kSharedBytesMax);

template <typename Out, bool kGated>
struct Product {
  Out* out;
  const float* bias;  // or null
  float4* partials;
  unsigned* arrivals;
  int tokens, features;   // of out
  int half;               // rows of the weight's upper half
  int tile_turns, turns;  // of a tile row, of all
  bool accumulate;

  // Where a block's share of the turns begins; its end is where that of the block behind it does. (Turns
  // times blocks are below 2^31.)
  __device__ __forceinline__ int begin_of(int block) const {
    return static_cast<int>(static_cast<unsigned>(turns) * static_cast<unsigned>(block) / gridDim.x);
  }
  // The block whose share a turn is in.
  __device__ __forceinline__ int block_of(int turn) const {
    return static_cast<int>((static_cast<unsigned>(turn + 1) * gridDim.x - 1) / static_cast<unsigned>(turns));
  }
};

#if TROUPE_HAS_WARPGROUPS

template <int kTokens>
__device__ __forceinline__ Shared<kTokens>& aligned(unsigned char* memory) {
  const uint32_t beyond = shared_address(memory) % kSwizzleAlignment;
  return *reinterpret_cast<Shared<kTokens>*>(memory + (kSwizzleAlignment - beyond) % kSwizzleAlignment);
}

// The warp that brings a block's turns [turn, end): its first lane does.
template <int kTokens, bool kGated>
struct Producer {
  using S = Shared<kTokens>;

  const CUtensorMap &weight, &x;
  S& shared;
  int tile_turns, half;
  int turn, end;
  PhaseRing<S::kStages> ring = {};

  __device__ __forceinline__ void ask_for_weight(int of, int at) const {
    const int column = of % tile_turns * kSwapAbColumns, row = of / tile_turns * kGroupRows;
    if constexpr (kGated) {
#pragma unroll
      for (int i = 0; i < kGroupRows; i += 8)
        copy_planes(shared.weight[at] + 2 * i * kSwizzled, weight, column, row + i, shared.full[at]);
    } else {
      copy_box(shared.weight[at], weight, column, row, shared.full[at]);
      copy_box(shared.weight[at] + kGroupRows * kSwizzled, weight, column, half + row, shared.full[at]);
    }
  }
  __device__ __forceinline__ void ask_for_x(int of, int at) const {
    copy_box(shared.x[at], x, of % tile_turns * kSwapAbColumns, 0, shared.full[at]);
    arrive_and_expect(shared.full[at], S::kTurnBytes);
  }
  // As far as there is room from the start on.
  __device__ __forceinline__ int turns_ahead() const {
    return min(end - turn, S::kStages);
  }
  __device__ __forceinline__ void ask_for_weights_ahead() const {
    for (int i = 0; i < turns_ahead(); ++i) ask_for_weight(turn + i, i);
  }
  // All that is missing then.
  __device__ __forceinline__ void run() {
    const int ahead = turns_ahead();
    for (int i = 0; i < ahead; ++i) ask_for_x(turn++, i);
    for (; turn < end; ++turn) {
      wait(shared.free[ring.at], ring.parity);
      ask_for_weight(turn, ring.at);
      ask_for_x(turn, ring.at);
      ring.advance();
    }
  }
};

// A warpgroup's 64 rows of a tile row. A lane has of its warp's 16 rows and of every eight tokens what
// mma_m16n8k16's lane has (ptx.cuh).
template <int kTokens, typename Out, bool kGated>
struct Consumer {
  static constexpr int kEights = kTokens / 8;
  using S = Shared<kTokens>;
  using Sums = float[kEights][4];

  const Product<Out, kGated>& p;
  S& shared;
  int group;  // the warpgroup
  PhaseRing<S::kStages> ring = {};

  // sums = the products of `turns` turns, one at least.
  __device__ __forceinline__ void multiply(int turns, Sums& sums) {
    int before = 0;
    for (int i = 0; i < turns; ++i) {
      wait(shared.full[ring.at], ring.parity);
      const uint64_t a = tile_descriptor(shared.weight[ring.at] + group * kGroupRows * kSwizzled, kEightRows);
      const uint64_t b = tile_descriptor(shared.x[ring.at], kEightRows);
      fence_products();
#pragma unroll
      for (int k = 0; k < kSwapAbColumns / 16; ++k)
        multiply_tiles(sums, advanced(a, k * 32), advanced(b, k * 32), i > 0 || k > 0);
      commit_products();
      wait_products<1>();
      if (i > 0) release(shared.free[before]);
      before = ring.at;
      ring.advance();
    }
    wait_products<0>();
    fence_operand(sums);
    release(shared.free[before]);
  }

  // The sums of a piece of the tile row that begins with turn `row`, which is the block's first piece or not.
  // Whether this is the last piece to come; then they become those of the whole.
  __device__ __forceinline__ bool add_pieces(int row, bool is_first, Sums& sums) const {
    const int first = p.block_of(row), last = p.block_of(row + p.tile_turns - 1);
    unsigned* const arrivals = p.arrivals + row / p.tile_turns * kSwapAbArrivals + group;
    float4* const own = place_of(static_cast<int>(blockIdx.x), is_first);
#pragma unroll
    for (int n = 0; n < kEights; ++n)
      own[n * kWarpgroup] = make_float4(sums[n][0], sums[n][1], sums[n][2], sums[n][3]);
    named_barrier(1 + group, kWarpgroup);
    const bool speaks = threadIdx.x % kWarpgroup == 0;
    if (speaks) {
      __threadfence();  // behind the barrier it covers what all of them wrote
      shared.arrivals[group] = atomicAdd(arrivals, 1u);
    }
    named_barrier(1 + group, kWarpgroup);
    if (shared.arrivals[group] != static_cast<unsigned>(last - first)) return false;
    __threadfence();
    if (speaks) *arrivals = 0;
#pragma unroll
    for (int n = 0; n < kEights; ++n) {
      for (float& sum : sums[n]) sum = 0;
    }
#pragma unroll(kTokens <= 32 ? 2 : 1)  // a piece of more is all that the way from L2 carries meanwhile
    for (int block = first; block <= last; ++block) {
      const float4* const from = place_of(block, p.begin_of(block) >= row);
#pragma unroll
      for (int n = 0; n < kEights; ++n) {
        const float4 piece = from[n * kWarpgroup];
        sums[n][0] += piece.x;
        sums[n][1] += piece.y;
        sums[n][2] += piece.z;
        sums[n][3] += piece.w;
      }
    }
    return true;
  }

  // Adds bias and what was there, or gates, and writes.
  __device__ __forceinline__ void write(int tile, Sums& sums) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const int begin = kGated ? 0 : group * p.half, end = kGated || group > 0 ? p.features : p.half;
    const int of_tile = kGated ? warp * 8 : warp % kWarpsOfGroup * 16;
    const int feature = begin + tile * kGroupRows + of_tile + lane / 4;
    const int token = lane % 4 * 2;
    Out* const first = p.out + int64_t{token} * p.features + feature;
    const auto is_inside = [&](int n, int i) {
      return feature + i / 2 * 8 < end && token + n * 8 + i % 2 < p.tokens;
    };
    const auto place = [&](int n, int i) { return first + (n * 8 + i % 2) * p.features + i / 2 * 8; };
    float bias[2] = {};  // of rows g and g + 8
    if (p.bias != nullptr && feature < end) bias[0] = p.bias[feature];
    if (p.bias != nullptr && feature + (kGated ? 0 : 8) < end) bias[1] = p.bias[feature + (kGated ? end : 8)];
    // Some at a time: registers for where all of them are would be too many.
    constexpr int kAtOnce = 4, kOfLane = kGated ? 2 : 4;
#pragma unroll
    for (int from = 0; from < kEights; from += kAtOnce) {
      const int to = from + kAtOnce < kEights ? from + kAtOnce : kEights;
#pragma unroll
      for (int n = from; n < to; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          sums[n][i] += bias[i / 2];
          if (!kGated && p.accumulate && is_inside(n, i)) sums[n][i] += to_f32(*place(n, i));
        }
      }
#pragma unroll
      for (int n = from; n < to; ++n) {
#pragma unroll
        for (int i = 0; i < kOfLane; ++i) {
          if (!is_inside(n, i)) continue;
          float value = sums[n][i];
          if (kGated) value = silu_times(to_f32(from_f32<Out>(value)), to_f32(from_f32<Out>(sums[n][i + 2])));
          *place(n, i) = from_f32<Out>(value);
        }
      }
    }
  }

  // The block's share.
  __device__ __forceinline__ void run(int begin, int end) {
    for (int turn = begin; turn < end;) {
      const int tile = turn / p.tile_turns, row = tile * p.tile_turns;
      const int until = min(end, row + p.tile_turns);
      Sums sums;
      multiply(until - turn, sums);
      const bool is_whole = until - turn == p.tile_turns;
      if (is_whole || add_pieces(row, turn == begin, sums)) write(tile, sums);
      turn = until;
    }
  }

 private:
  // A lane's part of what a block leaves: of its first piece, or of its last.
  __device__ __forceinline__ float4* place_of(int block, bool is_first) const {
    const int piece = (block * 2 + (is_first ? 0 : 1)) * kConsumers + group;
    return p.partials + int64_t{piece} * (kEights * kWarpgroup) + threadIdx.x % kWarpgroup;
  }
};

#endif

template <int kTokens, typename Out, bool kGated>
__global__ void __launch_bounds__(kThreads, 2)
    multiply_swapped(const __grid_constant__ CUtensorMap weight, const __grid_constant__ CUtensorMap x,
                     const Product<Out, kGated> p) {
#if TROUPE_HAS_WARPGROUPS
  TROUPE_DYNAMIC_SHARED(memory);
  Shared<kTokens>& shared = aligned<kTokens>(memory);
  // The same for a warp, and known to be: addresses of tiles are then computed once, not by every thread.
  const int warp = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / kWarp, 0);
  const auto block = static_cast<int>(blockIdx.x);
  const int begin = p.begin_of(block), end = p.begin_of(block + 1);
  const bool produces = threadIdx.x == kConsumers * kWarpgroup;
  Producer<kTokens, kGated> producer{weight, x, shared, p.tile_turns, p.half, begin, end};
  if (produces) {
    prefetch_map(weight);
    prefetch_map(x);
    shared.init_barriers();
    producer.ask_for_weights_ahead();
  }
  await_launch_before();
  __syncthreads();
  if (warp < kConsumerWarps) {
    Consumer<kTokens, Out, kGated>{p, shared, warp / kWarpsOfGroup}.run(begin, end);
  } else if (produces) {
    producer.run();
  }
#else
  __trap();  // has_swap_ab_code() was not asked
#endif
}

template <int kTokens, typename Out, bool kGated>
void launch_tokens(const LaunchStream& stream, const ProductOperands& o, const SwapAbForm& form) {
  const SwapAbSchedule& schedule = form.schedule;
  const Product<Out, kGated> p{o.out.as<Out>(),
                               o.bias.as<const float>(),
                               reinterpret_cast<float4*>(form.partials),
                               form.arrivals,
                               static_cast<int>(o.x.shape[0]),
                               static_cast<int>(o.out.shape[1]),
                               static_cast<int>((o.weight.shape[0] + 1) / 2),
                               schedule.tile_turns,
                               schedule.tile_turns * schedule.tiles,
                               o.accumulate};
  const Grid grid{dim3(static_cast<unsigned>(schedule.blocks)), kThreads, kSharedBytes<kTokens>};
  launch("swap_ab_product", multiply_swapped<kTokens, Out, kGated>, grid, stream, form.weight, form.x, p);
}

// f(a type with the value `tokens`), of those that there are kernels for.
template <int kTokens = 16, typename F>
void with_tokens(int tokens, const F& f) {
  if (tokens == kTokens) return f(std::integral_constant<int, kTokens>{});
  if constexpr (kTokens < kSwapAbRowsMax) {
    with_tokens<kTokens + 8>(tokens, f);
  } else {
    check_failed("swap_ab_product", "x has " + std::to_string(tokens) + " rows");
  }
}

template <int kTokens, typename Out, bool kGated>
void load() {
  check_cuda("swap_ab_product", cudaFuncSetAttribute(multiply_swapped<kTokens, Out, kGated>,
                                                     cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                     static_cast<int>(kSharedBytes<kTokens>)));
}

}  // namespace swap_ab

void load_swap_ab_gemm() {
  for (int tokens = swap_ab_box_rows(kSwapAbRowsMin); tokens <= kSwapAbRowsMax; tokens += 8) {
    swap_ab::with_tokens(tokens, [](auto count) {
      swap_ab::load<count.value, float, false>();
      swap_ab::load<count.value, __nv_bfloat16, false>();
      swap_ab::load<count.value, __nv_bfloat16, true>();
    });
  }
}

// A kernel without a body has next to no registers.
bool has_swap_ab_code() {
  constexpr int kRegistersOfNone = 32;
  cudaFuncAttributes attributes{};
  check_cuda("loaded code", cudaFuncGetAttributes(&attributes, swap_ab::multiply_swapped<64, float, false>));
  return attributes.numRegs > kRegistersOfNone;
}

void swap_ab_gemm(const LaunchStream& stream, const ProductOperands& operands, const SwapAbForm& form) {
  swap_ab::with_tokens(swap_ab_box_rows(operands.x.shape[0]), [&](auto count) {
    constexpr int kTokens = count.value;
    if (form.gated) return swap_ab::launch_tokens<kTokens, __nv_bfloat16, true>(stream, operands, form);
    if (operands.out.dtype == DType::kFloat32)
      return swap_ab::launch_tokens<kTokens, float, false>(stream, operands, form);
    swap_ab::launch_tokens<kTokens, __nv_bfloat16, false>(stream, operands, form);
  });
}

}  // namespace troupe::cuda
