#include "kernels/cuda/attention_plan.h"

#include <algorithm>

namespace troupe::cuda {

namespace {

void add_tiles(int32_t request, int32_t queries, int32_t keys, int32_t group_heads, AttentionPlan& plan) {
  const int32_t rows = queries * group_heads;
  for (int32_t row = 0; row < rows; row += kTileRows) {
    const int32_t last_query = (std::min(row + kTileRows, rows) - 1) / group_heads;
    plan.tiles.push_back({request, row, 0, keys - queries + last_query + 1, -1});
  }
}

void add_pieces(int32_t request, int32_t keys, AttentionPlan& plan) {
  const int32_t count = (keys + kPieceKeys - 1) / kPieceKeys;
  if (count > 1) plan.merges.push_back({request, plan.partial_count, count});
  for (int32_t i = 0; i < count; ++i) {
    const int32_t first = i * kPieceKeys;
    const int32_t partial = count > 1 ? plan.partial_count++ : -1;
    plan.pieces.push_back({request, 0, first, std::min(first + kPieceKeys, keys), partial});
  }
}

}  // namespace

void plan_attention(const AttentionShape& shape, AttentionPlan& plan) {
  plan.tiles.clear();
  plan.pieces.clear();
  plan.merges.clear();
  plan.partial_count = 0;
  for (size_t r = 0; r < shape.context_counts.size(); ++r) {
    const int32_t queries = shape.query_starts[r + 1] - shape.query_starts[r];
    const int32_t keys = shape.context_counts[r];
    if (queries == 0) continue;
    if (queries * shape.group_heads <= kDecodeRows) {
      add_pieces(static_cast<int32_t>(r), keys, plan);
    } else {
      add_tiles(static_cast<int32_t>(r), queries, keys, shape.group_heads, plan);
    }
  }
  // Blocks start in order: the last to start should be short.
  std::stable_sort(plan.tiles.begin(), plan.tiles.end(), [](const AttentionItem& a, const AttentionItem& b) {
    return a.end_key - a.first_key > b.end_key - b.first_key;
  });
}

void token_requests(std::span<const int32_t> query_starts, std::vector<int32_t>& out) {
  out.clear();
  for (size_t r = 0; r + 1 < query_starts.size(); ++r) {
    out.resize(static_cast<size_t>(query_starts[r + 1]), static_cast<int32_t>(r));
  }
}

}  // namespace troupe::cuda
