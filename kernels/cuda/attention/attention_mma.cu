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
// Pieces begin at multiples of kPieceKeys and are merged in order by merge_attention.cu; tiles begin at key
// 0. So a decoding request of no more than kDecodeRows heads gets the same bits whatever else is in the
// batch; a prompt gets them however it is cut, as long as its chunks are tiles and those are not cut in their
// turn.
//
// Bytes: 4 · keys · C a key/value head, once a tile of rows. Flops: 4 · rows · keys · C, half of it masked at
// the diagonal; on Hopper attention_wgmma.cu may have the tiles. Decode wastes the rows of the 16 that a
// group does not fill; at 64 bytes a clock and multiprocessor its products still keep pace with memory;
// attention_simt.cu wastes none, and has the pieces of models where it is measured to be faster.
// Measured on an H200: decodes of 128 requests with 1,024 keys .97 of their bytes at a group of one head, .82
// at four; tiles 230 TFLOP/s. Tried and slower there: pieces merged by the block that writes the last of a
// request's (it waits for its writes and for a counter, 1.2 µs of a block's 13), and a cascade's shared items
// in one launch with the pieces (which have two blocks of a multiprocessor then, for three).

#include <algorithm>

#include "kernels/cuda/attention/attention_kernels.h"
#include "kernels/cuda/attention/attention_mma_rows.cuh"
#include "kernels/cuda/attention/warp_attention.cuh"
#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/device/find_device.h"
#include "kernels/cuda/device/ptx.cuh"

namespace troupe::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarp;
constexpr int kKeys = 64;       // of a turn
constexpr int kShortKeys = 32;  // of a tile's, where shared memory is small
constexpr int kPad = 8;         // elements, a row of shared memory

// kGroups: 1 for tiles; kWarps for pieces, whose warps share the keys. kKeysOfTurn: keys of a turn.
template <int kDims, int kGroups, int kKeysOfTurn>
struct Shape {
  static constexpr int kHeadDim = kDims;
  static constexpr int kKeyGroups = kGroups;
  static constexpr int kKeys = kKeysOfTurn;
  static constexpr int kRows = kKeyGroups == 1 ? kTileRows : kDecodeRows;
  static constexpr int kStride = kHeadDim + kPad;
  static constexpr int kWarpKeys = kKeys / kKeyGroups;  // of a turn
  static constexpr int kTileElements = kKeys * kStride;
  // Two turns of keys and values. Pieces' queries are few and lie before them: that the second turn is asked
  // for with the first counts for more, with four turns a piece.
  static constexpr bool kQueriesInTurn = kKeyGroups == 1;
  static constexpr int kQueryElements = kRows * kStride;
  static constexpr size_t kSharedBytes =
      sizeof(__nv_bfloat16) * ((kQueriesInTurn ? 0 : kQueryElements) + 4 * kTileElements);
  static_assert(!kQueriesInTurn || kQueryElements <= 2 * kTileElements, "they fit a turn's memory");
  // Blocks that a multiprocessor has at once: for as many Hopper's shared memory has room, at 64 dims for one
  // more, which registers do not have.
  static constexpr int kBlocks = (kHeadDim == 128 ? 2 : 3) + (kKeyGroups == 1 ? 0 : 1);
  static_assert(kRows == (kKeyGroups == 1 ? kWarps * 16 : 16), "16 rows a warp");
  static_assert(kHeadDim % 16 == 0 && kWarpKeys % 16 == 0, "whole products");
  static_assert(kKeyGroups == 1 || sizeof(float) * kWarps * kRows * (kHeadDim + 2) <= kSharedBytes,
                "the warps' sums fit where the keys were");
};

template <typename S, bool kCascade>
__device__ __forceinline__ void load_queries(const MmaAttention& p, const Work& w, __nv_bfloat16* to) {
  constexpr int kChunks = S::kHeadDim / 8;
  for (int i = static_cast<int>(threadIdx.x); i < S::kRows * kChunks; i += kThreads) {
    const int row = w.item.first_row + i / kChunks;
    const bool valid = row < w.item.end_row;
    const int64_t place = valid ? row_of<kCascade>(p, w, row).place * S::kHeadDim + i % kChunks * 8 : 0;
    const __nv_bfloat16* const from = p.q + place;
    cp_async_16(to + i / kChunks * S::kStride + i % kChunks * 8, from, valid);
  }
}

// Keys [first, first + S::kKeys) of the item and their values; zeros past its end (a weight of 0 times what
// was there before could be a NaN).
template <typename S>
__device__ __forceinline__ void load_keys(const MmaAttention& p, const Work& w, int first,
                                          __nv_bfloat16* keys, __nv_bfloat16* values) {
  constexpr int kChunks = S::kHeadDim / 8;
  constexpr int kCopies = S::kKeys * kChunks / kThreads;  // of a thread
  const int64_t to_values = int64_t{p.places.block_size} * S::kHeadDim;
  // All of the table's entries first: a copy behind each would wait for it alone.
  int blocks[kCopies];
#pragma unroll
  for (int i = 0; i < kCopies; ++i) {
    const int key = first + (i * kThreads + static_cast<int>(threadIdx.x)) / kChunks;
    blocks[i] = key < w.item.end_key ? w.table[p.places.block_of(key)] : 0;
  }
#pragma unroll
  for (int i = 0; i < kCopies; ++i) {
    const int at = i * kThreads + static_cast<int>(threadIdx.x);
    const int key = first + at / kChunks;
    const bool valid = key < w.item.end_key;
    const __nv_bfloat16* const from = p.kv + p.places.tile(blocks[i], 0, w.kv_head) +
                                      p.places.in_block(key) * S::kHeadDim + at % kChunks * 8;
    const int to = at / kChunks * S::kStride + at % kChunks * 8;
    cp_async_16(keys + to, from, valid);
    cp_async_16(values + to, from + to_values, valid);
  }
}

// Scores of keys [first, …) become weights 2^(score - largest); what was summed before is rescaled.
template <int kHeadDim, int kWarpKeys>
__device__ __forceinline__ void soften(const MmaAttention& p, const Rows& rows, int first, int end_key,
                                       float (&scores)[kWarpKeys / 8][4], Running<kHeadDim>& running) {
  const int q = static_cast<int>(threadIdx.x) % 4;
  const bool slopes = p.indices.alibi_slopes != nullptr;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float largest = running.largest[i];
#pragma unroll
    for (int n = 0; n < kWarpKeys / 8; ++n) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const int key = first + n * 8 + 2 * q + c;
        float score = scores[n][2 * i + c] * p.scale_log2;
        if (slopes) score += rows.slope[i] * static_cast<float>(key - rows.position[i]);
        if (key > rows.position[i] || key >= end_key) score = -INFINITY;
        scores[n][2 * i + c] = score;
        largest = fmaxf(largest, score);
      }
    }
    largest = quad_max(largest);
    // A row that has seen no key yet: its weights are 2^-inf, not 2^(inf - inf).
    const float base = largest == -INFINITY ? 0.0f : largest;
    const float before = exp2_approx(running.largest[i] - base);
    running.largest[i] = largest;
    running.total[i] *= before;
#pragma unroll
    for (int d = 0; d < kHeadDim / 8; ++d) {
      running.sums[d][2 * i] *= before;
      running.sums[d][2 * i + 1] *= before;
    }
#pragma unroll
    for (int n = 0; n < kWarpKeys / 8; ++n) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const float weight = exp2_approx(scores[n][2 * i + c] - base);
        scores[n][2 * i + c] = weight;
        running.total[i] += weight;
      }
    }
  }
}

// Pieces: the four warps have different keys of the same rows.
template <int kHeadDim, bool kCascade>
__device__ __forceinline__ void merge_warps(const MmaAttention& p, const Work& w,
                                            const Running<kHeadDim>& running, float* shared) {
  constexpr int kWidth = kHeadDim + 2;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int g = static_cast<int>(threadIdx.x) % kWarp / 4;
  const int q = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float* const to = shared + (warp * kDecodeRows + g + 8 * i) * kWidth;
#pragma unroll
    for (int d = 0; d < kHeadDim / 8; ++d) {
      to[d * 8 + 2 * q] = running.sums[d][2 * i];
      to[d * 8 + 2 * q + 1] = running.sums[d][2 * i + 1];
    }
    if (q == 0) {
      to[kHeadDim] = running.largest[i];
      to[kHeadDim + 1] = running.total[i];
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kDecodeRows * kHeadDim / 2; i += kThreads) {
    const int row = i / (kHeadDim / 2);
    const int dim = i % (kHeadDim / 2) * 2;
    float largest = -INFINITY;
#pragma unroll
    for (int v = 0; v < kWarps; ++v)
      largest = fmaxf(largest, shared[(v * kDecodeRows + row) * kWidth + kHeadDim]);
    const float base = largest == -INFINITY ? 0.0f : largest;
    float2 sums = make_float2(0.0f, 0.0f);
    float total = 0;
#pragma unroll
    for (int v = 0; v < kWarps; ++v) {
      const float* const from = shared + (v * kDecodeRows + row) * kWidth;
      const float factor = exp2_approx(from[kHeadDim] - base);
      sums.x += from[dim] * factor;
      sums.y += from[dim + 1] * factor;
      total += from[kHeadDim + 1] * factor;
    }
    write_pair<kHeadDim, kCascade>(p, w, w.item.first_row + row, dim, {sums, largest, total});
  }
}

// The left operand's four tiles: rows 0–7 and 8–15 of dims 0–7, then of 8–15; `row`: the warp's first.
template <typename S>
__device__ __forceinline__ void read_queries(const __nv_bfloat16* row, uint32_t (&q)[S::kHeadDim / 16][4]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int d = 0; d < S::kHeadDim / 16; ++d)
    ldmatrix_x4(q[d], row + lane % 16 * S::kStride + lane / 16 * 8 + d * 16);
}

template <typename S, bool kCascade>
__global__ void __launch_bounds__(kThreads, S::kBlocks) attend_tiles(MmaAttention p) {
  constexpr int kHeadDim = S::kHeadDim;
  TROUPE_DYNAMIC_SHARED(shared);
  auto* const memory = reinterpret_cast<__nv_bfloat16*>(shared);
  __nv_bfloat16* const keys = memory + (S::kQueriesInTurn ? 0 : S::kQueryElements);
  __nv_bfloat16* const values = keys + S::kTileElements;
  constexpr int kTurnElements = 2 * S::kTileElements;  // keys and values
  __nv_bfloat16* const queries = S::kQueriesInTurn ? keys + kTurnElements : memory;
  const Work w = work_of(p);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int first_row = S::kKeyGroups == 1 ? warp * 16 : 0;            // of the tile
  const int first_key = S::kKeyGroups == 1 ? 0 : warp * S::kWarpKeys;  // of a turn

  await_launch_before();
  if (w.item.first_row == w.item.end_row) return;  // round_up()'s
  load_queries<S, kCascade>(p, w, queries);
  if constexpr (S::kQueriesInTurn) cp_async_commit();
  load_keys<S>(p, w, w.item.first_key, keys, values);
  cp_async_commit();

  const Rows rows = rows_of<kCascade>(p, w, w.item.first_row + first_row);
  Running<kHeadDim> running;
  uint32_t q[kHeadDim / 16][4];
  if constexpr (S::kQueriesInTurn) {
    cp_async_wait<1>();  // the queries
    __syncthreads();
    read_queries<S>(queries + first_row * S::kStride, q);
    __syncthreads();  // their memory is the second turn's
  }
  int turn = 0;
  for (int key = w.item.first_key; key < w.item.end_key; key += S::kKeys, turn ^= 1) {
    if (key + S::kKeys < w.item.end_key) {
      const int other = (turn ^ 1) * kTurnElements;
      load_keys<S>(p, w, key + S::kKeys, keys + other, values + other);
    }
    cp_async_commit();
    cp_async_wait<1>();  // all but the turn just asked for
    __syncthreads();
    if constexpr (!S::kQueriesInTurn) {
      if (key == w.item.first_key) read_queries<S>(queries + first_row * S::kStride, q);
    }
    const int here = turn * kTurnElements + first_key * S::kStride;
    float scores[S::kWarpKeys / 8][4] = {};
    score_keys<kHeadDim, S::kWarpKeys, S::kStride>(q, keys + here, scores);
    soften<kHeadDim, S::kWarpKeys>(p, rows, key + first_key, w.item.end_key, scores, running);
    add_values<kHeadDim, S::kWarpKeys, S::kStride>(scores, values + here, running.sums);
    __syncthreads();  // this turn's memory is the next but one's
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) running.total[i] = quad_sum(running.total[i]);

  if constexpr (S::kKeyGroups > 1) {
    merge_warps<kHeadDim, kCascade>(p, w, running, reinterpret_cast<float*>(shared));
  } else {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = w.item.first_row + first_row + lane / 4 + 8 * i;
#pragma unroll
      for (int d = 0; d < kHeadDim / 8; ++d) {
        const float2 sums = make_float2(running.sums[d][2 * i], running.sums[d][2 * i + 1]);
        write_pair<kHeadDim, kCascade>(p, w, row, d * 8 + lane % 4 * 2,
                                       {sums, running.largest[i], running.total[i]});
      }
    }
  }
}

// The driver is told once how much shared memory it may have: a step asks for it in every layer.
template <typename S, bool kCascade>
auto* prepared_kernel() {
  const auto kernel = attend_tiles<S, kCascade>;
  static const cudaError_t told = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                       static_cast<int>(S::kSharedBytes));
  check_cuda("attention", told);
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

template <int kHeadDim>
void launch_plan(const LaunchStream& stream, const MmaAttention& p, const PlannedAttention& planned) {
  with_tile_shape<kHeadDim>([&](auto shape) {
    using S = decltype(shape);
    launch_items<S, true>(stream, p, planned.shared, planned.plan.shared.size());
    if (planned.kv_map != nullptr) {
      attention_wgmma(stream, p, planned);
    } else {
      launch_items<S, false>(stream, p, planned.tiles, planned.plan.tiles.size());
    }
  });
  if (planned.lanes) {
    attention_simt(stream, p, planned.pieces, planned.plan.pieces.size());
  } else {
    using S = Shape<kHeadDim, kWarps, kKeys>;
    launch_items<S, false>(stream, p, planned.pieces, planned.plan.pieces.size());
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

bool tile_attention_takes(const AttentionParams& params, const BoundKv& kv) {
  const bool whole = reinterpret_cast<uintptr_t>(params.q.data) % 16 == 0 &&
                     reinterpret_cast<uintptr_t>(params.out.data) % 16 == 0 &&
                     reinterpret_cast<uintptr_t>(kv.data) % 16 == 0;
  return whole && tile_attention_takes(params.q.dtype, kv.layout);
}

int32_t tiles_at_once(const KvLayout& layout, bool warpgroups) {
  if (warpgroups) return processor_count() / layout.kv_heads;
  const int blocks = layout.head_dim == 64 ? tile_blocks_of_processor<64>() : tile_blocks_of_processor<128>();
  return processor_count() * blocks / layout.kv_heads;
}

int64_t partial_floats(const AttentionPlan& plan, const BoundKv& kv) {
  return int64_t{plan.partial_count} * floats_of_partial(kv.layout);
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
  p.partials = planned.partials;
  p.shared_rows = planned.shared_rows;
  p.indices = indices;
  p.block_table_stride = params.block_table_stride;
  p.heads = static_cast<int>(params.q.shape[1]);
  p.group = p.heads / kv.layout.kv_heads;
  p.by_group = Divisor(p.group);
  p.places = KvPlaces(kv.layout, params.layer);
  p.scale_log2 = params.scale * kLog2e;
  if (kv.layout.head_dim == 64) {
    launch_plan<64>(stream, p, planned);
  } else {
    launch_plan<128>(stream, p, planned);
  }
  merge_attention(stream, params, kv, indices, planned);
}

}  // namespace troupe::cuda
