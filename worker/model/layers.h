#pragma once

// The parts of model families. Each holds its weights (owned, shapes beside them) and documents its effect on
// the workspace. A new family adds a part here only if no combination of these fits.

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/core/status.h"
#include "kernels/kernels.h"
#include "worker/model/config.h"
#include "worker/model/load/weights.h"
#include "worker/model/model.h"

namespace troupe {

// The first `count` rows of a workspace tensor.
Tensor first_rows(const DeviceTensor& tensor, int64_t count);

// Names below are those of the checkpoint's modules: their tensors are name.weight and name.bias.

struct Embedding {
  DeviceTensor table;  // (V, D) in the checkpoint's type

  static StatusOr<Embedding> load(const ModelConfig& config, const std::string& name, WeightLoader& weights);
  void to_residual(const Context& context) const;
};

struct RmsNorm {
  DeviceTensor weight;  // (D) float32
  float epsilon = 0;

  static StatusOr<RmsNorm> load(const ModelConfig& config, const std::string& name, WeightLoader& weights);
  // x (n, D) float32, normed into the workspace's `normed` (n, D) activation
  RmsNormParams of(const Context& context, const Tensor& x) const;
};

// y = weight · x + bias, of one or more modules stacked by rows.
struct Linear {
  std::unique_ptr<PackedWeight> weight;  // (N, K)
  DeviceTensor bias;                     // (N) float32, or empty

  struct Options {
    int64_t columns = 0;
    bool bias = false;
  };
  static StatusOr<Linear> load(std::span<const LinearPart> parts, const Options& options,
                               WeightLoader& weights);
  void apply(const Context& context, const RmsNormParams& norm, const Tensor& out) const;  // of norm.out
  void add_to(const Context& context, const Tensor& x, const Tensor& sum) const;           // sum is float32
};

struct Attention {
  Linear qkv;           // ((H + 2G)·C, D): q over k over v
  Linear out;           // (D, H·C)
  DeviceTensor q_norm;  // (C) float32, or empty
  DeviceTensor k_norm;  // (C) float32, or empty
  float norm_epsilon = 0;
  std::vector<float> alibi_slopes;  // (H), or empty if the model rotates
  int layer = 0;
  int64_t head_dim = 0;

  struct Parts {
    std::string prefix;  // "model.layers.3.self_attn."
    bool packed_qkv = false;
    bool qkv_bias = false;
    bool out_bias = false;
    bool head_norms = false;
  };
  static StatusOr<Attention> load(const ModelConfig& config, int layer, const Parts& parts,
                                  WeightLoader& weights);
  // residual += out · attention(rope(qkv · norm.out))
  void add_to_residual(const Context& context, const RmsNormParams& norm) const;
};

// One slope a head (Press et al. 2022, "Train short, test long"): 2^(-8/n), 2^(-16/n), … for a power of two
// n; else the slopes of the power below, then every other one of the power above.
std::vector<float> alibi_slopes(int64_t heads);

struct GatedMlp {
  Linear gate_up;  // (2F, D): gate over up
  Linear down;     // (D, F)

  static StatusOr<GatedMlp> load(const ModelConfig& config, const std::string& prefix, bool bias,
                                 WeightLoader& weights);
  // residual += down · (silu(gate · x) * (up · x)), x = norm.out
  void add_to_residual(const Context& context, const RmsNormParams& norm) const;
};

struct LmHead {
  std::unique_ptr<PackedWeight> weight;  // (V, D)

  // `unit_rows`: every row scaled to length 1.
  static StatusOr<LmHead> load(const ModelConfig& config, const std::string& name, bool unit_rows,
                               WeightLoader& weights);
  // norm.out (n, D) → (n, V) float32
  Tensor logits(const Context& context, const RmsNormParams& norm) const;
};

}  // namespace troupe
