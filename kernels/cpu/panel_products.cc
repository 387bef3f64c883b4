// Products without oneDNN. A weight is packed into panels of panel_columns output features, k-major, so that
// one step of k reads one contiguous row of a panel: single values where x is multiplied in float32 (bfloat16
// stays bfloat16 in memory and becomes float32 in registers), pairs where the machine multiplies bfloat16
// itself (pair_panels_avx512.h). Items are runs of panels times chunks of rows (product_plan.h).

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/check.h"
#include "kernels/cpu/product_plan.h"
#include "kernels/cpu/products.h"
#include "kernels/cpu/vector_ops.h"
#include "kernels/host/host_buffer.h"

namespace troupe::cpu {
namespace {

class PanelWeight final : public PackedWeight {
 public:
  PanelWeight(int64_t rows, int64_t columns, std::unique_ptr<HostBuffer> panels)
      : rows_(rows), columns_(columns), panels_(std::move(panels)) {}
  int64_t rows() const override { return rows_; }
  int64_t columns() const override { return columns_; }
  int64_t bytes() const override { return static_cast<int64_t>(panels_->bytes()); }
  const char* panels() const { return static_cast<const char*>(panels_->data()); }

 private:
  int64_t rows_;
  int64_t columns_;
  std::unique_ptr<HostBuffer> panels_;  // (panels, steps, panel columns, k a step), zeros past N and K
};

class PanelProducts final : public Products {
 public:
  PanelProducts(DType dtype, const VectorOps& ops, ThreadPool& pool)
      : dtype_(dtype),
        ops_(ops),
        pool_(pool),
        pairs_(dtype == DType::kBFloat16 && ops.pair_product != nullptr),
        converted_x_(dtype == DType::kBFloat16 && !pairs_) {}

  std::string_view name() const override { return pairs_ ? "panels of pairs" : "panels"; }

  StatusOr<std::unique_ptr<PackedWeight>> pack(const Tensor& weight) override {
    const int64_t outs = weight.shape[0];
    const int64_t ins = weight.shape[1];
    const int64_t panels = panel_count(outs);
    TROUPE_ASSIGN_OR_RETURN(auto storage,
                            HostBuffer::allocate(static_cast<size_t>(panels * panel_bytes(ins))));
    const int64_t width = ops_.panel_columns;
    pool_.parallel_for(panels, [&](int64_t p, int) {
      std::vector<float> row(static_cast<size_t>(ins));
      const Tensor panel = Tensor::make(static_cast<char*>(storage->data()) + p * panel_bytes(ins), dtype_,
                                        {steps(ins), width, depth_step()});
      for (int64_t n = p * width; n < std::min(outs, (p + 1) * width); ++n) {
        const auto size = static_cast<int64_t>(dtype_size(weight.dtype));
        ops_.to_float({weight.as<const char>() + n * ins * size, weight.dtype, row.data(), ins});
        for (int64_t k = 0; k < ins; ++k) {
          const int64_t at = (k / depth_step() * width + n % width) * depth_step() + k % depth_step();
          set_element(panel, at, row[static_cast<size_t>(k)]);
        }
      }
    });
    return std::make_unique<PanelWeight>(outs, ins, std::move(storage));
  }

  void matmul(const MatmulParams& params) override {
    const auto& weight = static_cast<const PanelWeight&>(*params.weight);
    const PanelCut cut = cut_panels(panel_count(weight.rows()), params.x.shape[0], pool_.thread_count());
    const char* x = prepared_x(params.x);
    reserve_sums(cut.rows_per_chunk);
    pool_.parallel_for(cut.items(), [&](int64_t item, int thread) {
      const int64_t row = cut.first_row(item);
      const Range panels = cut.panels_of(item);
      for (int64_t p = panels.begin; p < panels.begin + panels.count; ++p) {
        PanelProduct product = at(params, weight, {p, row, cut.rows_per_chunk});
        product.x = x + row * weight.columns() * x_size();
        product.sums = sums_ == nullptr ? nullptr : static_cast<float*>(sums_->data()) + thread * sums_count_;
        (pairs_ ? ops_.pair_product : ops_.panel_product)(product);
      }
    });
  }

 private:
  struct Place {
    int64_t panel;
    int64_t row;
    int64_t rows_max;
  };

  int64_t panel_count(int64_t outs) const { return (outs + ops_.panel_columns - 1) / ops_.panel_columns; }
  int64_t depth_step() const { return pairs_ ? 2 : 1; }
  int64_t steps(int64_t depth) const { return (depth + depth_step() - 1) / depth_step(); }
  int64_t panel_bytes(int64_t depth) const {
    return steps(depth) * depth_step() * ops_.panel_columns * static_cast<int64_t>(dtype_size(dtype_));
  }
  int64_t x_size() const { return static_cast<int64_t>(converted_x_ ? sizeof(float) : dtype_size(dtype_)); }

  // All but x and sums.
  PanelProduct at(const MatmulParams& params, const PanelWeight& weight, const Place& place) const {
    const int64_t column = place.panel * ops_.panel_columns;
    const int64_t outs = weight.rows();
    PanelProduct product{};
    product.panel = weight.panels() + place.panel * panel_bytes(weight.columns());
    product.weight_dtype = dtype_;
    product.depth = weight.columns();
    product.rows = std::min(place.rows_max, params.x.shape[0] - place.row);
    product.out.data = params.out.as<char>() +
                       (place.row * outs + column) * static_cast<int64_t>(dtype_size(params.out.dtype));
    product.out.dtype = params.out.dtype;
    product.out.columns = std::min(ops_.panel_columns, outs - column);
    product.out.stride = outs;
    product.out.accumulate = params.accumulate;
    if (!params.bias.empty()) product.out.bias = params.bias.as<const float>() + column;
    return product;
  }

  // x as the kernel takes it: itself, or converted into memory that grows to the largest batch and stays.
  const char* prepared_x(const Tensor& x) {
    if (!converted_x_) return x.as<const char>();
    if (x_.size() < static_cast<size_t>(x.elements())) x_.resize(static_cast<size_t>(x.elements()));
    const int64_t columns = x.shape[1];
    for (int64_t t = 0; t < x.shape[0]; ++t) {
      ops_.to_float({x.as<const BFloat16>() + t * columns, x.dtype, x_.data() + t * columns, columns});
    }
    return reinterpret_cast<const char*>(x_.data());
  }

  void reserve_sums(int64_t rows) {
    if (!pairs_ || rows * ops_.panel_columns <= sums_count_) return;
    sums_count_ = rows * ops_.panel_columns;
    auto buffer =
        HostBuffer::allocate(static_cast<size_t>(sums_count_ * pool_.thread_count()) * sizeof(float));
    if (!buffer.ok()) check_failed("matmul", to_std(buffer.status().message()));
    sums_ = std::move(*buffer);
  }

  DType dtype_;
  const VectorOps& ops_;
  ThreadPool& pool_;
  bool pairs_;        // panels of pairs
  bool converted_x_;  // x is multiplied in float32 and comes in bfloat16
  std::vector<float> x_;
  std::unique_ptr<HostBuffer> sums_;  // sums_count_ for each thread
  int64_t sums_count_ = 0;
};

}  // namespace

std::unique_ptr<Products> make_panel_products(DType dtype, CpuIsa isa, ThreadPool& pool) {
  return std::make_unique<PanelProducts>(dtype, vector_ops(isa), pool);
}

}  // namespace troupe::cpu
