#pragma once

// Parameters and checks of Backend::attention(). Spans and tensors must live until the call returns; a
// violated shape or range ends the process (check_params). Thread-safe: plain data.

#include <cstdint>
#include <span>

#include "kernels/ops/kv.h"
#include "kernels/tensor.h"

namespace troupe {

// Causal attention of a step's queries over their blocks: query t of request r at position p sees keys [0,
// p].
struct AttentionParams {
  Tensor q;  // (T, H, C) activation
  std::span<const int32_t>
      query_starts;  // (R + 1): request r's queries are rows [query_starts[r], query_starts[r+1])
  std::span<const int32_t> context_counts;  // (R): keys of r, its own new ones included
  std::span<const int32_t> block_tables;    // (R, block_table_stride)
  int32_t block_table_stride = 0;
  int layer = 0;
  float scale = 1.0f;
  Tensor out;  // (T, H·C) activation
  // (H) or empty. ALiBi (Press et al. 2022): score += slope of the head · (key's position - query's
  // position).
  std::span<const float> alibi_slopes = {};
};

void check_params(const AttentionParams& params, DType activation, const BoundKv& kv);

}  // namespace troupe
