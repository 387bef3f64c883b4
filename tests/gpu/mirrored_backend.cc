#include "tests/gpu/mirrored_backend.h"

#include <map>
#include <vector>

#include "kernels/check.h"
#include "kernels/host/host_buffer.h"

namespace troupe::gpu_testing {
namespace {

// The device copies of one op's tensors. Outputs come back when it ends.
class Mirrors {
 public:
  explicit Mirrors(Backend& device) : device_(device) {}
  ~Mirrors() {
    for (const auto& [host, copy] : outputs_) device_.download(host.data, copy, host.bytes());
  }
  Mirrors(const Mirrors&) = delete;
  Mirrors& operator=(const Mirrors&) = delete;

  Tensor input(const Tensor& host) {
    if (host.empty()) return host;
    auto buffer = device_.allocate(host.bytes());
    if (!buffer.ok()) check_failed("mirror", std::string(buffer.status().message()));
    device_.upload((*buffer)->data(), host.data, host.bytes());
    Tensor copy = host;
    copy.data = (*buffer)->data();
    buffers_.push_back(*std::move(buffer));
    return copy;
  }
  // Its contents before are the poison of the test, or what the op adds to.
  Tensor output(const Tensor& host) {
    const Tensor copy = input(host);
    outputs_.emplace_back(host, copy.data);
    return copy;
  }

 private:
  Backend& device_;
  std::vector<std::unique_ptr<DeviceBuffer>> buffers_;
  std::vector<std::pair<Tensor, const void*>> outputs_;
};

class MirroredBackend final : public Backend {
 public:
  explicit MirroredBackend(std::unique_ptr<Backend> device) : device_(std::move(device)) {}

  std::string_view name() const override { return device_->name(); }
  std::string description() const override { return device_->description(); }
  DType activation_dtype() const override { return device_->activation_dtype(); }
  StatusOr<std::unique_ptr<DeviceBuffer>> allocate(size_t bytes) override { return device_->allocate(bytes); }
  StatusOr<std::unique_ptr<PackedWeight>> pack(const Tensor& weight, WeightFormat format) override {
    return device_->pack(weight, format);
  }
  void bind_kv(const KvLayout& layout, void* data, int64_t block_count) override {
    layout_ = layout;
    blocks_ = block_count;
    kv_ = Tensor::make(data, activation_dtype(), {block_count * layout.block_elements()});
  }

  void begin_step(StepKind kind) override { device_->begin_step(kind); }
  void end_step() override { device_->end_step(); }

  void embed(const EmbedParams& params) override {
    Mirrors m(*device_);
    EmbedParams p = params;
    p.table = m.input(p.table);
    p.drawn = m.input(p.drawn);
    p.out = m.output(p.out);
    device_->embed(p);
  }
  void rms_norm(const RmsNormParams& params) override {
    Mirrors m(*device_);
    device_->rms_norm(mirrored(m, params));
  }
  void matmul(const MatmulParams& params) override {
    Mirrors m(*device_);
    MatmulParams p = params;
    p.x = m.input(p.x);
    p.bias = m.input(p.bias);
    p.out = m.output(p.out);
    device_->matmul(p);
  }
  void rope_kv(const RopeKvParams& params) override {
    Mirrors m(*device_);
    RopeKvParams p = params;
    p.qkv = m.input(p.qkv);
    p.cos_sin = m.input(p.cos_sin);
    p.q_norm = m.input(p.q_norm);
    p.k_norm = m.input(p.k_norm);
    p.q_out = m.output(p.q_out);
    bind(m.output(kv_));
    device_->rope_kv(p);
  }
  void attention(const AttentionParams& params) override {
    Mirrors m(*device_);
    AttentionParams p = params;
    p.q = m.input(p.q);
    p.out = m.output(p.out);
    bind(m.input(kv_));
    device_->attention(p);
  }
  void silu_mul(const SiluMulParams& params) override {
    Mirrors m(*device_);
    SiluMulParams p = params;
    p.gate_up = m.input(p.gate_up);
    p.out = m.output(p.out);
    device_->silu_mul(p);
  }
  void gated_mlp(const GatedMlpParams& params) override {
    Mirrors m(*device_);
    GatedMlpParams p = mirrored(m, params);
    p.x = m.input(p.x);
    device_->gated_mlp(p);
  }
  void normed_matmul(const RmsNormParams& norm, const MatmulParams& params) override {
    Mirrors m(*device_);
    MatmulParams p = params;
    const RmsNormParams n = mirrored(m, norm);
    p.x = n.out;
    p.bias = m.input(p.bias);
    p.out = m.output(p.out);
    device_->normed_matmul(n, p);
  }
  void normed_gated_mlp(const RmsNormParams& norm, const GatedMlpParams& params) override {
    Mirrors m(*device_);
    GatedMlpParams p = mirrored(m, params);
    const RmsNormParams n = mirrored(m, norm);
    p.x = n.out;
    device_->normed_gated_mlp(n, p);
  }
  void gather_rows(const GatherRowsParams& params) override {
    Mirrors m(*device_);
    GatherRowsParams p = params;
    p.x = m.input(p.x);
    p.out = m.output(p.out);
    device_->gather_rows(p);
  }
  void sample(const SampleParams& params) override {
    Mirrors m(*device_);
    SampleParams p = params;
    p.logits = m.output(p.logits);
    p.drawn = m.input(p.drawn);
    p.out = m.output(p.out);
    device_->sample(p);
  }
  void copy_blocks(std::span<const BlockCopy> copies) override {
    Mirrors m(*device_);
    bind(m.output(kv_));
    device_->copy_blocks(copies);
  }

 private:
  static RmsNormParams mirrored(Mirrors& m, RmsNormParams p) {
    p.x = m.input(p.x);
    p.weight = m.input(p.weight);
    p.out = m.output(p.out);
    return p;
  }
  // Without x.
  static GatedMlpParams mirrored(Mirrors& m, GatedMlpParams p) {
    p.gate_up_bias = m.input(p.gate_up_bias);
    p.down_bias = m.input(p.down_bias);
    p.sum = m.output(p.sum);
    p.mixed = m.output(p.mixed);
    p.gated = m.output(p.gated);
    return p;
  }

  void bind(const Tensor& kv) { device_->bind_kv(layout_, kv.data, blocks_); }

  std::unique_ptr<Backend> device_;
  KvLayout layout_;
  int64_t blocks_ = 0;
  Tensor kv_;
};

}  // namespace

std::unique_ptr<Backend> mirror(std::unique_ptr<Backend> device) {
  return std::make_unique<MirroredBackend>(std::move(device));
}

}  // namespace troupe::gpu_testing
