// Products with AMX (tile_panels_amx.h says what is computed). The rows of x are arranged for tile registers
// once a product, as much of them at a time as the L2 cache holds beside a panel: as many as 512 rows, and of
// a deep product a part of k, whose sums then rest in memory until the next part. Items are runs of panels
// times parts of the rows (product_plan.h).
//
// A gated MLP of many rows is taken in parts of its width F: silu(gate) · up of a part stays in the L2 cache,
// arranged as the product by down takes it, and never becomes a matrix in memory.

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/cpu/product_plan.h"
#include "kernels/cpu/products.h"
#include "kernels/cpu/vector_ops.h"
#include "kernels/device/check.h"
#include "kernels/device/host_buffer.h"

namespace troupe::cpu {
namespace {

constexpr int64_t kDepthStep = 32;  // bfloat16 of k a step

int64_t divided_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

class TileWeight final : public PackedWeight {
 public:
  TileWeight(int64_t rows, int64_t columns, std::unique_ptr<HostBuffer> panels)
      : rows_(rows), columns_(columns), panels_(std::move(panels)) {}
  int64_t rows() const override { return rows_; }
  int64_t columns() const override { return columns_; }
  int64_t bytes() const override { return static_cast<int64_t>(panels_->bytes()); }
  int64_t steps() const { return divided_up(columns_, kDepthStep); }
  int64_t panels() const { return divided_up(rows_, kTileSide); }
  char* panel(int64_t p, int64_t step) const {
    return static_cast<char*>(panels_->data()) + (p * steps() + step) * kTileStepBytes;
  }

 private:
  int64_t rows_;
  int64_t columns_;
  std::unique_ptr<HostBuffer> panels_;  // (panels, steps, kTileStepBytes), zeros past N and K
};

class TileProducts final : public Products {
 public:
  TileProducts(const VectorOps& ops, ThreadPool& pool) : ops_(ops), pool_(pool) {}

  std::string_view name() const override { return "panels of tiles"; }

  StatusOr<std::unique_ptr<PackedWeight>> pack(const Tensor& weight) override {
    const int64_t outs = weight.shape[0];
    const int64_t ins = weight.shape[1];
    const int64_t panels = divided_up(outs, kTileSide);
    const int64_t bytes = panels * divided_up(ins, kDepthStep) * kTileStepBytes;
    TROUPE_ASSIGN_OR_RETURN(auto storage, HostBuffer::allocate(static_cast<size_t>(bytes)));
    auto packed = std::make_unique<TileWeight>(outs, ins, std::move(storage));
    pool_.parallel_for(panels, [&](int64_t p, int) {
      std::vector<float> row(static_cast<size_t>(ins));
      for (int64_t n = p * kTileSide; n < std::min(outs, (p + 1) * kTileSide); ++n) {
        const auto size = static_cast<int64_t>(dtype_size(weight.dtype));
        ops_.to_float({weight.as<const char>() + n * ins * size, weight.dtype, row.data(), ins});
        put_feature(row, n % kTileSide, reinterpret_cast<BFloat16*>(packed->panel(p, 0)));
      }
    });
    return packed;
  }

  void matmul(const MatmulParams& params) override {
    const auto& weight = static_cast<const TileWeight&>(*params.weight);
    const TileCut cut = cut_tiles(params.x.shape[0], weight.panels(), weight.steps(), pool_.thread_count());
    reserve(cut, weight.panels());
    for (int64_t chunk = 0; chunk < cut.row_chunks; ++chunk) {
      const Range rows = cut.rows_of(chunk);
      for (int64_t part = 0; part < cut.depth_parts; ++part) {
        arrange(params.x, rows, cut.steps_of(part));
        pool_.parallel_for(cut.items(), [&](int64_t item, int) {
          const Range panels = cut.panels_of(item);
          for (int64_t p = panels.begin; p < panels.begin + panels.count; ++p) {
            const TileProduct product = at(params, cut, {rows, cut.blocks_of(item, rows), part, p}, *x_);
            params.x.shape[0] == 1 ? ops_.tiles->row(product) : ops_.tiles->product(product);
          }
        });
      }
    }
  }

  bool gated_mlp(const GatedMlpParams& params) override {
    const auto& gate_up = static_cast<const TileWeight&>(*params.gate_up);
    const auto& down = static_cast<const TileWeight&>(*params.down);
    const int64_t rows_count = params.x.shape[0];
    const int threads = pool_.thread_count();
    const TileCut up_cut = cut_tiles(rows_count, down.steps(), gate_up.steps(), threads);
    const TileCut down_cut = cut_tiles(rows_count, down.panels(), down.steps(), threads);
    if (rows_count <= kFewRows || down.columns() % kTileSide != 0 || up_cut.depth_parts > 1) return false;
    reserve(up_cut, 0);
    reserve_gated(down_cut, down.panels());
    const MatmulParams last{.x = params.x,
                            .weight = params.down,
                            .out = params.sum,
                            .accumulate = true,
                            .bias = params.down_bias};
    for (int64_t chunk = 0; chunk < down_cut.row_chunks; ++chunk) {
      const Range rows = down_cut.rows_of(chunk);
      arrange(params.x, rows, up_cut.steps_of(0));
      for (int64_t part = 0; part < down_cut.depth_parts; ++part) {
        const TileCut cut = cut_tiles(rows.count, down_cut.steps_of(part).count, gate_up.steps(), threads);
        pool_.parallel_for(cut.items(), [&](int64_t item, int) {
          const Range panels = cut.panels_of(item);
          for (int64_t p = panels.begin; p < panels.begin + panels.count; ++p)
            ops_.tiles->gated(gated_at(params, down_cut, {rows, cut.blocks_of(item, rows), part, p}));
        });
        pool_.parallel_for(down_cut.items(), [&](int64_t item, int) {
          const Range panels = down_cut.panels_of(item);
          for (int64_t p = panels.begin; p < panels.begin + panels.count; ++p) {
            ops_.tiles->product(at(last, down_cut, {rows, down_cut.blocks_of(item, rows), part, p}, *gated_));
          }
        });
      }
    }
    return true;
  }

 private:
  static constexpr int64_t kFewRows = 32;  // bound by reading weights

  struct Place {
    Range rows;    // of the chunk
    Range blocks;  // of the chunk's rows, 32 each
    int64_t part;  // of k
    int64_t panel;
  };

  // Feature n of a panel: pairs of k side by side.
  static void put_feature(const std::vector<float>& row, int64_t n, BFloat16* panel) {
    for (int64_t k = 0; k < static_cast<int64_t>(row.size()); ++k) {
      const int64_t in_half = k % kDepthStep / 2 * 32 + n % 16 * 2 + k % 2;
      panel[k / kDepthStep * kTileStepBytes / 2 + n / 16 * 512 + in_half] =
          to_bfloat16(row[static_cast<size_t>(k)]);
    }
  }

  void reserve(const TileCut& cut, int64_t panels) {
    const int64_t blocks = divided_up(cut.rows_per_chunk, kTileSide);
    grow(x_, blocks * cut.steps_max() * kTileStepBytes);
    if (cut.depth_parts > 1) grow(sums_, blocks * panels * kTileSums * static_cast<int64_t>(sizeof(float)));
  }

  static void grow(std::unique_ptr<HostBuffer>& buffer, int64_t bytes) {
    if (buffer != nullptr && static_cast<int64_t>(buffer->bytes()) >= bytes) return;
    auto larger = HostBuffer::allocate(static_cast<size_t>(bytes));
    if (!larger.ok()) check_failed("matmul", to_std(larger.status().message()));
    buffer = std::move(*larger);
  }

  // Rows and steps of x into x_.
  void arrange(const Tensor& x, Range rows, Range steps) {
    const int64_t row_bytes = x.shape[1] * 2;
    const int64_t begin = steps.begin * kDepthStep * 2;
    pool_.parallel_for(divided_up(rows.count, kTileSide), [&](int64_t block, int) {
      const int64_t row = rows.begin + block * kTileSide;
      ops_.tiles->arrange({.x = x.as<const char>() + row * row_bytes + begin,
                           .x_stride = row_bytes,
                           .row_bytes = row_bytes - begin,
                           .rows = std::min(kTileSide, rows.begin + rows.count - row),
                           .steps = steps.count,
                           .out = static_cast<char*>(x_->data()) + block * steps.count * kTileStepBytes});
    });
  }

  TileProduct at(const MatmulParams& params, const TileCut& cut, const Place& place,
                 const HostBuffer& x) const {
    const auto& weight = static_cast<const TileWeight&>(*params.weight);
    const Range steps = cut.steps_of(place.part);
    const int64_t row = place.blocks.begin * kTileSide;
    const int64_t column = place.panel * kTileSide;
    const int64_t outs = weight.rows();
    const int64_t block_bytes = steps.count * kTileStepBytes;
    TileProduct product{};
    product.x = {static_cast<const char*>(x.data()) + place.blocks.begin * block_bytes, block_bytes,
                 steps.count, std::min(place.blocks.count * kTileSide, place.rows.count - row)};
    product.panel = weight.panel(place.panel, steps.begin);
    product.next = weight.panel(place.panel + 1, steps.begin);
    if (cut.depth_parts > 1) {
      const int64_t blocks = divided_up(cut.rows_per_chunk, kTileSide);
      product.sums =
          static_cast<float*>(sums_->data()) + (place.panel * blocks + place.blocks.begin) * kTileSums;
    }
    product.first = place.part == 0;
    product.last = place.part + 1 == cut.depth_parts;
    product.out.data = params.out.as<char>() + ((place.rows.begin + row) * outs + column) *
                                                   static_cast<int64_t>(dtype_size(params.out.dtype));
    product.out.dtype = params.out.dtype;
    product.out.columns = std::min(kTileSide, outs - column);
    product.out.stride = outs;
    product.out.accumulate = params.accumulate;
    if (!params.bias.empty()) product.out.bias = params.bias.as<const float>() + column;
    return product;
  }

  void reserve_gated(const TileCut& cut, int64_t panels) {
    const int64_t blocks = divided_up(cut.rows_per_chunk, kTileSide);
    grow(gated_, blocks * cut.steps_max() * kTileStepBytes);
    if (cut.depth_parts > 1) grow(sums_, blocks * panels * kTileSums * static_cast<int64_t>(sizeof(float)));
  }

  // place.panel: of the part's gates, and its ups.
  TileGated gated_at(const GatedMlpParams& params, const TileCut& cut, const Place& place) const {
    const auto& weight = static_cast<const TileWeight&>(*params.gate_up);
    const Range steps = cut.steps_of(place.part);
    const int64_t row = place.blocks.begin * kTileSide;
    const int64_t block_bytes = weight.steps() * kTileStepBytes;
    TileGated gated{};
    gated.x = {static_cast<const char*>(x_->data()) + place.blocks.begin * block_bytes, block_bytes,
               weight.steps(), std::min(place.blocks.count * kTileSide, place.rows.count - row)};
    for (int64_t i = 0; i < 2; ++i) {
      const int64_t panel = i * cut.steps + steps.begin + place.panel;
      gated.panels[i] = weight.panel(panel, 0);
      gated.next[i] = weight.panel(panel + 1, 0);
      if (!params.gate_up_bias.empty())
        gated.biases[i] = params.gate_up_bias.as<const float>() + panel * kTileSide;
    }
    gated.out_stride = steps.count * kTileStepBytes;
    gated.out = static_cast<char*>(gated_->data()) + place.blocks.begin * gated.out_stride +
                place.panel * kTileStepBytes;
    return gated;
  }

  const VectorOps& ops_;
  ThreadPool& pool_;
  // Grow to the largest product and stay.
  std::unique_ptr<HostBuffer> x_;      // a chunk's rows by a part's steps, arranged
  std::unique_ptr<HostBuffer> gated_;  // a chunk's rows by a part of F, arranged
  std::unique_ptr<HostBuffer> sums_;   // (panels, blocks, kTileSums) float32 of a chunk
};

}  // namespace

std::unique_ptr<Products> make_tile_products(CpuIsa isa, ThreadPool& pool) {
  return std::make_unique<TileProducts>(vector_ops(isa), pool);
}

}  // namespace troupe::cpu
