#pragma once

// Parameters and checks of Backend::rope_kv(). T tokens, H query heads, G KV heads of C elements. Violated
// shapes end the process.

#include <cstdint>
#include <span>

#include "kernels/ops/kv.h"
#include "kernels/tensor.h"

namespace troupe {

// Splits qkv, norms and rotates q and k (half-split pairs, as Transformers' rotate_half), writes k and v into
// their blocks. Norms: RmsNormParams' formula over each head, before the rotation (Qwen3).
struct RopeKvParams {
  Tensor qkv;  // (T, (H + 2G)·C) activation
  // This and the norms are what upload() wrote, no op.
  Tensor cos_sin;                      // (positions, C) float32: cos in [0, C/2), sin in [C/2, C); empty: no
                                       // rotation (ALiBi)
  std::span<const int32_t> positions;  // (T)
  std::span<const int32_t> slots;      // (T): block · B + offset
  int layer = 0;
  Tensor q_out;        // (T, H, C) activation
  Tensor q_norm = {};  // (C) float32, or empty: q is not normed
  Tensor k_norm = {};  // (C) float32, or empty: k is not normed
  float norm_epsilon = 1e-6f;
};

void check_params(const RopeKvParams& params, DType activation, const BoundKv& kv);

}  // namespace troupe
