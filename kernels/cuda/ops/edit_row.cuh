#pragma once

// Edits of a row's logits before its draw (sampling.h), and its mask: by one block of kThreads, all of it
// together.

#include "kernels/cuda/ops/row_passes.cuh"
#include "kernels/cuda/step/device_draws.h"

namespace troupe::cuda::draws {

// Rows of logits, and what the device knows of each.
struct Rows {
  float* logits;
  int32_t count;  // V
  const DeviceDraw* draws;
  const LogitEdit* edits;
  const uint32_t* masks;
};

// Takes out the tokens without a bit: a warp looks at a word of 32 of them, so what it writes is together.
__device__ inline void mask_row(float* logits, int count, const uint32_t* mask) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int word = warp; word * kWarp < count; word += kWarps) {
    const int id = word * kWarp + lane;
    if ((mask[word] >> lane & 1) == 0 && id < count) logits[id] = -INFINITY;
  }
}

// Afterwards the logits are visible to all of the block.
__device__ inline void edit_row(float* logits, const DeviceDraw& draw, const Rows& p) {
  __shared__ bool is_new;  // the last token has no edit yet
  const int32_t last = draw.last_drawn != nullptr ? *draw.last_drawn : -1;
  if (threadIdx.x == 0) is_new = last >= 0;
  __syncthreads();
  for (int i = draw.first_edit + static_cast<int>(threadIdx.x); i < draw.end_edit; i += kThreads) {
    LogitEdit edit = p.edits[i];
    if (draw.edits_are_late) edit.emitted_count = -1;  // its bias alone is an edit of the row
    if (edit.token == last) {
      edit = once_more(edit);
      is_new = false;
    }
    logits[edit.token] = edited_logit(logits[edit.token], draw.penalties, edit);
  }
  __syncthreads();
  if (threadIdx.x == 0 && is_new) {
    logits[last] = edited_logit(logits[last], draw.penalties, {.token = last, .emitted_count = 1});
  }
  __syncthreads();
  if (draw.first_mask_word < 0) return;
  mask_row(logits, p.count, p.masks + draw.first_mask_word);
  __syncthreads();
}

}  // namespace troupe::cuda::draws
