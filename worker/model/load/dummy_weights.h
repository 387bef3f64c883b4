#pragma once

// Random weights for a model without a checkpoint, only config.json: benches, load tests, and the small
// checkpoints of the goldens (tests/fixtures/make_model_goldens.py makes the same numbers). Element i of a
// tensor is a pure function of the tensor's name and i, so threads and order change nothing, and a tied
// embedding is the same twice.
//
// Matrices have mean 0 and deviation 1/√columns, so that activations neither die nor explode at any depth;
// biases deviation 1/4; norms mean 1, deviation 1/10. All are uniform: as good as normal after one product,
// at a nanosecond a weight.

#include "worker/model/load/weight_source.h"

namespace troupe {

// `tensor`: rank 1 or 2, float32 or bfloat16. A name that ends in ".bias" is a bias, another vector a norm.
void fill_random_weight(std::string_view name, const Tensor& tensor, int threads);

class DummyWeights final : public WeightSource {
 public:
  // float16 is never computed with; its models get bfloat16 weights.
  DummyWeights(DType dtype, int threads)
      : dtype_(dtype == DType::kFloat32 ? dtype : DType::kBFloat16), threads_(threads) {}

  bool has(const std::string&, std::span<const int64_t>) const override { return false; }
  StatusOr<SourceTensor> take(const std::string& name, std::span<const int64_t> shape) override;
  Status check_all_taken(bool (*)(std::string_view)) const override { return absl::OkStatus(); }
  std::string where(const std::string& name) const override { return "dummy tensor '" + name + "'"; }

 private:
  DType dtype_;
  int threads_;
};

}  // namespace troupe
