#pragma once

// Maps a row of a block to its query head and to where its sums go (attention_mma.cu). Rows of tiles and
// pieces are counted within their request; those of a cascade (kCascade) are a list.

#include "kernels/cuda/attention/attention_kernels.h"
#include "kernels/cuda/attention/warp_attention.cuh"
#include "kernels/cuda/device/device.cuh"

namespace troupe::cuda {

inline constexpr float kLog2e = 1.4426950408889634f;

struct MmaAttention {
  const __nv_bfloat16* q;
  const __nv_bfloat16* kv;
  __nv_bfloat16* out;
  const AttentionItem* items;
  const SharedRow* shared_rows;
  float* partials;  // (partials, G, C + 2): sums, largest, total
  AttentionIndices indices;
  int block_table_stride;
  int heads;
  int group;  // H/G, and to divide by it: no thread of a copy has time for that
  Divisor by_group;
  KvPlaces places;
  float scale_log2;      // scale · log2(e)
  bool in_turn = false;  // attention_wgmma.cu's
};

// Parts of attention_mma, launched by it where PlannedAttention::lanes or kv_map says so.
void attention_simt(const LaunchStream& stream, MmaAttention p, const AttentionItem* pieces, size_t count);
void attention_wgmma(const LaunchStream& stream, MmaAttention p, const PlannedAttention& planned);

// The block's work.
struct Work {
  AttentionItem item;
  int kv_head;
  int first_token;     // of the request
  int first_position;  // of the request's first query
  const int32_t* table;
};

__device__ __forceinline__ Work work_of(const MmaAttention& p, int item, int kv_head) {
  Work w;
  w.item = p.items[item];
  w.kv_head = kv_head;
  w.first_token = p.indices.query_starts[w.item.request];
  const int queries = p.indices.query_starts[w.item.request + 1] - w.first_token;
  w.first_position = p.indices.context_counts[w.item.request] - queries;
  w.table = p.indices.block_tables + int64_t{w.item.request} * p.block_table_stride;
  return w;
}

__device__ __forceinline__ Work work_of(const MmaAttention& p) {
  return work_of(p, static_cast<int>(blockIdx.x), static_cast<int>(blockIdx.y));
}

// One row. `place`: of its head dims in q and out, in units of them.
struct Row {
  int64_t place;
  int head;  // of H
  int position;
  int partial;  // where its sums go; -1: out gets the result
};

// REQUIRES: row < w.item.end_row.
template <bool kCascade>
__device__ __forceinline__ Row row_of(const MmaAttention& p, const Work& w, int row) {
  const int first_head = w.kv_head * p.group;
  if constexpr (kCascade) {
    const SharedRow r = p.shared_rows[row];
    return {int64_t{r.token} * p.heads + first_head + r.head, first_head + r.head, r.position,
            r.partial + w.item.partial * r.request_rows};
  } else {
    const int query = p.by_group.quotient(row);
    const int head = first_head + row - query * p.group;
    const int partial = w.item.partial < 0 ? -1 : w.item.partial + row - w.item.first_row;
    return {int64_t{w.first_token + query} * p.heads + head, head, w.first_position + query, partial};
  }
}

// A lane's two rows.
struct Rows {
  int position[2];  // -1: past the item's end, sees no key
  float slope[2];   // · log2(e)
};

template <bool kCascade>
__device__ __forceinline__ Rows rows_of(const MmaAttention& p, const Work& w, int first_row) {
  Rows rows{{-1, -1}, {0.0f, 0.0f}};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int at = first_row + static_cast<int>(threadIdx.x) % kWarp / 4 + 8 * i;
    if (at >= w.item.end_row) continue;
    const Row row = row_of<kCascade>(p, w, at);
    rows.position[i] = row.position;
    if (p.indices.alibi_slopes != nullptr) rows.slope[i] = p.indices.alibi_slopes[row.head] * kLog2e;
  }
  return rows;
}

// A row's result so far: two neighbouring dims of its sums.
struct RowSums {
  float2 sums;
  float largest;
  float total;
};

// One row and head over a piece: kHeadDim sums, the largest, the total.
template <int kHeadDim>
__device__ __forceinline__ float* partial_at(const MmaAttention& p, const Work& w, int partial) {
  return p.partials + (int64_t{partial} * p.places.kv_heads + w.kv_head) * (kHeadDim + 2);
}

// Writes the sums to their place: divided into out, or as they are to the row's partial.
template <int kHeadDim, bool kCascade>
__device__ __forceinline__ void write_pair(const MmaAttention& p, const Work& w, int at, int dim,
                                           const RowSums& s) {
  if (at >= w.item.end_row) return;
  const Row row = row_of<kCascade>(p, w, at);
  if (row.partial < 0) {
    *reinterpret_cast<uint32_t*>(p.out + row.place * kHeadDim + dim) =
        pack_pair(s.sums.x / s.total, s.sums.y / s.total);
    return;
  }
  float* const to = partial_at<kHeadDim>(p, w, row.partial);
  *reinterpret_cast<float2*>(to + dim) = s.sums;
  if (dim == 0) *reinterpret_cast<float2*>(to + kHeadDim) = make_float2(s.largest, s.total);
}

}  // namespace troupe::cuda
