// LlamaForCausalLM (Llama 2, 3, 3.1 to 3.3 and their many kin): pre-norm layers of rotary GQA attention and a
// SiLU-gated MLP. Some fine-tunes add biases; config.json says so.

#include <array>

#include "worker/model/decoder.h"
#include "worker/model/families/registry.h"

namespace troupe {

namespace {

constexpr std::array<std::string_view, 1> kArchitectures{"LlamaForCausalLM"};

Status configure(const ConfigKeys& keys, ModelConfig& config) {
  TROUPE_ASSIGN_OR_RETURN(const auto attention_bias, keys.boolean("attention_bias"));
  TROUPE_ASSIGN_OR_RETURN(const auto mlp_bias, keys.boolean("mlp_bias"));
  config.attention_bias = attention_bias.value_or(false);
  config.mlp_bias = mlp_bias.value_or(false);
  return absl::OkStatus();
}

StatusOr<std::unique_ptr<Model>> build(const ModelConfig& config, WeightLoader& weights) {
  const DecoderParts parts{
      .qkv_bias = config.attention_bias, .out_bias = config.attention_bias, .mlp_bias = config.mlp_bias};
  return load_decoder(config, parts, weights);
}

}  // namespace

constexpr ModelFamily kLlamaFamily{kArchitectures, configure, build};

}  // namespace troupe
