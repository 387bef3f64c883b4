// The pieces of decodes (attention_mma.cu) without tensor cores: out[t][h] as there, bfloat16, head dims 64
// and 128, for groups of few heads, which fill few of the 16 rows of a product.
//
// A lane has 8 dims of a key, 16 bytes: 8 or 16 lanes have a whole one, and the block's four warps 16 or 8
// keys at once, four of which are on their way together (kUnroll), keys and values. The blocks of a turn's
// keys are looked up in the turn before it, those of the first while the launch before still runs. Dots are
// summed over the lanes of a key by shuffles; maximum, total and weighted values stay with those lanes, each
// key's with its own, and are merged at the end in shared memory, in order. So a row's bits depend on its
// item alone.
//
// Bytes: 4 · keys · C a key/value head, once for kRows rows of the group. Nothing passes through shared
// memory on its way: what limits is loads in flight. Measured on an H200: as fast as tiles at a group of one
// head, .52 of the bytes where tiles have .82 at four; whether a model's pieces are these or tiles is
// measured when it starts (attention_timing.h).

#include "kernels/cuda/attention/attention_kernels.h"
#include "kernels/cuda/attention/attention_mma_rows.cuh"
#include "kernels/cuda/attention/warp_attention.cuh"
#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/device/ptx.cuh"

namespace troupe::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarp;
constexpr int kUnroll = 4;
constexpr int kDims = 8;  // of a lane

template <int kHeadDim>
struct Lanes {
  static constexpr int kOfKey = kHeadDim / kDims;
  static constexpr int kSlots = kThreads / kOfKey;  // keys at once
  static_assert(kWarp % kOfKey == 0, "a key's lanes are of one warp");
};

// A row's sums over the keys of one slot; a lane has its own dims.
struct LaneSums {
  float sums[kDims] = {};
  float largest = -INFINITY;
  float total = 0;
};

__device__ __forceinline__ void unpack(const uint4& from, float (&to)[kDims]) {
  const uint32_t words[4] = {from.x, from.y, from.z, from.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    // A bfloat16 is a float's upper half.
    to[2 * i] = __uint_as_float(words[i] << 16);
    to[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
  }
}

template <int kLanes>
__device__ __forceinline__ float sum_of_key(float x) {
#pragma unroll
  for (int lane = kLanes / 2; lane > 0; lane /= 2) x += __shfl_xor_sync(kAllLanes, x, lane);
  return x;
}

// The block of a key of the item; none past its end.
__device__ __forceinline__ int block_of(const MmaAttention& p, const Work& w, int key) {
  return key < w.item.end_key ? w.table[p.places.block_of(key)] : 0;
}

// One turn: the keys first, first + kSlots, …, as far as they are this lane's.
template <int kHeadDim>
__device__ __forceinline__ void look_up(const MmaAttention& p, const Work& w, int first,
                                        int (&blocks)[kUnroll]) {
  using L = Lanes<kHeadDim>;
  const int slot = static_cast<int>(threadIdx.x) / L::kOfKey;
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) blocks[u] = block_of(p, w, first + u * L::kSlots + slot);
}

// Key and value number `key` of the item, in `block`, this lane's dims; zeros past its end.
template <int kHeadDim>
__device__ __forceinline__ void load_key(const MmaAttention& p, const Work& w, int key, int block, uint4& k,
                                         uint4& v) {
  k = v = make_uint4(0, 0, 0, 0);
  if (key >= w.item.end_key) return;
  const int lane = static_cast<int>(threadIdx.x) % Lanes<kHeadDim>::kOfKey;
  const __nv_bfloat16* const from =
      p.kv + p.places.tile(block, 0, w.kv_head) + p.places.in_block(key) * kHeadDim + lane * kDims;
  k = *reinterpret_cast<const uint4*>(from);
  v = *reinterpret_cast<const uint4*>(from + int64_t{p.places.block_size} * kHeadDim);
}

// Scores of some keys become weights, and the values are added by them.
__device__ __forceinline__ void add_keys(const float (&scores)[kUnroll], const uint4 (&values)[kUnroll],
                                         LaneSums& row) {
  float largest = row.largest;
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) largest = fmaxf(largest, scores[u]);
  // A slot that has seen no key yet: its weights are 2^-inf, not 2^(inf - inf).
  const float base = largest == -INFINITY ? 0.0f : largest;
  const float before = exp2_approx(row.largest - base);
  row.largest = largest;
  row.total *= before;
#pragma unroll
  for (int i = 0; i < kDims; ++i) row.sums[i] *= before;
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const float weight = exp2_approx(scores[u] - base);
    row.total += weight;
    float value[kDims];
    unpack(values[u], value);
#pragma unroll
    for (int i = 0; i < kDims; ++i) row.sums[i] = fmaf(weight, value[i], row.sums[i]);
  }
}

// The slots have different keys of the same rows. `shared`: (kSlots, kRows, C + 2).
template <int kHeadDim, int kRows>
__device__ __forceinline__ void merge_slots(const MmaAttention& p, const Work& w, int first_row,
                                            const LaneSums (&rows)[kRows], float* shared) {
  using L = Lanes<kHeadDim>;
  constexpr int kWidth = kHeadDim + 2;
  const int lane = static_cast<int>(threadIdx.x) % L::kOfKey;
  const int slot = static_cast<int>(threadIdx.x) / L::kOfKey;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    float* const to = shared + (slot * kRows + r) * kWidth;
#pragma unroll
    for (int i = 0; i < kDims; ++i) to[lane * kDims + i] = rows[r].sums[i];
    if (lane == 0) {
      to[kHeadDim] = rows[r].largest;
      to[kHeadDim + 1] = rows[r].total;
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kHeadDim / 2; i += kThreads) {
    const int row = i / (kHeadDim / 2);
    const int dim = i % (kHeadDim / 2) * 2;
    float largest = -INFINITY;
#pragma unroll
    for (int s = 0; s < L::kSlots; ++s)
      largest = fmaxf(largest, shared[(s * kRows + row) * kWidth + kHeadDim]);
    const float base = largest == -INFINITY ? 0.0f : largest;
    float2 sums = make_float2(0.0f, 0.0f);
    float total = 0;
#pragma unroll
    for (int s = 0; s < L::kSlots; ++s) {
      const float* const from = shared + (s * kRows + row) * kWidth;
      const float factor = exp2_approx(from[kHeadDim] - base);
      sums.x += from[dim] * factor;
      sums.y += from[dim + 1] * factor;
      total += from[kHeadDim + 1] * factor;
    }
    write_pair<kHeadDim, false>(p, w, first_row + row, dim, {sums, largest, total});
  }
  __syncthreads();  // the memory is the next rows'
}

// Rows [first_row, first_row + kRows) of the item. `blocks`: of its first turn.
template <int kHeadDim, int kRows>
__device__ __forceinline__ void attend_rows(const MmaAttention& p, const Work& w, int first_row,
                                            int (&blocks)[kUnroll], float* shared) {
  using L = Lanes<kHeadDim>;
  const int lane = static_cast<int>(threadIdx.x) % L::kOfKey;
  const int slot = static_cast<int>(threadIdx.x) / L::kOfKey;
  const bool slopes = p.indices.alibi_slopes != nullptr;
  float q[kRows][kDims] = {};
  int position[kRows];  // -1: past the item's end, sees no key
  float slope[kRows] = {};
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    position[r] = -1;
    if (first_row + r >= w.item.end_row) continue;
    const Row row = row_of<false>(p, w, first_row + r);
    unpack(*reinterpret_cast<const uint4*>(p.q + row.place * kHeadDim + lane * kDims), q[r]);
    position[r] = row.position;
    if (slopes) slope[r] = p.indices.alibi_slopes[row.head] * kLog2e;
  }
  LaneSums rows[kRows];
  // The same turns for all lanes of a warp: they shuffle.
  for (int first = w.item.first_key; first < w.item.end_key; first += L::kSlots * kUnroll) {
    uint4 keys[kUnroll], values[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u)
      load_key<kHeadDim>(p, w, first + u * L::kSlots + slot, blocks[u], keys[u], values[u]);
    look_up<kHeadDim>(p, w, first + L::kSlots * kUnroll, blocks);
    float scores[kRows][kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int at = first + u * L::kSlots + slot;
      float key[kDims];
      unpack(keys[u], key);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        float dot = 0;
#pragma unroll
        for (int i = 0; i < kDims; ++i) dot = fmaf(q[r][i], key[i], dot);
        float score = sum_of_key<L::kOfKey>(dot) * p.scale_log2;
        if (slopes) score += slope[r] * static_cast<float>(at - position[r]);
        scores[r][u] = at > position[r] || at >= w.item.end_key ? -INFINITY : score;
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) add_keys(scores[r], values, rows[r]);
  }
  merge_slots<kHeadDim, kRows>(p, w, first_row, rows, shared);
}

// Blocks of a multiprocessor, as many as registers allow without spills: loads in flight.
constexpr int blocks_of(int rows) {
  return rows == 1 ? 6 : rows == 2 ? 4 : 3;
}

template <int kHeadDim, int kRows>
__global__ void __launch_bounds__(kThreads, blocks_of(kRows)) attend_lanes(MmaAttention p) {
  __shared__ float shared[Lanes<kHeadDim>::kSlots * kRows * (kHeadDim + 2)];
  const Work w = work_of(p);
  int blocks[kUnroll];
  look_up<kHeadDim>(p, w, w.item.first_key, blocks);
  await_launch_before();
  // More than kRows only where a request has several queries.
  for (int row = w.item.first_row; row < w.item.end_row; row += kRows) {
    if (row > w.item.first_row) look_up<kHeadDim>(p, w, w.item.first_key, blocks);
    attend_rows<kHeadDim, kRows>(p, w, row, blocks, shared);
  }
}

template <int kHeadDim>
void launch_rows(const LaunchStream& stream, const MmaAttention& p, unsigned count) {
  const dim3 blocks(count, static_cast<unsigned>(p.places.kv_heads));
  const int group = p.heads / p.places.kv_heads;
  const auto kernel = group == 1   ? attend_lanes<kHeadDim, 1>
                      : group == 2 ? attend_lanes<kHeadDim, 2>
                                   : attend_lanes<kHeadDim, kLaneHeadsMax>;
  launch("attention", kernel, {blocks, kThreads}, stream, p);
}

}  // namespace

void attention_simt(const LaunchStream& stream, MmaAttention p, const AttentionItem* pieces, size_t count) {
  if (count == 0) return;
  p.items = pieces;
  if (p.places.head_dim == 64) {
    launch_rows<64>(stream, p, static_cast<unsigned>(count));
  } else {
    launch_rows<128>(stream, p, static_cast<unsigned>(count));
  }
}

}  // namespace troupe::cuda
