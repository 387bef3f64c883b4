// Products by weights of 8 bits (int8.h says what they mean). Packed into panels of kQuadColumns output
// features, four k side by side (quads_body.h), the same for every instruction set but AMX
// (tile_products.cc). The rows of x are rounded to 8 bits once a product, each by itself, so the batch
// changes no bit.

#include <algorithm>
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

int64_t quads_of(int64_t depth) {
  return (depth + 3) / 4;
}
int64_t panels_of(int64_t outs) {
  return (outs + kQuadColumns - 1) / kQuadColumns;
}

class Int8Weight final : public PackedWeight {
 public:
  Int8Weight(int64_t rows, int64_t columns, std::unique_ptr<HostBuffer> panels)
      : rows_(rows),
        columns_(columns),
        panels_(std::move(panels)),
        scales_(static_cast<size_t>(panels_of(rows) * kQuadColumns)),
        sums_(scales_.size()) {}
  int64_t rows() const override { return rows_; }
  int64_t columns() const override { return columns_; }
  int64_t bytes() const override { return static_cast<int64_t>(panels_->bytes() + scales_.size() * 8); }
  WeightFormat format() const override { return WeightFormat::kInt8; }

  int8_t* panel(int64_t p) const {
    return static_cast<int8_t*>(panels_->data()) + p * quads_of(columns_) * kQuadColumns * 4;
  }
  const float* scales(int64_t p) const { return scales_.data() + p * kQuadColumns; }
  const int32_t* sums(int64_t p) const { return sums_.data() + p * kQuadColumns; }

  // One output feature, in float32.
  void put(int64_t n, const float* row, std::vector<int8_t>& rounded) {
    const auto at = static_cast<size_t>(n);
    scales_[at] = quantize_row(row, columns_, rounded.data());
    int8_t* to = panel(n / kQuadColumns) + n % kQuadColumns * 4;
    for (int64_t k = 0; k < columns_; ++k) {
      to[k / 4 * kQuadColumns * 4 + k % 4] = rounded[static_cast<size_t>(k)];
      sums_[at] += rounded[static_cast<size_t>(k)];
    }
  }

 private:
  int64_t rows_;
  int64_t columns_;
  std::unique_ptr<HostBuffer> panels_;  // (panels, quads, kQuadColumns, 4), zeros past N and K
  std::vector<float> scales_;           // (N), zeros past N
  std::vector<int32_t> sums_;           // (N): Σ_k
};

class Int8Products final : public Products {
 public:
  Int8Products(const VectorOps& ops, ThreadPool& pool) : ops_(ops), pool_(pool) {}

  std::string_view name() const override { return "int8 panels"; }

  StatusOr<std::unique_ptr<PackedWeight>> pack(const Tensor& weight) override {
    const int64_t outs = weight.shape[0];
    const int64_t ins = weight.shape[1];
    const auto bytes = static_cast<size_t>(panels_of(outs) * quads_of(ins) * kQuadColumns * 4);
    TROUPE_ASSIGN_OR_RETURN(auto storage, HostBuffer::allocate(bytes));
    auto packed = std::make_unique<Int8Weight>(outs, ins, std::move(storage));
    pool_.parallel_for(panels_of(outs), [&](int64_t p, int) {
      std::vector<float> row(static_cast<size_t>(ins));
      std::vector<int8_t> rounded(static_cast<size_t>(ins));
      for (int64_t n = p * kQuadColumns; n < std::min(outs, (p + 1) * kQuadColumns); ++n) {
        const auto size = static_cast<int64_t>(dtype_size(weight.dtype));
        ops_.to_float({weight.as<const char>() + n * ins * size, weight.dtype, row.data(), ins});
        packed->put(n, row.data(), rounded);
      }
    });
    return packed;
  }

  void matmul(const MatmulParams& params) override {
    const auto& weight = static_cast<const Int8Weight&>(*params.weight);
    const PanelCut cut = cut_panels(panels_of(weight.rows()), params.x.shape[0], pool_.thread_count());
    quantize(params.x);
    reserve_sums(cut.rows_per_chunk * kQuadColumns);
    pool_.parallel_for(cut.items(), [&](int64_t item, int thread) {
      const int64_t row = cut.first_row(item);
      const Range panels = cut.panels_of(item);
      for (int64_t p = panels.begin; p < panels.begin + panels.count; ++p) {
        QuadProduct product = at(params, weight, p, row);
        product.rows = std::min(cut.rows_per_chunk, params.x.shape[0] - row);
        product.sums = static_cast<int32_t*>(sums_->data()) + thread * sums_count_;
        ops_.quad_product(product);
      }
    });
  }

 private:
  // All but rows and sums.
  QuadProduct at(const MatmulParams& params, const Int8Weight& weight, int64_t panel, int64_t row) const {
    const int64_t column = panel * kQuadColumns;
    const int64_t outs = weight.rows();
    QuadProduct product{};
    product.quads = quads_of(weight.columns());
    product.x = x_.data() + row * product.quads * 4;
    product.x_scales = x_scales_.data() + row;
    product.panel = weight.panel(panel);
    product.scales = weight.scales(panel);
    product.column_sums = weight.sums(panel);
    product.out.data =
        params.out.as<char>() + (row * outs + column) * static_cast<int64_t>(dtype_size(params.out.dtype));
    product.out.dtype = params.out.dtype;
    product.out.columns = std::min(kQuadColumns, outs - column);
    product.out.stride = outs;
    product.out.accumulate = params.accumulate;
    if (!params.bias.empty()) product.out.bias = params.bias.as<const float>() + column;
    return product;
  }

  void quantize(const Tensor& x) {
    const int64_t columns = x.shape[1];
    const int64_t stride = quads_of(columns) * 4;
    const auto bytes = static_cast<size_t>(x.shape[0] * stride);
    if (x_.size() < bytes) x_.resize(bytes);
    if (x_scales_.size() < static_cast<size_t>(x.shape[0])) x_scales_.resize(static_cast<size_t>(x.shape[0]));
    const int64_t per_item = std::max<int64_t>(1, kElementsPerItem / columns);
    pool_.parallel_for((x.shape[0] + per_item - 1) / per_item, [&](int64_t item, int) {
      for (int64_t t = item * per_item; t < std::min(x.shape[0], (item + 1) * per_item); ++t) {
        uint8_t* quads = x_.data() + t * stride;
        // Elements past K are multiplied by zeros.
        ops_.quantize({x.as<const char>() + t * columns * static_cast<int64_t>(dtype_size(x.dtype)), x.dtype,
                       columns, quads, &x_scales_[static_cast<size_t>(t)]});
      }
    });
  }

  void reserve_sums(int64_t count) {
    if (sums_ != nullptr && count <= sums_count_) return;
    sums_count_ = count;
    auto buffer = HostBuffer::allocate(static_cast<size_t>(count * pool_.thread_count()) * sizeof(int32_t));
    if (!buffer.ok()) check_failed("matmul", to_std(buffer.status().message()));
    sums_ = std::move(*buffer);
  }

  static constexpr int64_t kElementsPerItem = 16384;

  const VectorOps& ops_;
  ThreadPool& pool_;
  std::vector<uint8_t> x_;  // (T, quads, 4): 128 + value; grows to the largest batch and stays
  std::vector<float> x_scales_;
  std::unique_ptr<HostBuffer> sums_;  // sums_count_ for each thread
  int64_t sums_count_ = 0;
};

}  // namespace

std::unique_ptr<Products> make_int8_products(CpuIsa isa, ThreadPool& pool) {
  if (vector_ops(isa).tiles != nullptr) return make_int8_tile_products(isa, pool);
  return std::make_unique<Int8Products>(vector_ops(isa), pool);
}

}  // namespace troupe::cpu
