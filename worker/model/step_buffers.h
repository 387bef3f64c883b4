#pragma once

// Converts a batch's items to the index tensors of a step.

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/kernels.h"
#include "worker/model/model.h"
#include "worker/schedule/batch.h"

namespace troupe {

inline int64_t blocks_for(int64_t tokens, int64_t block_size) {
  return (tokens + block_size - 1) / block_size;
}

// The index tensors of one step, in memory reserved once. Block tables are as wide as the step's longest
// request needs, not as max_model_len would: all of them go to the device in front of every step, and of 256
// requests of up to 128k tokens that would be 8 MB. They are wider in steps of kStrideTokens: a device's
// graph of a step has the width in it, and would be another one with every block that the longest request
// gets.
struct StepBuffers {
  std::vector<int32_t> ids, positions, slots;  // (T)
  std::vector<int32_t> query_starts;           // (R + 1)
  std::vector<int32_t> context_counts;         // (R)
  std::vector<int32_t> block_tables;           // (R, stride), 0 behind a request's blocks
  std::vector<int32_t> rows;                   // (S): last rows of the items that sample
  std::vector<BlockCopy> copies;               // at most one an item
  int32_t stride = 0;
  int32_t stride_max = 0;

  // Memory for the largest steps; `blocks`: of one request.
  void reserve(size_t tokens, size_t requests, size_t blocks) {
    ids.reserve(tokens);
    positions.reserve(tokens);
    slots.reserve(tokens);
    query_starts.reserve(requests + 1);
    context_counts.reserve(requests);
    block_tables.reserve(requests * blocks);
    rows.reserve(requests);
    copies.reserve(requests);
    stride_max = static_cast<int32_t>(blocks);
  }

  // REQUIRES: each item has blocks for all its tokens.
  void fill(std::span<const BatchItem> items, int32_t block_size) {
    clear();
    for (const BatchItem& item : items) stride = std::max(stride, used_blocks(item, block_size));
    const int32_t step = std::max(kStrideTokens / block_size, 1);
    stride = std::min((stride + step - 1) / step * step, std::max(stride, stride_max));
    for (const BatchItem& item : items) add(item, block_size);
  }

  Step step(const Tensor& drawn = {}) const {
    return {.ids = ids,
            .positions = positions,
            .slots = slots,
            .query_starts = query_starts,
            .context_counts = context_counts,
            .block_tables = block_tables,
            .block_table_stride = stride,
            .drawn = drawn};
  }

 private:
  static constexpr int32_t kStrideTokens = 128;

  static int32_t used_blocks(const BatchItem& item, int32_t block_size) {
    const auto tokens = item.start + static_cast<int64_t>(item.ids.size());
    return static_cast<int32_t>(blocks_for(tokens, block_size));
  }

  void clear() {
    for (auto* v : {&ids, &positions, &slots, &query_starts, &context_counts, &block_tables, &rows})
      v->clear();
    copies.clear();
    stride = 0;
    query_starts.push_back(0);
  }

  void add(const BatchItem& item, int32_t block_size) {
    const auto count = static_cast<int32_t>(item.ids.size());
    ids.insert(ids.end(), item.ids.begin(), item.ids.end());
    for (int32_t position = item.start; position < item.start + count; ++position) {
      const BlockId block = item.blocks[static_cast<size_t>(position / block_size)];
      positions.push_back(position);
      slots.push_back(block * block_size + position % block_size);
    }
    query_starts.push_back(static_cast<int32_t>(ids.size()));
    context_counts.push_back(item.start + count);
    const auto used = item.blocks.begin() + used_blocks(item, block_size);
    block_tables.insert(block_tables.end(), item.blocks.begin(), used);
    block_tables.resize(context_counts.size() * static_cast<size_t>(stride), 0);
    if (item.samples) rows.push_back(static_cast<int32_t>(ids.size()) - 1);
  }
};

}  // namespace troupe
