// Products with AMX (tile_panels_amx.h says what is computed). The rows of x are arranged for tile registers
// once a product, as much of them at a time as the L2 cache holds beside a panel: as many as 512 rows, and of
// a deep product a part of k, whose sums then rest in memory until the next part. Items are runs of panels
// times parts of the rows (product_plan.h).
//
// A gated MLP of many rows is taken in parts of its width F: silu(gate) · up of a part stays in the L2 cache,
// arranged as the product by down takes it, and never becomes a matrix in memory.

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/check.h"
#include "kernels/cpu/product_plan.h"
#include "kernels/cpu/products.h"
#include "kernels/cpu/vector_ops.h"
#include "kernels/host/host_buffer.h"
#include "kernels/int8.h"

namespace troupe::cpu {
namespace {

constexpr int64_t kRowBytes = kTileStepBytes / kTileSide;  // of a row of x a step
constexpr int64_t kHalfSide = kTileSide / 2;

int64_t divided_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

class TileWeight : public PackedWeight {
 public:
  TileWeight(const Tensor& weight, int64_t element_bytes)
      : rows_(weight.shape[0]),
        columns_(weight.shape[1]),
        steps_(divided_up(columns_ * element_bytes, kRowBytes)),
        panel_count_(divided_up(rows_, kTileSide)) {}
  Status allocate() {
    const int64_t bytes = panel_count_ * steps_ * kTileStepBytes;
    TROUPE_ASSIGN_OR_RETURN(panels_, HostBuffer::allocate(static_cast<size_t>(bytes)));
    return absl::OkStatus();
  }
  int64_t rows() const override { return rows_; }
  int64_t columns() const override { return columns_; }
  int64_t bytes() const override { return static_cast<int64_t>(panels_->bytes()); }
  int64_t steps() const { return steps_; }
  int64_t panels() const { return panel_count_; }
  char* panel(int64_t p, int64_t step) const {
    return static_cast<char*>(panels_->data()) + (p * steps_ + step) * kTileStepBytes;
  }
  // Feature n's values, four bytes (pairs of bfloat16, quads of int8) of which lie side by side.
  void put_feature(int64_t n, const void* values, int64_t bytes) {
    const char* from = static_cast<const char*>(values);
    char* to = panel(n / kTileSide, 0) + n % kTileSide / kHalfSide * (kTileStepBytes / 2) + n % kHalfSide * 4;
    for (int64_t at = 0; at < bytes; at += 4) {
      std::memcpy(to + at / kRowBytes * kTileStepBytes + at % kRowBytes / 4 * kRowBytes, from + at,
                  static_cast<size_t>(std::min<int64_t>(4, bytes - at)));
    }
  }

 private:
  int64_t rows_;
  int64_t columns_;
  int64_t steps_;
  int64_t panel_count_;
  std::unique_ptr<HostBuffer> panels_;  // (panels, steps, kTileStepBytes), zeros past N and K
};

class Int8TileWeight final : public TileWeight {
 public:
  explicit Int8TileWeight(const Tensor& weight)
      : TileWeight(weight, 1), scales_(static_cast<size_t>(panels() * kTileSide)), sums_(scales_.size()) {}
  int64_t bytes() const override {
    return TileWeight::bytes() + static_cast<int64_t>(scales_.size() * (sizeof(float) + sizeof(int32_t)));
  }
  WeightFormat format() const override { return WeightFormat::kInt8; }
  void put(int64_t n, const float* row, std::vector<int8_t>& rounded) {
    const auto at = static_cast<size_t>(n);
    scales_[at] = quantize_row(row, columns(), rounded.data());
    sums_[at] = std::accumulate(rounded.begin(), rounded.end(), 0);
    put_feature(n, rounded.data(), columns());
  }
  TileScales scales(int64_t p, const float* rows) const {
    return {rows, scales_.data() + p * kTileSide, sums_.data() + p * kTileSide};
  }

 private:
  std::vector<float> scales_;  // (N), zeros past N
  std::vector<int32_t> sums_;  // (N): Σ_k
};

// Rows of x as a product takes them, row-major.
struct RowsOf {
  const char* data;
  int64_t count;
  int64_t bytes;  // of a row
};

// Shared by products of either type.
class TileLoop {
 protected:
  TileLoop(const VectorOps& ops, ThreadPool& pool) : ops_(ops), pool_(pool) {}

  struct Place {
    Range rows;    // of the chunk
    Range blocks;  // of the chunk's rows, 32 each
    int64_t part;  // of k
    int64_t panel;
  };
  using Op = void (*)(const TileProduct&);

  // put(n, its values in float32) for every feature of `weight`.
  template <typename Put>
  void for_features(const Tensor& weight, Put put) {
    const int64_t outs = weight.shape[0];
    const int64_t ins = weight.shape[1];
    pool_.parallel_for(divided_up(outs, kTileSide), [&](int64_t p, int) {
      std::vector<float> row(static_cast<size_t>(ins));
      for (int64_t n = p * kTileSide; n < std::min(outs, (p + 1) * kTileSide); ++n) {
        const auto size = static_cast<int64_t>(dtype_size(weight.dtype));
        ops_.to_float({weight.as<const char>() + n * ins * size, weight.dtype, row.data(), ins});
        put(n, row.data());
      }
    });
  }

  // scales_of(panel, the chunk's first row).
  template <typename ScalesOf>
  void multiply(const MatmulParams& params, const RowsOf& x, Op op, ScalesOf scales_of) {
    const auto& weight = static_cast<const TileWeight&>(*params.weight);
    const TileCut cut = cut_tiles(x.count, weight.panels(), weight.steps(), pool_.thread_count());
    reserve(x_, cut);
    reserve_sums(cut);
    for (int64_t chunk = 0; chunk < cut.row_chunks; ++chunk) {
      const Range rows = cut.rows_of(chunk);
      for (int64_t part = 0; part < cut.depth_parts; ++part) {
        arrange(x, rows, cut.steps_of(part));
        pool_.parallel_for(cut.items(), [&](int64_t item, int) {
          const Range panels = cut.panels_of(item);
          for (int64_t p = panels.begin; p < panels.begin + panels.count; ++p) {
            TileProduct product = at(params, cut, {rows, cut.blocks_of(item, rows), part, p}, *x_);
            const TileScales scales = scales_of(p, rows.begin + cut.blocks_of(item, rows).begin * kTileSide);
            product.scales = &scales;
            op(product);
          }
        });
      }
    }
  }

  static void grow(std::unique_ptr<HostBuffer>& buffer, int64_t bytes) {
    if (buffer != nullptr && static_cast<int64_t>(buffer->bytes()) >= bytes) return;
    auto larger = HostBuffer::allocate(static_cast<size_t>(bytes));
    if (!larger.ok()) check_failed("matmul", to_std(larger.status().message()));
    buffer = std::move(*larger);
  }
  // Room for a chunk's rows by a part's steps.
  static void reserve(std::unique_ptr<HostBuffer>& buffer, const TileCut& cut) {
    grow(buffer, divided_up(cut.rows_per_chunk, kTileSide) * cut.steps_max() * kTileStepBytes);
  }
  void reserve_sums(const TileCut& cut) {
    if (cut.depth_parts == 1) return;
    const int64_t blocks = divided_up(cut.rows_per_chunk, kTileSide);
    grow(sums_, blocks * cut.panels * kTileSums * int64_t{sizeof(float)});
  }

  // Rows and steps of x into x_.
  void arrange(const RowsOf& x, Range rows, Range steps) {
    const int64_t begin = steps.begin * kRowBytes;
    pool_.parallel_for(divided_up(rows.count, kTileSide), [&](int64_t block, int) {
      const int64_t row = rows.begin + block * kTileSide;
      ops_.tiles->arrange({.x = x.data + row * x.bytes + begin,
                           .x_stride = x.bytes,
                           .row_bytes = x.bytes - begin,
                           .rows = std::min(kTileSide, rows.begin + rows.count - row),
                           .steps = steps.count,
                           .out = static_cast<char*>(x_->data()) + block * steps.count * kTileStepBytes});
    });
  }

  // All but scales.
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

  const VectorOps& ops_;
  ThreadPool& pool_;
  // Grow to the largest product and stay.
  std::unique_ptr<HostBuffer> x_;     // a chunk's rows by a part's steps, arranged
  std::unique_ptr<HostBuffer> sums_;  // (panels, blocks, kTileSums) of a chunk
};

class TileProducts final : public Products, TileLoop {
 public:
  TileProducts(const VectorOps& ops, ThreadPool& pool) : TileLoop(ops, pool) {}

  std::string_view name() const override { return "panels of tiles"; }

  StatusOr<std::unique_ptr<PackedWeight>> pack(const Tensor& weight) override {
    auto packed = std::make_unique<TileWeight>(weight, int64_t{sizeof(BFloat16)});
    TROUPE_RETURN_IF_ERROR(packed->allocate());
    const int64_t ins = weight.shape[1];
    for_features(weight, [&](int64_t n, const float* row) {
      std::vector<BFloat16> rounded(static_cast<size_t>(ins));
      std::transform(row, row + ins, rounded.begin(), to_bfloat16);
      packed->put_feature(n, rounded.data(), ins * int64_t{sizeof(BFloat16)});
    });
    return packed;
  }

  void matmul(const MatmulParams& params) override {
    const Op op = params.x.shape[0] == 1 ? ops_.tiles->row : ops_.tiles->product;
    multiply(params, rows_of(params.x), op, [](int64_t, int64_t) { return TileScales{}; });
  }

  bool gated_mlp(const GatedMlpParams& params) override {
    const auto& gate_up = static_cast<const TileWeight&>(*params.gate_up);
    const auto& down = static_cast<const TileWeight&>(*params.down);
    const int64_t rows_count = params.x.shape[0];
    const int threads = pool_.thread_count();
    const TileCut up_cut = cut_tiles(rows_count, down.steps(), gate_up.steps(), threads);
    const TileCut down_cut = cut_tiles(rows_count, down.panels(), down.steps(), threads);
    if (rows_count <= kFewRows || down.columns() % kTileSide != 0 || up_cut.depth_parts > 1) return false;
    reserve(x_, up_cut);
    reserve(gated_, down_cut);
    reserve_sums(down_cut);
    const MatmulParams last{.x = params.x,
                            .weight = params.down,
                            .out = params.sum,
                            .accumulate = true,
                            .bias = params.down_bias};
    for (int64_t chunk = 0; chunk < down_cut.row_chunks; ++chunk) {
      const Range rows = down_cut.rows_of(chunk);
      arrange(rows_of(params.x), rows, up_cut.steps_of(0));
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

  static RowsOf rows_of(const Tensor& x) {
    return {x.as<const char>(), x.shape[0], x.shape[1] * int64_t{sizeof(BFloat16)}};
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

  std::unique_ptr<HostBuffer> gated_;  // a chunk's rows by a part of F, arranged; grows and stays
};

class Int8TileProducts final : public Products, TileLoop {
 public:
  Int8TileProducts(const VectorOps& ops, ThreadPool& pool) : TileLoop(ops, pool) {}

  std::string_view name() const override { return "int8 panels of tiles"; }

  StatusOr<std::unique_ptr<PackedWeight>> pack(const Tensor& weight) override {
    auto packed = std::make_unique<Int8TileWeight>(weight);
    TROUPE_RETURN_IF_ERROR(packed->allocate());
    for_features(weight, [&](int64_t n, const float* row) {
      std::vector<int8_t> rounded(static_cast<size_t>(weight.shape[1]));
      packed->put(n, row, rounded);
    });
    return packed;
  }

  void matmul(const MatmulParams& params) override {
    const auto& weight = static_cast<const Int8TileWeight&>(*params.weight);
    const Op op = params.x.shape[0] == 1 ? ops_.tiles->quad_row : ops_.tiles->quad_product;
    quantize(params.x);
    const RowsOf rows{reinterpret_cast<const char*>(quads_.data()), params.x.shape[0], params.x.shape[1]};
    multiply(params, rows, op,
             [&](int64_t p, int64_t row) { return weight.scales(p, scales_.data() + row); });
  }

 private:
  // Each row to 8 bits by itself, so the batch changes no bit.
  void quantize(const Tensor& x) {
    const int64_t rows = x.shape[0];
    const int64_t columns = x.shape[1];
    if (quads_.size() < static_cast<size_t>(rows * columns))
      quads_.resize(static_cast<size_t>(rows * columns));
    if (scales_.size() < static_cast<size_t>(rows)) scales_.resize(static_cast<size_t>(rows));
    const int64_t size = static_cast<int64_t>(dtype_size(x.dtype));
    const int64_t per_item = std::max<int64_t>(1, kElementsPerItem / columns);
    pool_.parallel_for(divided_up(rows, per_item), [&](int64_t item, int) {
      for (int64_t t = item * per_item; t < std::min(rows, (item + 1) * per_item); ++t) {
        ops_.quantize({x.as<const char>() + t * columns * size, x.dtype, columns, quads_.data() + t * columns,
                       &scales_[static_cast<size_t>(t)]});
      }
    });
  }

  static constexpr int64_t kElementsPerItem = 16384;

  std::vector<uint8_t> quads_;  // (T, K): 128 + value; grow to the largest batch and stay
  std::vector<float> scales_;   // (T)
};

}  // namespace

std::unique_ptr<Products> make_tile_products(CpuIsa isa, ThreadPool& pool) {
  return std::make_unique<TileProducts>(vector_ops(isa), pool);
}

std::unique_ptr<Products> make_int8_tile_products(CpuIsa isa, ThreadPool& pool) {
  return std::make_unique<Int8TileProducts>(vector_ops(isa), pool);
}

}  // namespace troupe::cpu
