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

}  // namespace troupe::cpu
