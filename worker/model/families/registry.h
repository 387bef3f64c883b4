#pragma once

// The model families this build knows. A family is one short .cc file: which architectures of config.json it
// is, what it reads there of its own, and how it is put together from the shared layers.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "worker/model/config_keys.h"
#include "worker/model/model.h"

namespace troupe {

struct ModelFamily {
  std::span<const std::string_view> architectures;
  // Before the keys that all families share are read: the family's own keys, and its defaults for shared ones
  // that may be absent (kv_heads, head_dim, max_position_embeddings; 0 is none).
  Status (*configure)(const ConfigKeys& keys, ModelConfig& config);
  StatusOr<std::unique_ptr<Model>> (*build)(const ModelConfig& config, WeightLoader& weights);
};

extern const ModelFamily kLlamaFamily;     // llama.cc
extern const ModelFamily kMistralFamily;   // mistral.cc
extern const ModelFamily kQwen2Family;     // qwen2.cc
extern const ModelFamily kQwen3Family;     // qwen3.cc
extern const ModelFamily kBaichuanFamily;  // baichuan.cc

// Null for an architecture nobody built.
const ModelFamily* find_model_family(std::string_view architecture);
std::vector<std::string_view> model_architectures();

}  // namespace troupe
