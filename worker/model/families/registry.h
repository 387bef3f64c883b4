#pragma once

// The supported model families. A family is one short .cc file: its architectures in config.json, the keys
// only it reads there, and its composition from the shared layers.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "worker/model/config_keys.h"
#include "worker/model/model.h"

namespace troupe {

struct ModelFamily {
  std::span<const std::string_view> architectures;
  // Runs before the shared keys are read. Reads the family's own keys, and sets its defaults for shared ones
  // that may be absent (kv_heads, head_dim, max_position_embeddings; 0 is none).
  Status (*configure)(const ConfigKeys& keys, ModelConfig& config);
  StatusOr<std::unique_ptr<Model>> (*build)(const ModelConfig& config, WeightLoader& weights);
};

extern const ModelFamily kLlamaFamily;     // llama.cc
extern const ModelFamily kMistralFamily;   // mistral.cc
extern const ModelFamily kQwen2Family;     // qwen2.cc
extern const ModelFamily kQwen3Family;     // qwen3.cc
extern const ModelFamily kBaichuanFamily;  // baichuan.cc

// Null for an unsupported architecture.
const ModelFamily* find_model_family(std::string_view architecture);
std::vector<std::string_view> model_architectures();

}  // namespace troupe
