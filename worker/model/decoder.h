#pragma once

// The shape shared by all supported families: pre-norm layers of attention and a gated MLP on a residual
// stream, a last norm, a head. The options name their differences.

#include <memory>

#include "worker/model/model.h"

namespace troupe {

// Modules of every family.
inline constexpr const char* kEmbeddingModule = "model.embed_tokens";
inline constexpr const char* kHeadModule = "lm_head";

struct DecoderParts {
  bool packed_qkv = false;  // W_pack instead of q_proj, k_proj, v_proj
  bool qkv_bias = false;
  bool out_bias = false;  // of o_proj
  bool mlp_bias = false;
  bool head_norms = false;  // q_norm and k_norm
  bool norm_head = false;   // the head's rows are scaled to length 1
};

StatusOr<std::unique_ptr<Model>> load_decoder(const ModelConfig& config, const DecoderParts& parts,
                                              WeightLoader& weights);

}  // namespace troupe
