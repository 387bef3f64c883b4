#include "kernels/cuda/attention/attention_plan.h"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>
#include <vector>

#include "common/core/check.h"

namespace troupe::cuda {

namespace {

int32_t pieces_of(int32_t keys, int32_t piece) {
  return (keys + piece - 1) / piece;
}

// One request of a step.
struct Request {
  int32_t index;
  int32_t queries;
  int32_t keys;
  int32_t rows;
};

Request request_of(const AttentionShape& shape, size_t r) {
  const int32_t queries = shape.query_starts[r + 1] - shape.query_starts[r];
  return {static_cast<int32_t>(r), queries, shape.context_counts[r], queries * shape.group_heads};
}

bool decodes(const Request& r) {
  return r.queries > 0 && r.rows <= kDecodeRows;
}

void add_tiles(const AttentionShape& shape, const Request& r, AttentionPlan& plan) {
  for (int32_t row = 0; row < r.rows; row += shape.tile_rows) {
    const int32_t end_row = std::min(row + shape.tile_rows, r.rows);
    const int32_t last_query = (end_row - 1) / shape.group_heads;
    plan.tiles.push_back({r.index, row, end_row, 0, r.keys - r.queries + last_query + 1, -1});
  }
}

// Adds the merges of `rows`, cut into items of one block's work each.
void add_merges(const MergeItem& rows, AttentionPlan& plan) {
  for (int32_t row = rows.first_row; row < rows.end_row; row += kMergeRows) {
    MergeItem item = rows;
    item.first_row = row;
    item.end_row = std::min(row + kMergeRows, rows.end_row);
    item.first_partial += row - rows.first_row;
    plan.merges.push_back(item);
  }
}

// The number of keys in a piece of a tile: the least with which all pieces are computed at once; 0: tiles
// stay whole.
int32_t tile_piece_keys(const AttentionShape& shape, const std::vector<AttentionItem>& tiles) {
  const auto at_once = static_cast<size_t>(shape.tiles_at_once);
  if (tiles.size() >= at_once) return 0;
  int32_t longest = 0;
  for (const AttentionItem& tile : tiles) longest = std::max(longest, tile.end_key);
  for (int32_t keys = kTilePieceKeys; longest - keys >= kTileGainKeys; keys += kTileKeysStep) {
    size_t count = 0;
    for (const AttentionItem& tile : tiles) count += static_cast<size_t>(pieces_of(tile.end_key, keys));
    if (count <= at_once) return keys;
  }
  return 0;
}

void cut_tiles(const AttentionShape& shape, AttentionPlan& plan) {
  const int32_t keys = tile_piece_keys(shape, plan.tiles);
  if (keys == 0) return;
  const std::vector<AttentionItem> whole = std::move(plan.tiles);
  plan.tiles.clear();
  for (const AttentionItem& tile : whole) {
    const int32_t count = pieces_of(tile.end_key, keys);
    const int32_t rows = tile.end_row - tile.first_row;
    for (int32_t i = 0; i < count; ++i) {
      AttentionItem piece = tile;
      piece.first_key = i * keys;
      piece.end_key = std::min(piece.first_key + keys, tile.end_key);
      if (count > 1) piece.partial = plan.partial_count + i * rows;
      plan.tiles.push_back(piece);
    }
    if (count == 1) continue;
    add_merges({tile.request, tile.first_row, tile.end_row, plan.partial_count, rows, count}, plan);
    plan.partial_count += count * rows;
  }
}

// The pieces behind the `shared` keys of its cascade, and how all of them are merged.
void add_pieces(const AttentionShape& shape, const Request& r, int32_t shared, AttentionPlan& plan) {
  const int32_t before = pieces_of(shared, kSharedPieces * shape.piece_keys);
  const int32_t count = before + pieces_of(r.keys - shared, shape.piece_keys);
  const int32_t partial = plan.partial_count;
  if (count > 1) {
    add_merges({r.index, 0, r.rows, partial, r.rows, count}, plan);
    plan.partial_count += count * r.rows;
  }
  for (int32_t i = before; i < count; ++i) {
    const int32_t first = shared + (i - before) * shape.piece_keys;
    plan.pieces.push_back({r.index, 0, r.rows, first, std::min(first + shape.piece_keys, r.keys),
                           count > 1 ? partial + i * r.rows : -1});
  }
}

std::span<const int32_t> table_of(const AttentionShape& shape, const Request& r) {
  return shape.block_tables.subspan(
      static_cast<size_t>(r.index) * static_cast<size_t>(shape.block_table_stride),
      static_cast<size_t>(pieces_of(r.keys, shape.block_size)));
}

// Keys in the same blocks from the first one on, as far as all queries of both come behind them.
int32_t common_keys(const AttentionShape& shape, const Request& a, const Request& b) {
  const auto x = table_of(shape, a);
  const auto y = table_of(shape, b);
  const auto end = std::mismatch(x.begin(), x.end(), y.begin(), y.end()).first;
  const auto keys = static_cast<int32_t>(end - x.begin()) * shape.block_size;
  const int32_t before = std::min(a.keys - a.queries, b.keys - b.queries);
  return std::min(keys, before / shape.block_size * shape.block_size);
}

// Requests behind their `shared` first keys.
void add_cascade(const AttentionShape& shape, std::span<const Request> requests, int32_t shared,
                 AttentionPlan& plan) {
  const auto first_row = static_cast<int32_t>(plan.shared_rows.size());
  for (const Request& r : requests) {
    for (int32_t row = 0; row < r.rows; ++row) {
      const int32_t query = row / shape.group_heads;
      plan.shared_rows.push_back({shape.query_starts[static_cast<size_t>(r.index)] + query,
                                  row % shape.group_heads, r.keys - r.queries + query,
                                  plan.partial_count + row, r.rows});
    }
    add_pieces(shape, r, shared, plan);
  }
  const auto end_row = static_cast<int32_t>(plan.shared_rows.size());
  const int32_t keys = kSharedPieces * shape.piece_keys;
  for (int32_t row = first_row; row < end_row; row += kTileRows) {
    for (int32_t piece = 0; piece < pieces_of(shared, keys); ++piece) {
      const int32_t first = piece * keys;
      plan.shared.push_back({requests[0].index, row, std::min(row + kTileRows, end_row), first,
                             std::min(first + keys, shared), piece});
    }
  }
}

// A run of neighbours and what all of them share.
struct Run {
  size_t end;
  int32_t shared;
};

// The run from `first` on. It grows while reading the shared keys once saves more: personas behind one
// template are a run each, not one behind the template alone.
Run run_from(const AttentionShape& shape, std::span<const Request> requests, size_t first) {
  Run run{first + 1, 0};
  for (; run.end < requests.size(); ++run.end) {
    const int32_t common = common_keys(shape, requests[first], requests[run.end]);
    if (common < shape.gate.keys_min()) break;
    const auto others = static_cast<int64_t>(run.end - first);  // of one request so far
    const int32_t shared = run.shared == 0 ? common : std::min(run.shared, common);
    if (others * shared < (others - 1) * run.shared) break;
    run.shared = shared;
  }
  return run;
}

// Sorted by their tables, requests that share much lie side by side.
void add_decodes(const AttentionShape& shape, std::vector<Request>& requests, AttentionPlan& plan) {
  std::stable_sort(requests.begin(), requests.end(), [&](const Request& a, const Request& b) {
    const auto x = table_of(shape, a);
    const auto y = table_of(shape, b);
    return std::lexicographical_compare(x.begin(), x.end(), y.begin(), y.end());
  });
  for (size_t first = 0; first < requests.size();) {
    const Run run = run_from(shape, requests, first);
    const auto members = std::span(requests).subspan(first, run.end - first);
    if (run.shared > 0 && shape.gate.takes(static_cast<int32_t>(members.size()), run.shared)) {
      add_cascade(shape, members, run.shared, plan);
    } else {
      for (const Request& r : members) add_pieces(shape, r, 0, plan);
    }
    first = run.end;
  }
}

// Lengths of the step, and what a tile or piece of keys may be.
void check_shape(const AttentionShape& s) {
  const size_t requests = s.context_counts.size();
  TROUPE_CHECK(s.query_starts.size() == requests + 1, std::to_string(requests) + " requests with " +
                                                          std::to_string(s.query_starts.size()) + " starts");
  TROUPE_CHECK(s.group_heads >= 1 && s.tiles_at_once >= 0,
               std::to_string(s.group_heads) + " heads, " + std::to_string(s.tiles_at_once) + " tiles");
  TROUPE_CHECK(s.piece_keys >= kPieceKeys && s.piece_keys % kPieceKeys == 0,
               "pieces of " + std::to_string(s.piece_keys) + " keys");
  TROUPE_CHECK(s.tile_rows == kTileRows || s.tile_rows == kWarpgroupRows,
               "tiles of " + std::to_string(s.tile_rows) + " rows");
  TROUPE_CHECK(s.block_tables.empty() ||
                   (s.block_size >= 1 && s.block_table_stride >= 0 &&
                    s.block_tables.size() >= requests * static_cast<size_t>(s.block_table_stride)),
               std::to_string(s.block_tables.size()) + " entries of block tables for " +
                   std::to_string(requests) + " requests");
}

}  // namespace

void plan_attention(const AttentionShape& shape, AttentionPlan& plan) {
  check_shape(shape);
  plan.tiles.clear();
  plan.shared.clear();
  plan.pieces.clear();
  plan.shared_rows.clear();
  plan.merges.clear();
  plan.partial_count = 0;
  std::vector<Request> decoding;
  for (size_t r = 0; r < shape.context_counts.size(); ++r) {
    const Request request = request_of(shape, r);
    if (decodes(request)) {
      decoding.push_back(request);
    } else if (request.queries > 0) {
      add_tiles(shape, request, plan);
    }
  }
  if (shape.block_tables.empty()) {
    for (const Request& r : decoding) add_pieces(shape, r, 0, plan);
  } else {
    add_decodes(shape, decoding, plan);
  }
  cut_tiles(shape, plan);
  // Blocks start in order: the last to start should be short.
  std::stable_sort(plan.tiles.begin(), plan.tiles.end(), [](const AttentionItem& a, const AttentionItem& b) {
    return a.end_key - a.first_key > b.end_key - b.first_key;
  });
}

size_t rounded_count(size_t count, size_t step) {
  const size_t power = std::bit_ceil(count);
  step = std::max<size_t>({power / 16, std::min(step, power / 2), 1});
  return (count + step - 1) / step * step;
}

void round_up(AttentionPlan& plan) {
  plan.pieces.resize(rounded_count(plan.pieces.size(), kPiecesStep));
  plan.merges.resize(rounded_count(plan.merges.size(), kMergesStep));
}

// The worst case: all rows are of requests that become pieces, and have as many keys as a request may. A
// cascade's last shared piece and the first behind it may both be short: one more. All possible pieces of
// tiles come on top.
int64_t most_partials(const AttentionLimits& limits, int32_t piece_keys) {
  const int64_t rows = std::min(limits.requests * kDecodeRows, limits.tokens * limits.group_heads);
  return rows * ((limits.keys + piece_keys - 1) / piece_keys + 1) +
         int64_t{limits.tiles_at_once} * kWarpgroupRows;
}

int32_t piece_keys_for(const AttentionLimits& limits, int64_t partials) {
  int32_t piece_keys = kPieceKeys;
  while (piece_keys < limits.keys && most_partials(limits, piece_keys) > partials) piece_keys *= 2;
  return piece_keys;
}

void token_requests(std::span<const int32_t> query_starts, std::vector<int32_t>& out) {
  out.clear();
  for (size_t r = 0; r + 1 < query_starts.size(); ++r) {
    out.resize(static_cast<size_t>(query_starts[r + 1]), static_cast<int32_t>(r));
  }
}

}  // namespace troupe::cuda
