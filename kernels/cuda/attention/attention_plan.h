#pragma once

// Divides a step's attention among blocks of threads: pure functions of a step's shape, tested without a GPU.
//
// A group is the H/G query heads that share a key/value head. For one such head the queries of a request are
// rows: row = query · (H/G) + head of the group, so that a group's keys are read once for all its heads.

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/attention/cascade_gate.h"

namespace troupe::cuda {

// Rows of a tile of many queries (prefill), and of a tile of few (decode).
inline constexpr int kTileRows = 64;
inline constexpr int kDecodeRows = 16;
inline constexpr int kWarpgroupRows = 128;  // of a tile that warpgroups compute (attention_wgmma.cu)
// Keys of one piece of a decode. Its length is the same for every request and batch, so that what a request
// gets does not depend on the others; pieces of one size also balance themselves. 256 keys of 128 dims are
// 128 KB, some 5 µs of one multiprocessor's share of HBM: long against a launch's ramp, short against a step.
// With 512 an H200 decodes 256 requests of 1,024 keys 4 % faster (8B), and one of them 4.5 % slower.
inline constexpr int kPieceKeys =
    256;  // the least; where the sums of so many pieces take too much memory, more

// Where a step's tiles are fewer than a device computes at once, as behind a cached prefix, each is cut into
// pieces of at least so many keys, in whole kTileKeysStep, if the longest gets shorter by kTileGainKeys: 64
// queries of 2,112 keys would else be a block or two for each key/value head. What a merge costs was taken
// for what some 512 keys do; not measured.
inline constexpr int kTilePieceKeys = 256;
inline constexpr int kTileKeysStep = 128;
inline constexpr int kTileGainKeys = 512;
inline constexpr int kMergeRows = 4;  // of one item of a merge: a block's work

// Cascade: where decoding requests have first keys in the same blocks, and that is faster, those are read
// once for all of them. What is saved is (requests - tiles) · keys. Keys of one item of a cascade, in pieces.
inline constexpr int kSharedPieces = 2;

// One block's work for each key/value head.
struct AttentionItem {
  int32_t request = 0;    // whose block table it reads
  int32_t first_row = 0;  // of the request; of the plan's shared_rows in a cascade
  int32_t end_row = 0;
  int32_t first_key = 0;
  int32_t end_key = 0;
  // The place of the sums of its first row, the others' behind it; -1: the rows have one piece, out gets the
  // result. In a cascade: the number of its piece among a row's. See MergeItem.
  int32_t partial = -1;
};

// A row of a cascade: one query of one head of a group.
struct SharedRow {
  int32_t token = 0;
  int32_t head = 0;  // of the group
  int32_t position = 0;
  int32_t partial = 0;       // where the sums of its first piece go
  int32_t request_rows = 0;  // and those of each further one behind that
};

// The pieces of some of one request's rows, to be merged: of row r the sums of piece i are partial
// first_partial + i · piece_rows + r - first_row.
struct MergeItem {
  int32_t request = 0;
  int32_t first_row = 0;
  int32_t end_row = 0;
  int32_t first_partial = 0;
  int32_t piece_rows = 0;
  int32_t count = 0;  // pieces
};

struct AttentionPlan {
  std::vector<AttentionItem> tiles;   // of tile_rows, or pieces of them, longest first
  std::vector<AttentionItem> shared;  // of kTileRows of shared_rows
  std::vector<AttentionItem> pieces;  // of kDecodeRows
  std::vector<SharedRow> shared_rows;
  std::vector<MergeItem> merges;
  int32_t partial_count = 0;  // sums of a row over a piece, for each key/value head
};

struct AttentionShape {
  std::span<const int32_t> query_starts;    // (R + 1)
  std::span<const int32_t> context_counts;  // (R)
  int32_t group_heads = 1;                  // H/G
  // Needed for a cascade; without tables there is none.
  std::span<const int32_t> block_tables = {};  // (R, block_table_stride)
  int32_t block_table_stride = 0;
  int32_t block_size = 16;
  int32_t piece_keys = kPieceKeys;  // a multiple of that
  CascadeGate gate = CascadeGate::guessed();
  int32_t tile_rows = kTileRows;
  int32_t tiles_at_once = 0;  // of a key/value head, that a device computes; 0: tiles stay whole
};

// The bounds of any step.
struct AttentionLimits {
  int64_t tokens = 0;
  int64_t requests = 0;
  int64_t keys = 0;  // of a request
  int32_t group_heads = 1;
  int32_t tiles_at_once = 0;  // AttentionShape's
};
// Plans of steps within the limits have no more partials than this.
int64_t most_partials(const AttentionLimits& limits, int32_t piece_keys);
// The least length of pieces with which they have no more than `partials`.
int32_t piece_keys_for(const AttentionLimits& limits, int64_t partials);

// Requests of at most kDecodeRows rows become pieces, others tiles. Requests of pieces whose tables begin
// alike are a cascade: their pieces begin behind what they share. `plan` is overwritten; its memory is kept.
void plan_attention(const AttentionShape& shape, AttentionPlan& plan);

// A number of items that is not below `count`, the same for many others near it: a power of two below
// 2 · `step`, in steps of that, and of an eighth of it at most.
size_t rounded_count(size_t count, size_t step);
inline constexpr size_t kPiecesStep = 8, kMergesStep = 16;
// Fills pieces and merges up to such numbers with items of no rows, whose blocks end at once. A request gets
// a piece more with every 256 keys, some request of 64 in every fourth step: each would be a grid of its own,
// thus another graph.
void round_up(AttentionPlan& plan);

// The request of every query row: r where query_starts[r] <= t < query_starts[r + 1]. `out` is overwritten.
void token_requests(std::span<const int32_t> query_starts, std::vector<int32_t>& out);

}  // namespace troupe::cuda
