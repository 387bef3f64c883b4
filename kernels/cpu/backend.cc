// The cpu backend: products by panels or oneDNN (products.h), everything else by the vector loops of the
// machine's instruction set (vector_ops.h), spread over one pool of threads. What is parallel is always a set
// of rows or (request, head, query tile) items whose results do not touch, so the number of threads changes
// no bit.

#include "kernels/cpu/backend.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/products.h"
#include "kernels/cpu/vector_ops.h"
#include "kernels/host/host_buffer.h"
#include "kernels/host/thread_pool.h"
#include "kernels/sampler_chain.h"

namespace troupe::cpu {
namespace {

// A part of a row op smaller than this is not worth waking another thread for (some microseconds).
constexpr int64_t kElementsPerItem = 16384;

class CpuBackend final : public Backend {
 public:
  CpuBackend(DType dtype, CpuIsa isa, int threads)
      : dtype_(dtype),
        isa_(isa),
        ops_(vector_ops(isa)),
        pool_(threads),
        products_(make_products(dtype, isa, pool_)),
        int8_products_(make_int8_products(isa, pool_)),
        attention_(ops_, pool_) {}

  std::string_view name() const override { return "cpu"; }
  std::string description() const override {
    return "cpu " + std::string(isa_name(isa_)) + " " + std::string(dtype_name(dtype_)) + ", products by " +
           std::string(products_->name()) + ", " + std::to_string(pool_.thread_count()) +
           (pool_.thread_count() == 1 ? " thread" : " threads");
  }
  DType activation_dtype() const override { return dtype_; }

  StatusOr<std::unique_ptr<DeviceBuffer>> allocate(size_t bytes) override {
    return HostBuffer::allocate(bytes);
  }

  StatusOr<std::unique_ptr<PackedWeight>> pack(const Tensor& weight, WeightFormat format) override {
    TROUPE_RETURN_IF_ERROR(check_weight(weight, format));
    return products_of(format).pack(weight);
  }

  void bind_kv(const KvLayout& layout, void* data, int64_t block_count) override {
    kv_ = {layout, data, block_count};
    check_kv(kv_);
  }

  void embed(const EmbedParams& params) override {
    check_params(params);
    const int64_t columns = params.table.shape[1];
    const auto size = static_cast<int64_t>(dtype_size(params.table.dtype));
    for_rows(static_cast<int64_t>(params.ids.size()), columns, [&](int64_t t) {
      const char* row = params.table.as<const char>() + params.id_of(t) * columns * size;
      ops_.to_float({row, params.table.dtype, params.out.as<float>() + t * columns, columns});
    });
  }

  void rms_norm(const RmsNormParams& params) override {
    check_params(params, dtype_);
    const int64_t columns = params.x.shape[1];
    for_rows(params.x.shape[0], columns, [&](int64_t t) {
      ops_.rms_norm({params.x.as<const float>() + t * columns, params.weight.as<const float>(),
                     at(params.out, t * columns), dtype_, columns, params.epsilon});
    });
  }

  void matmul(const MatmulParams& params) override {
    check_params(params, dtype_);
    products_of(params.weight->format()).matmul(params);
  }

  void rope_kv(const RopeKvParams& params) override {
    check_params(params, dtype_, kv_);
    for_rows(params.qkv.shape[0], params.qkv.shape[1], [&](int64_t t) { rotate_token(params, t); });
  }

  void attention(const AttentionParams& params) override {
    check_params(params, dtype_, kv_);
    attention_.run(params, kv_);
  }

  void silu_mul(const SiluMulParams& params) override {
    check_params(params, dtype_);
    const int64_t columns = params.out.shape[1];
    for_rows(params.out.shape[0], columns, [&](int64_t t) {
      ops_.silu_mul({at(params.gate_up, t * 2 * columns), at(params.gate_up, (t * 2 + 1) * columns),
                     at(params.out, t * columns), dtype_, columns});
    });
  }

  void gated_mlp(const GatedMlpParams& params) override {
    check_params(params, dtype_);
    const WeightFormat format = params.gate_up->format();
    if (params.down->format() == format && products_of(format).gated_mlp(params)) return;
    Backend::gated_mlp(params);
  }

  void gather_rows(const GatherRowsParams& params) override {
    check_params(params);
    const int64_t columns = params.x.shape[1];
    for (size_t i = 0; i < params.rows.size(); ++i) {
      std::memcpy(params.out.as<float>() + static_cast<int64_t>(i) * columns,
                  params.x.as<const float>() + params.rows[i] * columns,
                  static_cast<size_t>(columns) * sizeof(float));
    }
  }

  void sample(const SampleParams& params) override {
    check_params(params);
    const int64_t columns = params.logits.shape[1];
    for_rows(static_cast<int64_t>(params.rows.size()), columns, [&](int64_t s) {
      const SampleRow& row = params.rows[static_cast<size_t>(s)];
      const std::span<float> logits(params.logits.as<float>() + s * columns, static_cast<size_t>(columns));
      params.out.as<int32_t>()[s] = edit_and_draw(logits, row, params.drawn.as<const int32_t>());
    });
  }

  // A block is one piece of memory, some hundred KB: one copy an item.
  void copy_blocks(std::span<const BlockCopy> copies) override {
    check_copies(copies, kv_);
    const int64_t bytes = kv_.layout.block_elements() * static_cast<int64_t>(dtype_size(dtype_));
    pool_.parallel_for(static_cast<int64_t>(copies.size()), [&](int64_t item, int) {
      const BlockCopy& copy = copies[static_cast<size_t>(item)];
      char* const data = static_cast<char*>(kv_.data);
      std::memcpy(data + copy.to * bytes, data + copy.from * bytes, static_cast<size_t>(bytes));
    });
  }

 private:
  Products& products_of(WeightFormat format) {
    return format == WeightFormat::kInt8 ? *int8_products_ : *products_;
  }

  static char* at(const Tensor& tensor, int64_t index) {
    return tensor.as<char>() + index * static_cast<int64_t>(dtype_size(tensor.dtype));
  }

  template <typename Row>
  void for_rows(int64_t rows, int64_t columns, Row row) {
    const int64_t per_item = std::max<int64_t>(1, kElementsPerItem / columns);
    pool_.parallel_for((rows + per_item - 1) / per_item, [&](int64_t item, int) {
      const int64_t end = std::min(rows, (item + 1) * per_item);
      for (int64_t t = item * per_item; t < end; ++t) row(t);
    });
  }

  // One token: its query heads to q_out, its key and value heads to its slot.
  void rotate_token(const RopeKvParams& params, int64_t t) {
    const int64_t head_dim = kv_.layout.head_dim;
    const int64_t groups = kv_.layout.kv_heads;
    const int64_t heads = params.q_out.shape[1];
    const float* cosine = nullptr;
    const float* sine = nullptr;
    if (!params.cos_sin.empty()) {
      cosine = params.cos_sin.as<const float>() + params.positions[static_cast<size_t>(t)] * head_dim;
      sine = cosine + head_dim / 2;
    }
    const auto* q_norm = params.q_norm.as<const float>();
    const auto* k_norm = params.k_norm.as<const float>();
    const int64_t in = t * (heads + 2 * groups) * head_dim;
    for (int64_t h = 0; h < heads; ++h) {
      ops_.rotate({at(params.qkv, in + h * head_dim), cosine, sine,
                   at(params.q_out, (t * heads + h) * head_dim), dtype_, head_dim / 2, q_norm,
                   params.norm_epsilon});
    }
    const int64_t slot = params.slots[static_cast<size_t>(t)];
    const int64_t block = slot / kv_.layout.block_size;
    const int64_t row = slot % kv_.layout.block_size * head_dim * static_cast<int64_t>(dtype_size(dtype_));
    for (int64_t g = 0; g < groups; ++g) {
      char* key = kv_head(kv_, dtype_, {block, params.layer, 0, g}) + row;
      char* value = kv_head(kv_, dtype_, {block, params.layer, 1, g}) + row;
      ops_.rotate({at(params.qkv, in + (heads + g) * head_dim), cosine, sine, key, dtype_, head_dim / 2,
                   k_norm, params.norm_epsilon});
      std::memcpy(value, at(params.qkv, in + (heads + groups + g) * head_dim),
                  static_cast<size_t>(head_dim) * dtype_size(dtype_));
    }
  }

  DType dtype_;
  CpuIsa isa_;
  const VectorOps& ops_;
  ThreadPool pool_;
  std::unique_ptr<Products> products_;
  std::unique_ptr<Products> int8_products_;
  Attention attention_;
  BoundKv kv_;
};

}  // namespace

StatusOr<std::unique_ptr<Backend>> make_cpu_backend(const BackendOptions& options) {
  TROUPE_ASSIGN_OR_RETURN(const CpuIsa isa, resolve_isa(options.isa));
  std::unique_ptr<Backend> backend = std::make_unique<CpuBackend>(options.dtype, isa, options.threads);
  return backend;
}

}  // namespace troupe::cpu
