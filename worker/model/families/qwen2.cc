// Qwen2ForCausalLM (Qwen2, Qwen2.5): Llama's shape with a bias on q, k and v.

#include <array>

#include "worker/model/decoder.h"
#include "worker/model/families/qwen_window.h"
#include "worker/model/families/registry.h"

namespace troupe {

namespace {

constexpr std::array<std::string_view, 1> kArchitectures{"Qwen2ForCausalLM"};

Status configure(const ConfigKeys& keys, ModelConfig& config) {
  config.kv_heads = 32;
  return read_qwen_window(keys, config);
}

StatusOr<std::unique_ptr<Model>> build(const ModelConfig& config, WeightLoader& weights) {
  return load_decoder(config, {.qkv_bias = true}, weights);
}

}  // namespace

constexpr ModelFamily kQwen2Family{kArchitectures, configure, build};

}  // namespace troupe
