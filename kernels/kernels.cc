// Backend's functions that a backend need not write itself: an accelerator's module has them, too.

#include "kernels/kernels.h"

#include <cstring>
#include <string>
#include <vector>

#include "common/core/check.h"

namespace troupe {
namespace {

// Readback of memory that is the host's anyway: a copy, since the original may be written again.
class HostReadback final : public Readback {
 public:
  explicit HostReadback(size_t bytes) : copy_(bytes) {}
  void start(const void* from, size_t bytes) override {
    TROUPE_CHECK(bytes <= copy_.size(),
                 std::to_string(bytes) + " bytes, made for " + std::to_string(copy_.size()));
    std::memcpy(copy_.data(), from, bytes);
  }
  const void* wait() override { return copy_.data(); }

 private:
  std::vector<char> copy_;
};

}  // namespace

void Backend::upload(void* to, const void* from, size_t bytes) {
  std::memcpy(to, from, bytes);
}

void Backend::download(void* to, const void* from, size_t bytes) {
  std::memcpy(to, from, bytes);
}

StatusOr<std::unique_ptr<Readback>> Backend::make_readback(size_t bytes) {
  return std::make_unique<HostReadback>(bytes);
}

void Backend::gated_mlp(const GatedMlpParams& params) {
  matmul({.x = params.x, .weight = params.gate_up, .out = params.mixed, .bias = params.gate_up_bias});
  silu_mul({.gate_up = params.mixed, .out = params.gated});
  matmul({.x = params.gated,
          .weight = params.down,
          .out = params.sum,
          .accumulate = true,
          .bias = params.down_bias});
}

void Backend::normed_matmul(const RmsNormParams& norm, const MatmulParams& product) {
  check_normed("matmul", norm, product.x);
  rms_norm(norm);
  matmul(product);
}

void Backend::normed_gated_mlp(const RmsNormParams& norm, const GatedMlpParams& mlp) {
  check_normed("gated_mlp", norm, mlp.x);
  rms_norm(norm);
  gated_mlp(mlp);
}

}  // namespace troupe
