// Products through oneDNN, called by our own threads, each call single-threaded (host/openmp.h).
//
// Weights are packed per column slice into the layout oneDNN asks for; it is the same for every row count,
// and so is the order of each element's sum: that rows come out bitwise equal whatever the batch is measured
// by the tests, for the shapes in use and odd ones. At one row a packed weight is read at the memory's speed.
//
// oneDNN 2.6's fast kernels (brgemm) want a dense output: with rows a whole product apart it falls back to
// plain loops, a hundred times slower, without a word. So a slice's rows are computed into scratch and copied
// (or added) to their places from the cache; a single row is dense as it is. A bias is added on that way, to
// float32 products: out is rounded once.
//
// Creating a primitive compiles a kernel (0.1 - 0.5 ms). They are kept by (rows of the chunk, columns of the
// slice, depth, output type): a model has a handful of shapes and product_plan.h a handful of
// chunk sizes, so a few hundred at most; past kPrimitivesMax the cache starts anew.

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <vector>

#include "kernels/check.h"
#include "kernels/cpu/product_plan.h"
#include "kernels/cpu/products.h"
#include "kernels/host/host_buffer.h"
#include "kernels/host/openmp.h"

namespace troupe::cpu {
namespace {

using dnnl::memory;

constexpr size_t kPrimitivesMax = 2048;
// The layout is asked for with many rows: asked with one, oneDNN may answer with a row-major one, which later
// products of many rows could not use at speed.
constexpr int64_t kLayoutRows = 512;

memory::data_type data_type(DType dtype) {
  return dtype == DType::kBFloat16 ? memory::data_type::bf16 : memory::data_type::f32;
}

// One product's shape, as oneDNN compiles it.
struct ProductKey {
  int64_t rows;
  int64_t columns;
  int64_t depth;
  DType out;
  auto operator<=>(const ProductKey&) const = default;
};

struct Slice {
  Range columns;
  memory packed;
};

class OnednnWeight final : public PackedWeight {
 public:
  OnednnWeight(int64_t rows, int64_t columns) : rows_(rows), columns_(columns) {}
  int64_t rows() const override { return rows_; }
  int64_t columns() const override { return columns_; }
  int64_t bytes() const override { return static_cast<int64_t>(storage->bytes()); }

  std::vector<Slice> slices;
  std::unique_ptr<HostBuffer> storage;  // what the slices point into

 private:
  int64_t rows_;
  int64_t columns_;
};

dnnl::matmul::primitive_desc describe(const dnnl::engine& engine, DType dtype, const ProductKey& key,
                                      const memory::desc& weight) {
  const memory::desc src({key.rows, key.depth}, data_type(dtype), memory::format_tag::ab);
  const memory::desc dst({key.rows, key.columns}, data_type(key.out), memory::format_tag::ab);
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return {dnnl::matmul::desc(src, weight, dst), attributes, engine};
}

// A compiled product, and per thread the memory handles its calls need (made at the thread's first call).
struct Product {
  dnnl::matmul primitive;
  memory::desc src;
  memory::desc dst;
  memory::desc scratch;
  struct Handles {
    memory src;
    memory dst;
    memory scratch;
  };
  std::vector<Handles> by_thread;

  // In a thread's scratch memory, oneDNN's own part comes first, then the output.
  size_t out_offset() const { return (scratch.get_size() + 63) / 64 * 64; }
};

class OnednnProducts final : public Products {
 public:
  OnednnProducts(DType dtype, ThreadPool& pool)
      : dtype_(dtype), pool_(pool), engine_(dnnl::engine::kind::cpu, 0) {
    for (size_t t = 0; t < threads(); ++t) streams_.emplace_back(engine_);
  }

  std::string_view name() const override { return "onednn"; }

  StatusOr<std::unique_ptr<PackedWeight>> pack(const Tensor& weight) override {
    try {
      return pack_slices(weight);
    } catch (const dnnl::error& error) {
      return absl::InternalError("oneDNN cannot pack " + weight.shape_text() + ": " + error.what());
    }
  }

  void matmul(const MatmulParams& params) override {
    if (params.x.shape[0] == 0) return;
    try {
      multiply(params);
    } catch (const dnnl::error& error) {
      check_failed("matmul", "x " + params.x.shape_text() + ", out " + params.out.shape_text() +
                                 ", oneDNN: " + error.what());
    }
  }

 private:
  size_t threads() const { return static_cast<size_t>(pool_.thread_count()); }

  StatusOr<std::unique_ptr<PackedWeight>> pack_slices(const Tensor& weight) {
    const SingleThreadedOpenMp one_thread;
    auto packed = std::make_unique<OnednnWeight>(weight.shape[0], weight.shape[1]);
    std::vector<memory::desc> layouts;
    std::vector<size_t> offsets;
    size_t bytes = 0;
    for (const Range& columns : column_slices(weight.shape[0], pool_.thread_count())) {
      layouts.push_back(layout(columns.count, weight.shape[1]));
      offsets.push_back(bytes);
      packed->slices.push_back({columns, {}});
      bytes += (layouts.back().get_size() + 63) / 64 * 64;
    }
    TROUPE_ASSIGN_OR_RETURN(packed->storage, HostBuffer::allocate(bytes));
    for (size_t i = 0; i < packed->slices.size(); ++i) {
      packed->slices[i].packed =
          memory(layouts[i], engine_, static_cast<char*>(packed->storage->data()) + offsets[i]);
      pack_slice(weight, packed->slices[i]);
    }
    return packed;
  }

  // The slice's rows of the weight, converted and reordered into its layout.
  void pack_slice(const Tensor& weight, Slice& slice) {
    const int64_t ins = weight.shape[1];
    const int64_t count = slice.columns.count;
    rows_.resize(static_cast<size_t>(count * ins) * dtype_size(dtype_));
    const Tensor rows = Tensor::make(rows_.data(), dtype_, {count, ins});
    const auto item = static_cast<int64_t>(dtype_size(weight.dtype));
    pool_.parallel_for(count, [&](int64_t n, int) {
      const int64_t from = (slice.columns.begin + n) * ins;
      if (weight.dtype == dtype_) {
        std::memcpy(rows.as<char>() + n * ins * item, weight.as<const char>() + from * item,
                    static_cast<size_t>(ins * item));
        return;
      }
      for (int64_t k = 0; k < ins; ++k) set_element(rows, n * ins + k, element(weight, from + k));
    });
    memory plain({{ins, count}, data_type(dtype_), memory::format_tag::ba}, engine_, rows_.data());
    dnnl::reorder(plain, slice.packed).execute(streams_[0], plain, slice.packed);
  }

  memory::desc layout(int64_t columns, int64_t depth) const {
    const memory::desc any({depth, columns}, data_type(dtype_), memory::format_tag::any);
    return describe(engine_, dtype_, {kLayoutRows, columns, depth, DType::kFloat32}, any).weights_desc();
  }

  void multiply(const MatmulParams& params) {
    const SingleThreadedOpenMp one_thread;
    const auto& weight = static_cast<const OnednnWeight&>(*params.weight);
    const auto slice_count = static_cast<int64_t>(weight.slices.size());
    row_chunks(params.x.shape[0], chunk_max(params.x.shape[0], slice_count), chunks_);
    const auto chunk_count = static_cast<int64_t>(chunks_.size());
    prepare(params, weight);
    // A slice's chunks go to one thread where there are slices enough: the second finds it in the cache.
    const int64_t run = slice_count >= pool_.thread_count() ? chunk_count : 1;
    pool_.parallel_for(slice_count * chunk_count / run, [&](int64_t item, int thread) {
      for (int64_t i = item * run; i < (item + 1) * run; ++i) {
        const Call call{weight.slices[static_cast<size_t>(i / chunk_count)],
                        chunks_[static_cast<size_t>(i % chunk_count)], static_cast<size_t>(thread)};
        execute(*calls_[static_cast<size_t>(i)], params, call);
      }
    });
  }

  // Narrow products (fewer slices than threads) are shared by rows too.
  int64_t chunk_max(int64_t rows, int64_t slice_count) const {
    const int64_t parts = (pool_.thread_count() + slice_count - 1) / slice_count;
    return std::max<int64_t>((rows + parts - 1) / parts, 16);
  }

  // Finds or compiles the product of every (slice, chunk) into calls_, so that the parallel part only
  // executes.
  void prepare(const MatmulParams& params, const OnednnWeight& weight) {
    calls_.clear();
    if (products_.size() + weight.slices.size() * chunks_.size() > kPrimitivesMax) products_.clear();
    for (const Slice& slice : weight.slices) {
      for (const Range& chunk : chunks_) {
        const DType out = params.bias.empty() ? params.out.dtype : DType::kFloat32;
        const ProductKey key{chunk.count, slice.columns.count, weight.columns(), out};
        auto found = products_.find(key);
        if (found == products_.end()) found = products_.emplace(key, make_product(key, slice)).first;
        calls_.push_back(&found->second);
      }
    }
  }

  Product make_product(const ProductKey& key, const Slice& slice) {
    const auto description = describe(engine_, dtype_, key, slice.packed.get_desc());
    Product product{dnnl::matmul(description),
                    description.src_desc(),
                    description.dst_desc(),
                    description.scratchpad_desc(),
                    {}};
    product.by_thread.resize(threads());
    reserve_scratch(product.out_offset() + product.dst.get_size());
    return product;
  }

  void reserve_scratch(size_t bytes) {
    if (scratch_ != nullptr && bytes <= scratch_bytes_) return;
    scratch_bytes_ = (bytes + 63) / 64 * 64;
    auto buffer = HostBuffer::allocate(scratch_bytes_ * threads());
    if (!buffer.ok()) check_failed("matmul", to_std(buffer.status().message()));
    scratch_ = std::move(*buffer);
  }

  struct Call {
    const Slice& slice;
    const Range& rows;
    size_t thread;
  };

  void execute(Product& product, const MatmulParams& params, const Call& call) {
    const auto x_row = static_cast<int64_t>(dtype_size(dtype_)) * params.x.shape[1];
    const auto out_size = static_cast<int64_t>(dtype_size(params.out.dtype));
    char* x = params.x.as<char>() + call.rows.begin * x_row;
    const int64_t stride = params.out.shape[1];
    char* place = params.out.as<char>() + (call.rows.begin * stride + call.slice.columns.begin) * out_size;
    char* scratch = static_cast<char*>(scratch_->data()) + call.thread * scratch_bytes_;
    const bool dense = call.rows.count == 1 || call.slice.columns.count == stride;
    const bool in_place = dense && !params.accumulate && params.bias.empty();
    char* out = in_place ? place : scratch + product.out_offset();
    auto& handles = product.by_thread[call.thread];
    if (!handles.src) {
      handles.src = memory(product.src, engine_, x);
      handles.dst = memory(product.dst, engine_, out);
      handles.scratch = memory(product.scratch, engine_, scratch);
    }
    handles.src.set_data_handle(x);
    handles.dst.set_data_handle(out);
    handles.scratch.set_data_handle(scratch);
    const std::array<dnnl_exec_arg_t, 4> arguments{{{DNNL_ARG_SRC, handles.src.get()},
                                                    {DNNL_ARG_WEIGHTS, call.slice.packed.get()},
                                                    {DNNL_ARG_DST, handles.dst.get()},
                                                    {DNNL_ARG_SCRATCHPAD, handles.scratch.get()}}};
    const dnnl_status_t status = dnnl_primitive_execute(product.primitive.get(), streams_[call.thread].get(),
                                                        static_cast<int>(arguments.size()), arguments.data());
    if (status != dnnl_success) check_failed("matmul", "oneDNN status " + std::to_string(status));
    if (!in_place) put_rows({out, place, call.rows.count, call.slice.columns, stride}, params);
  }

  struct Rows {
    const char* from;  // (count, columns.count), dense
    char* to;          // (count, columns.count), rows `stride` elements apart
    int64_t count;
    Range columns;  // of out
    int64_t stride;
  };

  static void put_rows(const Rows& rows, const MatmulParams& params) {
    const auto size = static_cast<int64_t>(dtype_size(params.out.dtype));
    const int64_t columns = rows.columns.count;
    for (int64_t m = 0; m < rows.count; ++m) {
      char* to = rows.to + m * rows.stride * size;
      if (!params.accumulate && params.bias.empty()) {
        std::memcpy(to, rows.from + m * columns * size, static_cast<size_t>(columns * size));
        continue;
      }
      const float* products = reinterpret_cast<const float*>(rows.from) + m * columns;
      const float* bias = params.bias.empty() ? nullptr : params.bias.as<const float>() + rows.columns.begin;
      if (params.out.dtype == DType::kBFloat16) {
        auto* out = reinterpret_cast<BFloat16*>(to);
        for (int64_t n = 0; n < columns; ++n) out[n] = to_bfloat16(products[n] + bias[n]);
        continue;
      }
      auto* out = reinterpret_cast<float*>(to);
      for (int64_t n = 0; n < columns; ++n) {
        const float product = bias == nullptr ? products[n] : products[n] + bias[n];
        out[n] = params.accumulate ? out[n] + product : product;
      }
    }
  }

  DType dtype_;
  ThreadPool& pool_;
  dnnl::engine engine_;
  std::vector<dnnl::stream> streams_;    // one a thread
  std::unique_ptr<HostBuffer> scratch_;  // scratch_bytes_ for each thread: what the neediest product wants
  size_t scratch_bytes_ = 0;
  std::map<ProductKey, Product> products_;
  std::vector<char> rows_;       // of the slice being packed
  std::vector<Range> chunks_;    // of the product being computed
  std::vector<Product*> calls_;  // (slices, chunks) of the product being computed
};

}  // namespace

bool onednn_serves(DType dtype) {
  try {
    const SingleThreadedOpenMp one_thread;
    const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
    const memory::desc any({256, 256}, data_type(dtype), memory::format_tag::any);
    const memory::desc layout =
        describe(engine, dtype, {kLayoutRows, 256, 256, DType::kFloat32}, any).weights_desc();
    const auto one_row = describe(engine, dtype, {1, 256, 256, DType::kFloat32}, layout);
    return std::string(one_row.impl_info_str()).starts_with("brg:");
  } catch (const dnnl::error&) {
    return false;
  }
}

std::unique_ptr<Products> make_onednn_products(DType dtype, ThreadPool& pool) {
  return std::make_unique<OnednnProducts>(dtype, pool);
}

}  // namespace troupe::cpu
