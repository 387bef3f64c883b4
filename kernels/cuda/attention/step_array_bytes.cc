#include "kernels/cuda/attention/step_array_bytes.h"

#include <algorithm>

#include "kernels/cuda/attention/attention_kernels.h"
#include "kernels/cuda/step/device_draws.h"

namespace troupe::cuda {

namespace {

// A request with penalties has one for each different token of prompt and answer.
constexpr int64_t kEditsOfMost = 500;

}  // namespace

ArrayBytes step_array_bytes(const AttentionLimits& limits, int32_t piece_keys, int64_t block_size) {
  constexpr int64_t kIndex = sizeof(int32_t);
  constexpr int64_t kItem = sizeof(AttentionItem);
  const int64_t blocks = (limits.keys + block_size - 1) / block_size;
  const int64_t pieces = (limits.keys + piece_keys - 1) / piece_keys;
  const int64_t shared_pieces = (pieces + kSharedPieces - 1) / kSharedPieces;
  const int64_t rows = limits.requests * kDecodeRows;
  // Each cascade has a tile that is not full.
  const int64_t shared_tiles = rows / kTileRows + limits.requests / CascadeGate::kRequestsMin;
  const int64_t whole_tiles = limits.tokens * limits.group_heads / kTileRows + limits.requests;
  const int64_t tiles = std::max<int64_t>(whole_tiles, limits.tiles_at_once);
  // Merges of requests in pieces; and of tiles, each of which is in two at least.
  const int64_t merges =
      limits.requests * (kDecodeRows / kMergeRows) + limits.tiles_at_once / 2 * (kWarpgroupRows / kMergeRows);
  const auto rounded = [](int64_t count, size_t step) {
    return static_cast<int64_t>(rounded_count(static_cast<size_t>(count), step));
  };
  return {
      {StepArray::kIds, (limits.tokens + 3) * kIndex},  // and an address at an even place
      {StepArray::kPositions, limits.tokens * kIndex},
      {StepArray::kSlots, limits.tokens * kIndex},
      {StepArray::kTokenRequests, limits.tokens * kIndex},
      {StepArray::kRows, limits.requests * kIndex},
      {StepArray::kQueryStarts, (limits.requests + 1) * kIndex},
      {StepArray::kContextCounts, limits.requests * kIndex},
      {StepArray::kBlockTables, limits.requests * blocks * kIndex},
      {StepArray::kCopies, 2 * limits.requests * kIndex},
      {StepArray::kAttentionTiles, tiles * kItem},
      {StepArray::kAttentionShared, shared_tiles * shared_pieces * kItem},
      {StepArray::kAttentionSharedRows, rows * static_cast<int64_t>(sizeof(SharedRow))},
      {StepArray::kAttentionPieces, rounded(limits.requests * pieces, kPiecesStep) * kItem},
      {StepArray::kAttentionMerges, rounded(merges, kMergesStep) * static_cast<int64_t>(sizeof(MergeItem))},
      {StepArray::kDraws, limits.requests * static_cast<int64_t>(sizeof(DeviceDraw))},
      {StepArray::kChains, limits.requests * static_cast<int64_t>(sizeof(DeviceChain))},
      {StepArray::kMus, limits.requests * static_cast<int64_t>(sizeof(float))},
      {StepArray::kLogitEdits, limits.requests * kEditsOfMost * static_cast<int64_t>(sizeof(LogitEdit))},
  };
}

int64_t whole_step_bytes(const ArrayBytes& arrays) {
  int64_t bytes = 0;
  for (const auto& [which, size] : arrays) bytes += size + StepArrays::kAlignment;
  return bytes;
}

}  // namespace troupe::cuda
