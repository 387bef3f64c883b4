// out[t][h] = Σ_j softmax_j(scale · q[t][h]·k[j] + slope[h] · (j - p)) · v[j], j in [0, p], p the position of
// t, by tensor cores: prefill and decode, bfloat16, head dims 64 and 128.
//
// q (T, H, C) · keys and values in the blocks of t's request (kernels.h) · out (T, H·C)
// Rows are (query, head of the group): a key/value head's keys are read once for its whole group. A block is
// 4 warps and takes one item of the plan (attention_plan.h) for one key/value head, by turns of 64 keys:
//   tiles (prefill)   64 rows; warp w has rows 16w… and all keys of a turn; a piece of one has some keys
//   shared (cascade)  64 rows of several decoding requests behind one prefix, and some of its keys
//   pieces (decode)   16 rows; every warp has them, and keys 16w… of the 64; the warps' sums are merged at
//   the end
// Keys and values come to shared memory by cp.async, the next turn's while these are computed, rows padded by
// 16 bytes so that ldmatrix meets no bank twice. Tiles' queries, which are read to registers once, come to
// where the second turn's keys will: so two blocks fit an A100's multiprocessor (164 KB) at 128 dims, which
// the latency of ldmatrix needs. Where a block has 99 KB at most (sm_86, sm_89, sm_120), two blocks fit with
// turns of 32 keys. A thread looks up the blocks of all its keys of a turn before it asks for the first, else
// every copy waits for an entry of the table; at what that costs in registers, as many blocks as before fit a
// multiprocessor. Scores stay in registers: the accumulators of q·kᵀ are, pair by pair, the left operand of
// the product with v (FlashAttention-2, Dao 2023, §3). The running maximum is kept in powers of two: exp2 is
// one instruction.
//
// Pieces begin at multiples of kPieceKeys and are merged in order, by the block that writes the last of a
// request's (merged_pieces.cuh); tiles begin at key 0. So a decoding request of no more than kDecodeRows
// heads gets the same bits whatever else is in the batch; a prompt gets them however it is cut, as long as
// its chunks are tiles and those are not cut in their turn.
//
// Bytes: 4 · keys · C a key/value head, once a tile of rows. Flops: 4 · rows · keys · C, half of it masked at
// the diagonal; on Hopper attention_wgmma.cu may have the tiles. Decode wastes the rows of the 16 that a
// group does not fill; at 64 bytes a clock and multiprocessor its products still keep pace with memory;
// attention_simt.cu wastes none, and has the pieces of models where it is measured to be faster. Not yet
// measured on a GPU.

#include <algorithm>

#include "kernels/cuda/attention/attention_kernels.h"
#include "kernels/cuda/attention/attention_mma_item.cuh"
#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/device/find_device.h"
#include "kernels/cuda/device/ptx.cuh"

namespace troupe::cuda {
namespace mma {
namespace {

template <typename S, bool kCascade>
__global__ void __launch_bounds__(kThreads, S::kBlocks) attend_tiles(MmaAttention p) {
  TROUPE_DYNAMIC_SHARED(shared);
  const Work w = work_of(p);
  await_launch_before();
  attend_item<S, kCascade>(p, w, shared);
}

// A cascade's shared items and all pieces: the tensor cores are busy with the former, memory with the latter.
// So they take turns while there are both, and a multiprocessor has some of each.
struct CascadeItems {
  const AttentionItem *shared, *pieces;
  int shared_count, piece_count;

  // The number of the shared item that is the block's, or -1 - that of its piece.
  __device__ __forceinline__ int item_of(int block) const {
    const int both = 2 * min(shared_count, piece_count);
    if (block < both) return block % 2 == 0 ? block / 2 : -1 - block / 2;
    const int other = block - both / 2;  // of the kind that is left
    return shared_count > piece_count ? other : -1 - other;
  }
};

// S: the shape of tiles.
template <typename S>
__global__ void __launch_bounds__(kThreads, S::kBlocks) attend_cascade(MmaAttention p, CascadeItems items) {
  TROUPE_DYNAMIC_SHARED(shared);
  const int number = items.item_of(static_cast<int>(blockIdx.x));
  const AttentionItem& item = number >= 0 ? items.shared[number] : items.pieces[-1 - number];
  const Work w = work_of(p, item, static_cast<int>(blockIdx.y));
  await_launch_before();
  if (number >= 0) {
    attend_item<S, true>(p, w, shared);
  } else {
    attend_item<PieceShape<S::kHeadDim>, false>(p, w, shared);
  }
}

template <typename S, bool kCascade>
auto* prepared_kernel() {
  const auto kernel = attend_tiles<S, kCascade>;
  check_cuda("attention", cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                               static_cast<int>(S::kSharedBytes)));
  return kernel;
}

template <typename S, bool kCascade>
void launch_items(const LaunchStream& stream, MmaAttention p, const AttentionItem* items, size_t count) {
  if (count == 0) return;
  p.items = items;
  const dim3 blocks(static_cast<unsigned>(count), static_cast<unsigned>(p.places.kv_heads));
  launch("attention", prepared_kernel<S, kCascade>(), {blocks, kThreads, S::kSharedBytes}, stream, p);
}

// f(S{}), S the shape of the device's tiles: with long turns where two blocks of them fit a multiprocessor.
template <int kHeadDim, typename F>
auto with_tile_shape(F&& f) {
  using Long = Shape<kHeadDim, 1, kKeys>;
  if constexpr (kHeadDim == 128) {
    constexpr size_t kReservedBytes = 1024;  // by CUDA, for each block (programming guide, "Shared Memory")
    const bool fits = 2 * (Long::kSharedBytes + kReservedBytes) <= shared_bytes_of_processor();
    if (!fits) return f(Shape<kHeadDim, 1, kShortKeys>{});
  }
  return f(Long{});
}

template <typename S>
void launch_cascade(const LaunchStream& stream, const MmaAttention& p, const CascadeItems& items) {
  constexpr size_t kSharedBytes = std::max(S::kSharedBytes, PieceShape<S::kHeadDim>::kSharedBytes);
  const auto kernel = attend_cascade<S>;
  check_cuda("attention", cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                               static_cast<int>(kSharedBytes)));
  const dim3 blocks(static_cast<unsigned>(items.shared_count + items.piece_count),
                    static_cast<unsigned>(p.places.kv_heads));
  launch("attention", kernel, {blocks, kThreads, kSharedBytes}, stream, p, items);
}

template <int kHeadDim>
void launch_plan(const LaunchStream& stream, const MmaAttention& p, const PlannedAttention& planned) {
  const size_t shared_count = planned.plan.shared.size(), piece_count = planned.plan.pieces.size();
  const bool together = shared_count > 0 && piece_count > 0 && !planned.lanes;
  with_tile_shape<kHeadDim>([&](auto shape) {
    using S = decltype(shape);
    if (together) {
      launch_cascade<S>(
          stream, p,
          {planned.shared, planned.pieces, static_cast<int>(shared_count), static_cast<int>(piece_count)});
    } else {
      launch_items<S, true>(stream, p, planned.shared, shared_count);
    }
    if (planned.kv_map != nullptr) {
      attention_wgmma(stream, p, *planned.kv_map, planned.tiles, planned.plan.tiles.size());
    } else {
      launch_items<S, false>(stream, p, planned.tiles, planned.plan.tiles.size());
    }
  });
  if (together) return;
  if (planned.lanes) {
    attention_simt(stream, p, planned.pieces, piece_count);
  } else {
    launch_items<PieceShape<kHeadDim>, false>(stream, p, planned.pieces, piece_count);
  }
}

template <int kHeadDim>
int tile_blocks_of_processor() {
  return with_tile_shape<kHeadDim>([](auto shape) {
    using S = decltype(shape);
    int blocks = 0;
    check_cuda("attention", cudaOccupancyMaxActiveBlocksPerMultiprocessor(
                                &blocks, prepared_kernel<S, false>(), kThreads, S::kSharedBytes));
    return std::min(blocks, S::kBlocks);  // registers are for no more
  });
}

}  // namespace
}  // namespace mma

bool tile_attention_takes(const AttentionParams& params, const BoundKv& kv) {
  const bool whole = reinterpret_cast<uintptr_t>(params.q.data) % 16 == 0 &&
                     reinterpret_cast<uintptr_t>(params.out.data) % 16 == 0 &&
                     reinterpret_cast<uintptr_t>(kv.data) % 16 == 0;
  return whole && tile_attention_takes(params.q.dtype, kv.layout);
}

int32_t tiles_at_once(const KvLayout& layout, bool warpgroups) {
  if (warpgroups) return processor_count() / layout.kv_heads;
  const int blocks =
      layout.head_dim == 64 ? mma::tile_blocks_of_processor<64>() : mma::tile_blocks_of_processor<128>();
  return processor_count() * blocks / layout.kv_heads;
}

int64_t partial_floats(const AttentionPlan& plan, const KvLayout& layout) {
  return int64_t{plan.partial_count} * floats_of_partial(layout);
}
int64_t counter_count(const AttentionPlan& plan, const KvLayout& layout) {
  return static_cast<int64_t>(plan.request_merges.size()) * layout.kv_heads;
}

void attention_mma(const LaunchStream& stream, const AttentionParams& params, const BoundKv& kv,
                   const AttentionIndices& indices, const PlannedAttention& planned) {
  if (!tile_attention_takes(params, kv) ||
      (planned.lanes && !lane_attention_takes(params.q.shape[1], kv.layout))) {
    check_failed("attention", "q is " + params.q.shape_text());
  }
  MmaAttention p{};
  p.q = params.q.as<const __nv_bfloat16>();
  p.kv = static_cast<const __nv_bfloat16*>(kv.data);
  p.out = params.out.as<__nv_bfloat16>();
  p.request_merges = planned.request_merges;
  p.partials = planned.memory.partials;
  p.counters = planned.memory.counters;
  p.shared_rows = planned.shared_rows;
  p.indices = indices;
  p.block_table_stride = params.block_table_stride;
  p.heads = static_cast<int>(params.q.shape[1]);
  p.group = p.heads / kv.layout.kv_heads;
  p.by_group = Divisor(p.group);
  p.places = KvPlaces(kv.layout, params.layer);
  p.scale_log2 = params.scale * kLog2e;
  if (kv.layout.head_dim == 64) {
    mma::launch_plan<64>(stream, p, planned);
  } else {
    mma::launch_plan<128>(stream, p, planned);
  }
  merge_attention(stream, params, kv, indices, planned);
}

}  // namespace troupe::cuda
