#include "kernels/cpu/product_plan.h"

#include <algorithm>
#include <array>

namespace troupe::cpu {
namespace {

constexpr int64_t kSliceStep = 64;
constexpr int64_t kSliceMin = 512;  // where a product is wide: below this the calls' own cost shows
constexpr int64_t kSlicesPerThread = 4;
constexpr std::array<int64_t, 11> kLargeChunks{512, 384, 256, 192, 128, 96, 64, 48, 32, 24, 16};

constexpr int64_t kFewRows = 32;
constexpr int64_t kRunsPerThread = 4;
constexpr int64_t kItemsPerThread = 4;
constexpr int64_t kChunkStep = 24;  // a multiple of every kernel's rows in registers

int64_t divided_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// Piece i of `count` pieces of [0, size), even but for the last unit.
Range piece(int64_t size, int64_t i, int64_t count) {
  const int64_t begin = size * i / count;
  return {begin, size * (i + 1) / count - begin};
}

constexpr int64_t kBlockRows = 32;
constexpr int64_t kChunkBlocks = 16;
constexpr int64_t kL2StepsOfBlocks = 640;  // of 2 KiB: what a chunk's part of x may take of the L2 cache

}  // namespace

std::vector<Range> column_slices(int64_t columns, int threads) {
  const int64_t per_thread = (columns + threads - 1) / threads;
  const int64_t share = (columns + threads * kSlicesPerThread - 1) / (threads * kSlicesPerThread);
  const int64_t wanted = std::max(share, std::min(per_thread, kSliceMin));
  const int64_t width = (wanted + kSliceStep - 1) / kSliceStep * kSliceStep;
  std::vector<Range> slices;
  for (int64_t begin = 0; begin < columns; begin += width) {
    slices.push_back({begin, std::min(width, columns - begin)});
  }
  return slices;
}

int64_t row_chunk(int64_t rows) {
  for (int64_t size : kLargeChunks) {
    if (rows >= size) return size;
  }
  return rows;
}

void row_chunks(int64_t rows, int64_t chunk_max, std::vector<Range>& out) {
  out.clear();
  for (int64_t begin = 0; begin < rows;) {
    const int64_t count = row_chunk(std::min(rows - begin, chunk_max));
    out.push_back({begin, count});
    begin += count;
  }
}

PanelCut cut_panels(int64_t panels, int64_t rows, int threads) {
  PanelCut cut;
  if (panels == 0 || rows == 0) return cut;
  cut.panels = panels;
  cut.runs = panels;
  cut.rows_per_chunk = std::min(rows, kPanelChunkRows);
  if (rows <= kFewRows) {
    cut.runs = threads == 1 ? 1 : std::min(panels, threads * kRunsPerThread);
  } else if (panels < threads * kItemsPerThread) {
    const int64_t share = divided_up(rows, divided_up(threads * kItemsPerThread, panels));
    cut.rows_per_chunk = std::min(cut.rows_per_chunk, divided_up(share, kChunkStep) * kChunkStep);
  }
  cut.chunks = divided_up(rows, cut.rows_per_chunk);
  return cut;
}

Range TileCut::rows_of(int64_t chunk) const {
  const int64_t begin = chunk * rows_per_chunk;
  return {begin, std::min(rows_per_chunk, rows - begin)};
}

Range TileCut::steps_of(int64_t part) const {
  return piece(steps, part, depth_parts);
}

Range TileCut::panels_of(int64_t item) const {
  return piece(panels, item / block_runs, runs);
}

Range TileCut::blocks_of(int64_t item, Range rows_of_chunk) const {
  return piece(divided_up(rows_of_chunk.count, kBlockRows), item % block_runs, block_runs);
}

TileCut cut_tiles(int64_t rows, int64_t panels, int64_t steps, int threads) {
  TileCut cut;
  if (panels == 0 || rows == 0 || steps == 0) return cut;
  cut.rows = rows;
  cut.steps = steps;
  cut.panels = panels;
  const int64_t blocks = divided_up(rows, kBlockRows);
  cut.row_chunks = divided_up(blocks, kChunkBlocks);
  const int64_t chunk_blocks = divided_up(blocks, cut.row_chunks);
  cut.rows_per_chunk = std::min(rows, chunk_blocks * kBlockRows);
  cut.row_chunks = divided_up(rows, cut.rows_per_chunk);
  cut.depth_parts = std::min(steps, divided_up(chunk_blocks * steps, kL2StepsOfBlocks));
  if (threads == 1) {
    cut.runs = 1;
    return cut;
  }
  cut.runs = std::min(panels, threads * kRunsPerThread);
  const int64_t wanted = divided_up(threads * kItemsPerThread, cut.runs);
  cut.block_runs = std::min(chunk_blocks, wanted);
  return cut;
}

}  // namespace troupe::cpu
