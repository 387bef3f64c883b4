// Baichuan 1 and 2, 7B and 13B: Llama's shape with q, k and v in one matrix (W_pack). Their other differences
// are not in config.json but in the models' own code, by size and generation:
//   - the 13B have ALiBi instead of a rotation, and no max_position_embeddings (model_max_length instead);
//   - Baichuan 2, known by its vocabulary, multiplies by the head's rows at length 1 (NormHead).

#include <array>

#include "worker/model/decoder.h"
#include "worker/model/families/registry.h"

namespace troupe {

namespace {

// Baichuan-7B spells itself with a capital C.
constexpr std::array<std::string_view, 2> kArchitectures{"BaichuanForCausalLM", "BaiChuanForCausalLM"};
constexpr int64_t kNormHeadVocabulary = 125696;

Status configure(const ConfigKeys& keys, ModelConfig& config) {
  TROUPE_ASSIGN_OR_RETURN(const auto heads, keys.integer("num_attention_heads", {1, kPositionsMax}));
  TROUPE_ASSIGN_OR_RETURN(const auto kv_heads, keys.integer("num_key_value_heads", {1, kPositionsMax}));
  if (kv_heads && heads && *kv_heads != *heads) {
    return keys.error("num_key_value_heads", "must be num_attention_heads: W_pack holds as many of each");
  }
  if (keys.find("max_position_embeddings") != nullptr) return absl::OkStatus();
  config.rope.type = RopeType::kNone;
  TROUPE_ASSIGN_OR_RETURN(const auto length, keys.integer("model_max_length", {1, kPositionsMax}));
  config.max_position_embeddings = length.value_or(4096);
  return absl::OkStatus();
}

StatusOr<std::unique_ptr<Model>> build(const ModelConfig& config, WeightLoader& weights) {
  const DecoderParts parts{.packed_qkv = true, .norm_head = config.vocab_size == kNormHeadVocabulary};
  return load_decoder(config, parts, weights);
}

}  // namespace

constexpr ModelFamily kBaichuanFamily{kArchitectures, configure, build};

}  // namespace troupe
