// MistralForCausalLM: Llama's shape with a sliding window. Only full attention is built, so runner.cc limits
// max_model_len to the window; up to there the two are the same.

#include <array>

#include "worker/model/decoder.h"
#include "worker/model/families/registry.h"

namespace troupe {

namespace {

constexpr std::array<std::string_view, 1> kArchitectures{"MistralForCausalLM"};

Status configure(const ConfigKeys& keys, ModelConfig& config) {
  config.kv_heads = 8;
  TROUPE_ASSIGN_OR_RETURN(const auto window, keys.integer("sliding_window", {1, kPositionsMax}));
  // Absent is Transformers' default; null is no window.
  config.sliding_window = window.value_or(keys.stated("sliding_window") ? 0 : 4096);
  return absl::OkStatus();
}

StatusOr<std::unique_ptr<Model>> build(const ModelConfig& config, WeightLoader& weights) {
  return load_decoder(config, {}, weights);
}

}  // namespace

constexpr ModelFamily kMistralFamily{kArchitectures, configure, build};

}  // namespace troupe
