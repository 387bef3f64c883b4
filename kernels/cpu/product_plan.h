#pragma once

// How a product is cut into pieces of work: pure functions, tested without any arithmetic.
//
// For oneDNN: columns (output features) are cut into slices, one oneDNN call each: that is how threads share
// a product, and no element's sum is split. Rows (tokens) are cut into chunks of a few sizes, because each
// size is a compiled kernel of its own and a step's token count takes any value: 37 rows run as 32 + 5, both
// on the same slice while it is in the cache, and nothing is padded or copied.

#include <cstdint>
#include <vector>

namespace troupe::cpu {

struct Range {
  int64_t begin = 0;
  int64_t count = 0;
  bool operator==(const Range&) const = default;
};

// Slices of [0, columns): multiples of 64 (whole cache lines, whole register tiles) of one width, the last
// one the rest. Enough of them for `threads`, a few times more where they stay wide.
std::vector<Range> column_slices(int64_t columns, int threads);

// Largest chunk size that is at most `rows`: 1 … 16, then steps of a quarter to a half up to 512.
int64_t row_chunk(int64_t rows);

// Chunks of [0, rows), none larger than `chunk_max`, largest first.
void row_chunks(int64_t rows, int64_t chunk_max, std::vector<Range>& out);

// For panels (panel_products.cc, int8_products.cc): an item is a run of neighbouring panels times a chunk of
// rows.
struct PanelCut {
  int64_t panels = 0;
  int64_t runs = 0;
  int64_t rows_per_chunk = 1;
  int64_t chunks = 0;
  int64_t items() const { return runs * chunks; }
  // Chunks of a run come one after the other: the second finds its panels in the cache.
  Range panels_of(int64_t item) const {
    const int64_t run = item / chunks;
    const int64_t begin = panels * run / runs;
    return {begin, panels * (run + 1) / runs - begin};
  }
  int64_t first_row(int64_t item) const { return item % chunks * rows_per_chunk; }
};

// Few rows: some long runs a thread, so that each reads on and on. Many rows: single panels, and chunks of
// rows only where panels alone would leave threads without work.
PanelCut cut_panels(int64_t panels, int64_t rows, int threads);

inline constexpr int64_t kPanelChunkRows = 504;  // at most: what bounds the memory of sums

// For tile registers (tile_products.cc): chunks of rows and parts of k are taken one after the other; the
// items of one of each are runs of neighbouring panels times runs of blocks of 32 rows.
struct TileCut {
  int64_t rows = 0;
  int64_t rows_per_chunk = 1;  // whole blocks, where there are several chunks
  int64_t row_chunks = 0;
  int64_t steps = 0;  // of k
  int64_t depth_parts = 1;
  int64_t panels = 0;
  int64_t runs = 0;
  int64_t block_runs = 1;
  Range rows_of(int64_t chunk) const;
  Range steps_of(int64_t part) const;
  int64_t steps_max() const { return (steps + depth_parts - 1) / depth_parts; }
  int64_t items() const { return runs * block_runs; }
  Range panels_of(int64_t item) const;
  Range blocks_of(int64_t item, Range rows_of_chunk) const;
};
TileCut cut_tiles(int64_t rows, int64_t panels, int64_t steps, int threads);

}  // namespace troupe::cpu
