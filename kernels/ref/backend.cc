#include "kernels/ref/backend.h"

#include "kernels/host/host_buffer.h"
#include "kernels/ref/ref.h"

namespace troupe::ref {
namespace {

class RefBackend final : public Backend {
 public:
  explicit RefBackend(DType dtype) : dtype_(dtype) {}

  std::string_view name() const override { return "ref"; }
  std::string description() const override {
    return "ref " + std::string(dtype_name(dtype_)) + ", plain loops";
  }
  DType activation_dtype() const override { return dtype_; }

  StatusOr<std::unique_ptr<DeviceBuffer>> allocate(size_t bytes) override {
    return HostBuffer::allocate(bytes);
  }

  StatusOr<std::unique_ptr<PackedWeight>> pack(const Tensor& weight, WeightFormat format) override {
    TROUPE_RETURN_IF_ERROR(check_weight(weight, format));
    if (format == WeightFormat::kInt8) return std::make_unique<Int8Weight>(weight);
    TROUPE_ASSIGN_OR_RETURN(auto storage,
                            allocate(static_cast<size_t>(weight.elements()) * dtype_size(dtype_)));
    const Tensor values = Tensor::make(storage->data(), dtype_, {weight.shape[0], weight.shape[1]});
    for (int64_t i = 0; i < weight.elements(); ++i) set_element(values, i, element(weight, i));
    return std::make_unique<DenseWeight>(values, std::move(storage));
  }

  void bind_kv(const KvLayout& layout, void* data, int64_t block_count) override {
    kv_ = {layout, data, block_count};
    check_kv(kv_);
  }

  void embed(const EmbedParams& params) override {
    check_params(params);
    ref::embed(params);
  }
  void rms_norm(const RmsNormParams& params) override {
    check_params(params, dtype_);
    ref::rms_norm(params);
  }
  void matmul(const MatmulParams& params) override {
    check_params(params, dtype_);
    ref::matmul(params);
  }
  void rope_kv(const RopeKvParams& params) override {
    check_params(params, dtype_, kv_);
    ref::rope_kv(params, kv_);
  }
  void attention(const AttentionParams& params) override {
    check_params(params, dtype_, kv_);
    ref::attention(params, kv_);
  }
  void silu_mul(const SiluMulParams& params) override {
    check_params(params, dtype_);
    ref::silu_mul(params);
  }
  void gather_rows(const GatherRowsParams& params) override {
    check_params(params);
    ref::gather_rows(params);
  }
  void sample(const SampleParams& params) override {
    check_params(params);
    ref::sample(params);
  }
  void copy_blocks(std::span<const BlockCopy> copies) override {
    check_copies(copies, kv_);
    ref::copy_blocks(copies, dtype_, kv_);
  }

 private:
  DType dtype_;
  BoundKv kv_;
};

}  // namespace

std::unique_ptr<Backend> make_ref_backend(const BackendOptions& options) {
  return std::make_unique<RefBackend>(options.dtype);
}

}  // namespace troupe::ref
