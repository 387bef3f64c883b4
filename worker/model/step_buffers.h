#pragma once

// Converts a batch's items to the index tensors of a step.

#include <cstdint>
#include <vector>

#include "kernels/kernels.h"
#include "worker/model/model.h"
#include "worker/schedule/batch.h"

namespace troupe {

inline int64_t blocks_for(int64_t tokens, int64_t block_size) {
  return (tokens + block_size - 1) / block_size;
}

// The index tensors of one step, in memory reserved once.
struct StepBuffers {
  std::vector<int32_t> ids, positions, slots;  // (T)
  std::vector<int32_t> query_starts;           // (R + 1)
  std::vector<int32_t> context_counts;         // (R)
  std::vector<int32_t> block_tables;           // (R, stride)
  std::vector<int32_t> rows;                   // (S): last rows of the items that sample
  std::vector<BlockCopy> copies;               // at most one an item
  int32_t stride = 0;

  void reserve(size_t tokens, size_t requests, int32_t table_stride) {
    stride = table_stride;
    ids.reserve(tokens);
    positions.reserve(tokens);
    slots.reserve(tokens);
    query_starts.reserve(requests + 1);
    context_counts.reserve(requests);
    block_tables.reserve(requests * static_cast<size_t>(stride));
    rows.reserve(requests);
    copies.reserve(requests);
  }

  void clear() {
    for (auto* v : {&ids, &positions, &slots, &query_starts, &context_counts, &block_tables, &rows})
      v->clear();
    copies.clear();
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
    const auto used = static_cast<std::ptrdiff_t>(blocks_for(item.start + count, block_size));
    block_tables.insert(block_tables.end(), item.blocks.begin(), item.blocks.begin() + used);
    block_tables.resize(context_counts.size() * static_cast<size_t>(stride), 0);
    if (item.samples) rows.push_back(static_cast<int32_t>(ids.size()) - 1);
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
};

}  // namespace troupe
