// Qwen3ForCausalLM: Llama's shape with an RMS norm over every query and key head before the rotation, and a
// head dimension of its own.

#include <array>

#include "worker/model/decoder.h"
#include "worker/model/families/qwen_window.h"
#include "worker/model/families/registry.h"

namespace troupe {

namespace {

constexpr std::array<std::string_view, 1> kArchitectures{"Qwen3ForCausalLM"};

Status configure(const ConfigKeys& keys, ModelConfig& config) {
  config.kv_heads = 32;
  config.head_dim = 128;
  TROUPE_ASSIGN_OR_RETURN(const auto attention_bias, keys.boolean("attention_bias"));
  config.attention_bias = attention_bias.value_or(false);
  return read_qwen_window(keys, config);
}

StatusOr<std::unique_ptr<Model>> build(const ModelConfig& config, WeightLoader& weights) {
  const DecoderParts parts{
      .qkv_bias = config.attention_bias, .out_bias = config.attention_bias, .head_norms = true};
  return load_decoder(config, parts, weights);
}

}  // namespace

constexpr ModelFamily kQwen3Family{kArchitectures, configure, build};

}  // namespace troupe
