#pragma once

// Which block of threads attends to what: pure functions of a step's shape, tested without a GPU.
//
// A group is the H/G query heads that share a key/value head. For one such head the queries of a request are
// rows: row = query · (H/G) + head of the group, so that a group's keys are read once for all its heads.

#include <cstdint>
#include <span>
#include <vector>

namespace troupe::cuda {

// Rows of a tile of many queries (prefill), and of a tile of few (decode).
inline constexpr int kTileRows = 64;
inline constexpr int kDecodeRows = 16;
// Keys of one piece of a decode. Its length is the same for every request and batch, so that what a request
// gets does not depend on the others; pieces of one size also balance themselves. 256 keys of 128 dims are
// 128 KB, some 5 µs of one multiprocessor's share of HBM: long against a launch's ramp, short against a step.
inline constexpr int kPieceKeys = 256;

// Cascade: where so many decoding requests have so many first keys in the same blocks, those are read once
// for all of them. Guesses until they are measured on a device; what is saved is (requests - tiles) · keys.
inline constexpr int kCascadeRequestsMin = 4;
inline constexpr int kCascadeKeysMin = 256;
// Keys of one item of a cascade.
inline constexpr int kSharedPieceKeys = 512;

// One block's work for each key/value head.
struct AttentionItem {
  int32_t request = 0;    // whose block table it reads
  int32_t first_row = 0;  // of the request; of the plan's shared_rows in a cascade
  int32_t end_row = 0;
  int32_t first_key = 0;
  int32_t end_key = 0;
  // Where the piece's sums go; -1: the rows have one piece, out gets the result. In a cascade: behind a row's
  // own.
  int32_t partial = -1;
};

// A row of a cascade: one query of one head of a group.
struct SharedRow {
  int32_t token = 0;
  int32_t head = 0;  // of the group
  int32_t position = 0;
  int32_t partial = 0;     // its request's first
  int32_t of_partial = 0;  // its row there
};

// The pieces of one request's rows, to be merged.
struct MergeItem {
  int32_t request = 0;
  int32_t first_partial = 0;
  int32_t count = 0;
};

struct AttentionPlan {
  std::vector<AttentionItem> tiles;   // of kTileRows, longest first
  std::vector<AttentionItem> shared;  // of kTileRows of shared_rows
  std::vector<AttentionItem> pieces;  // of kDecodeRows
  std::vector<SharedRow> shared_rows;
  std::vector<MergeItem> merges;
  int32_t partial_count = 0;
};

struct AttentionShape {
  std::span<const int32_t> query_starts;    // (R + 1)
  std::span<const int32_t> context_counts;  // (R)
  int32_t group_heads = 1;                  // H/G
  // For a cascade; no tables: none.
  std::span<const int32_t> block_tables = {};  // (R, block_table_stride)
  int32_t block_table_stride = 0;
  int32_t block_size = 16;
};

// Requests of at most kDecodeRows rows become pieces, others tiles. Requests of pieces whose tables begin
// alike are a cascade: their pieces begin behind what they share. `plan` is overwritten; its memory is kept.
void plan_attention(const AttentionShape& shape, AttentionPlan& plan);

// The request of every query row: r where query_starts[r] <= t < query_starts[r + 1]. `out` is overwritten.
void token_requests(std::span<const int32_t> query_starts, std::vector<int32_t>& out);

}  // namespace troupe::cuda
