#pragma once

// The sum of a row's pieces, Σ sums · 2^(largest - of all) and Σ total · 2^(largest - of all): by the launch
// that is for it (merge_attention.cu), or by the block that has written the last of them.

#include "kernels/cuda/attention/attention_mma_rows.cuh"

namespace troupe::cuda {

inline constexpr int kMergedPieces = 8;  // at a time, all of which are on their way together

// Sums of two neighbouring dims.
struct MergedPieces {
  float largest = -INFINITY;
  float2 sums = {0.0f, 0.0f};
  float total = 0;

  // Adds the first `count` pieces, kMergedPieces at most, of one row; they are `to_next` apart. Past L1:
  // other multiprocessors have written them, maybe in this launch.
  __device__ __forceinline__ void add(const float* of_row, int64_t to_next, int count, int dim,
                                      int head_dim) {
    float2 sums_of[kMergedPieces], ends[kMergedPieces];
#pragma unroll
    for (int n = 0; n < kMergedPieces; ++n) {
      const float* const from = of_row + n * to_next;
      const bool is_there = n < count;
      ends[n] =
          is_there ? __ldcg(reinterpret_cast<const float2*>(from + head_dim)) : make_float2(-INFINITY, 0.0f);
      sums_of[n] = is_there ? __ldcg(reinterpret_cast<const float2*>(from + dim)) : make_float2(0.0f, 0.0f);
    }
    const float before = largest;
#pragma unroll
    for (int n = 0; n < kMergedPieces; ++n) largest = fmaxf(largest, ends[n].x);
    // A row may see nothing of a piece, and of none where all its scores are -inf.
    const float base = largest == -INFINITY ? 0.0f : largest;
    const float factor = exp2_approx(before - base);
    sums.x *= factor;
    sums.y *= factor;
    total *= factor;
#pragma unroll
    for (int n = 0; n < kMergedPieces; ++n) {
      const float weight = exp2_approx(ends[n].x - base);
      sums.x += sums_of[n].x * weight;
      sums.y += sums_of[n].y * weight;
      total += ends[n].y * weight;
    }
  }
  __device__ __forceinline__ uint32_t result() const {
    return pack_pair(sums.x / total, sums.y / total);
  }
};

// Writes the results of a request's rows, by the whole block.
template <int kHeadDim>
__device__ __forceinline__ void merge_request(const MmaAttention& p, int request, int kv_head) {
  constexpr int kPairs = kHeadDim / 2;
  constexpr int64_t kWidth = kHeadDim + 2;
  const RequestMerge merge = p.request_merges[request];
  const int first_token = p.indices.query_starts[request];
  const int64_t to_next_row = p.places.kv_heads * kWidth;
  const int64_t to_next_piece = merge.rows * to_next_row;
  for (int i = static_cast<int>(threadIdx.x); i < merge.rows * kPairs; i += static_cast<int>(blockDim.x)) {
    const int row = i / kPairs;
    const int dim = i % kPairs * 2;
    const float* const first = p.partials + (merge.first_partial + row) * to_next_row + kv_head * kWidth;
    MergedPieces merged;
    for (int n = 0; n < merge.count; n += kMergedPieces)
      merged.add(first + n * to_next_piece, to_next_piece, merge.count - n, dim, kHeadDim);
    const int query = p.by_group.quotient(row);
    const int64_t place = int64_t{first_token + query} * p.heads + kv_head * p.group + row - query * p.group;
    *reinterpret_cast<uint32_t*>(p.out + place * kHeadDim + dim) = merged.result();
  }
}

// True for the block that brings the last of a request's rows · pieces. REQUIRES: what is counted was written
// before a __threadfence() and a barrier. By one thread.
__device__ __forceinline__ bool counts_last(const MmaAttention& p, int request, int kv_head, int rows) {
  const RequestMerge merge = p.request_merges[request];
  int* const counter = p.counters + request * p.places.kv_heads + kv_head;
  if (atomicAdd(counter, rows) + rows < merge.rows * merge.count) return false;
  *counter = 0;  // for the next launch; nobody else adds to it in this one
  return true;
}

// The end of a block that has a piece of a request.
template <int kHeadDim>
__device__ __forceinline__ void finish_piece(const MmaAttention& p, const Work& w) {
  __shared__ bool is_last;
  if (w.item.partial < 0) return;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0)
    is_last = counts_last(p, w.item.request, w.kv_head, w.item.end_row - w.item.first_row);
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  merge_request<kHeadDim>(p, w.item.request, w.kv_head);
}

// The end of a block that has a cascade's rows: of several requests, the first and the last maybe in part.
template <int kHeadDim>
__device__ __forceinline__ void finish_shared(const MmaAttention& p, const Work& w) {
  __shared__ int done[kTileRows];
  __shared__ int done_count;
  if (threadIdx.x == 0) done_count = 0;
  __threadfence();
  __syncthreads();
  const int end = w.item.end_row;
  for (int row = w.item.first_row + static_cast<int>(threadIdx.x); row < end;
       row += static_cast<int>(blockDim.x)) {
    const int request = p.shared_rows[row].request;
    if (row > w.item.first_row && p.shared_rows[row - 1].request == request) continue;
    int rows = 1;
    while (row + rows < end && p.shared_rows[row + rows].request == request) ++rows;
    if (counts_last(p, request, w.kv_head, rows)) done[atomicAdd(&done_count, 1)] = request;
  }
  __syncthreads();
  if (done_count > 0) __threadfence();
  for (int i = 0; i < done_count; ++i) merge_request<kHeadDim>(p, done[i], w.kv_head);
}

}  // namespace troupe::cuda
