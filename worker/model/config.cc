// Reads the spellings Transformers wrote over the years: `rope_parameters` or `rope_theta` + `rope_scaling`,
// `dtype` or `torch_dtype`, absent keys with its defaults, null as absent. One rule covers the rest: an
// unsupported key that changes the computation is refused by name, because loading anyway would give answers
// that look right and are wrong.

#include "worker/model/config.h"

#include <boost/json/object.hpp>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/json/json.h"
#include "worker/model/config_keys.h"
#include "worker/model/families/registry.h"
#include "worker/model/rope_config.h"

namespace troupe {

namespace {

// Sanity bounds: far above every published model, low enough that no product of three overflows 64 bits.
constexpr int64_t kVocabMax = int64_t{1} << 24;
constexpr int64_t kWidthMax = int64_t{1} << 20;
constexpr int64_t kLayersMax = 1024;
constexpr int64_t kHeadsMax = 1024;
constexpr int64_t kHeadDimMax = 1024;

Status read_architecture(const ConfigKeys& keys, ModelConfig& config) {
  const bj::value* list = keys.find("architectures");
  std::string supported;
  for (const std::string_view name : model_architectures()) {
    absl::StrAppend(&supported, supported.empty() ? "" : ", ", to_absl(name));
  }
  if (list == nullptr) {
    return keys.error("architectures", absl::StrCat("is missing; supported are ", supported));
  }
  if (list->is_array()) {
    for (const bj::value& item : list->get_array()) {
      if (!item.is_string()) continue;
      const std::string name(item.get_string().data(), item.get_string().size());
      if (const ModelFamily* family = find_model_family(name)) {
        config.architecture = name;
        return family->configure(keys, config);
      }
    }
  }
  return keys.wrong("architectures", *list, absl::StrCat("a list with one of ", supported));
}

Status read_sizes(const ConfigKeys& keys, ModelConfig& config) {
  TROUPE_ASSIGN_OR_RETURN(config.vocab_size, keys.required_integer("vocab_size", {1, kVocabMax}));
  TROUPE_ASSIGN_OR_RETURN(config.hidden_size, keys.required_integer("hidden_size", {1, kWidthMax}));
  TROUPE_ASSIGN_OR_RETURN(config.intermediate_size,
                          keys.required_integer("intermediate_size", {1, kWidthMax}));
  TROUPE_ASSIGN_OR_RETURN(config.layers, keys.required_integer("num_hidden_layers", {1, kLayersMax}));
  TROUPE_ASSIGN_OR_RETURN(config.heads, keys.required_integer("num_attention_heads", {1, kHeadsMax}));
  if (config.max_position_embeddings == 0) {
    TROUPE_ASSIGN_OR_RETURN(config.max_position_embeddings,
                            keys.required_integer("max_position_embeddings", {1, kPositionsMax}));
  }
  TROUPE_ASSIGN_OR_RETURN(const auto kv_heads, keys.integer("num_key_value_heads", {1, kHeadsMax}));
  const bool family_says = config.kv_heads > 0 && !keys.stated("num_key_value_heads");
  config.kv_heads = kv_heads.value_or(family_says ? config.kv_heads : config.heads);
  if (config.heads % config.kv_heads != 0) {
    return keys.error("num_key_value_heads",
                      absl::StrCat(config.kv_heads, " does not divide num_attention_heads ", config.heads));
  }
  TROUPE_ASSIGN_OR_RETURN(const auto head_dim, keys.integer("head_dim", {2, kHeadDimMax}));
  const bool derived = !head_dim && config.head_dim == 0;
  if (derived && config.hidden_size % config.heads != 0) {
    return keys.error("head_dim", absl::StrCat("is missing, and num_attention_heads ", config.heads,
                                               " does not divide hidden_size ", config.hidden_size));
  }
  config.head_dim = head_dim.value_or(derived ? config.hidden_size / config.heads : config.head_dim);
  if (config.head_dim % 2 != 0 || config.head_dim < 2 || config.head_dim > kHeadDimMax) {
    return keys.error("head_dim", absl::StrCat(config.head_dim, " must be even (rotary pairs) and in [2, ",
                                               kHeadDimMax, "]"));
  }
  return absl::OkStatus();
}

Status read_dtype(const ConfigKeys& keys, ModelConfig& config) {
  config.dtype = DType::kFloat32;  // Transformers' default
  for (const char* key : {"torch_dtype", "dtype"}) {
    TROUPE_ASSIGN_OR_RETURN(const auto name, keys.string(key));
    if (!name) continue;
    if (*name == "float32") {
      config.dtype = DType::kFloat32;
    } else if (*name == "bfloat16") {
      config.dtype = DType::kBFloat16;
    } else if (*name == "float16") {
      config.dtype = DType::kFloat16;
    } else {
      return keys.error(key, absl::StrCat("'", *name, "' is not supported; float32, bfloat16, float16 are"));
    }
  }
  return absl::OkStatus();
}

// Refuses keys that change the computation and are not supported.
Status refuse_unsupported(const ConfigKeys& keys) {
  TROUPE_ASSIGN_OR_RETURN(const auto activation, keys.string("hidden_act"));
  if (activation.value_or("silu") != "silu") {
    return keys.error("hidden_act", absl::StrCat("'", *activation, "' is not supported; only 'silu' is"));
  }
  if (const bj::value* value = keys.find("quantization_config")) {
    return keys.wrong("quantization_config", *value, "absent: float32, bfloat16 or float16 weights");
  }
  return absl::OkStatus();
}

Status read_model(const ConfigKeys& keys, ModelConfig& config) {
  TROUPE_RETURN_IF_ERROR(read_architecture(keys, config));
  TROUPE_RETURN_IF_ERROR(read_sizes(keys, config));
  TROUPE_RETURN_IF_ERROR(read_rope_config(keys, config));
  TROUPE_RETURN_IF_ERROR(read_dtype(keys, config));
  TROUPE_RETURN_IF_ERROR(refuse_unsupported(keys));
  TROUPE_ASSIGN_OR_RETURN(const auto epsilon, keys.number("rms_norm_eps", 0.0, 1.0));
  config.rms_norm_eps = epsilon.value_or(1e-6);  // LlamaConfig's default
  TROUPE_ASSIGN_OR_RETURN(const auto tied, keys.boolean("tie_word_embeddings"));
  config.tie_word_embeddings = tied.value_or(false);
  TROUPE_ASSIGN_OR_RETURN(config.eos_token_ids,
                          keys.token_ids("eos_token_id", config.vocab_size, config.eos_ids_unusable));
  TROUPE_ASSIGN_OR_RETURN(const auto bos, keys.integer("bos_token_id", {-1, config.vocab_size - 1}));
  if (bos && *bos >= 0) config.bos_token_id = static_cast<int32_t>(*bos);
  return absl::OkStatus();
}

// The file's values, as in vLLM, are sampling defaults whether or not do_sample is present; only an explicit
// false means greedy.
Status read_generation(const ConfigKeys& keys, ModelConfig& config) {
  TROUPE_ASSIGN_OR_RETURN(std::vector<int32_t> eos,
                          keys.token_ids("eos_token_id", config.vocab_size, config.eos_ids_unusable));
  if (!eos.empty()) config.eos_token_ids = std::move(eos);
  TROUPE_ASSIGN_OR_RETURN(config.temperature, keys.number("temperature", 0.0, 100.0));
  TROUPE_ASSIGN_OR_RETURN(config.top_p, keys.number("top_p", 0.0, 1.0));
  TROUPE_ASSIGN_OR_RETURN(config.min_p, keys.number("min_p", 0.0, 1.0));
  TROUPE_ASSIGN_OR_RETURN(config.repetition_penalty, keys.number("repetition_penalty", 0.01, 10.0));
  TROUPE_ASSIGN_OR_RETURN(config.top_k, keys.integer("top_k", {-1, kVocabMax}));
  TROUPE_ASSIGN_OR_RETURN(const auto samples, keys.boolean("do_sample"));
  if (!samples.value_or(true)) config.temperature = 0.0;
  return absl::OkStatus();
}

Status not_an_object(std::string_view file) {
  return invalid_argument(absl::StrCat(to_absl(file), ": is not a JSON object"));
}

}  // namespace

StatusOr<ModelConfig> parse_model_config(const bj::value& config, const bj::value* generation) {
  ModelConfig result;
  if (!config.is_object()) return not_an_object("config.json");
  const Status model_status = read_model(ConfigKeys(config.get_object(), ""), result);
  if (!model_status.ok()) return annotate(model_status, "config.json");
  if (generation != nullptr) {
    if (!generation->is_object()) return not_an_object("generation_config.json");
    const Status status = read_generation(ConfigKeys(generation->get_object(), ""), result);
    if (!status.ok()) return annotate(status, "generation_config.json");
  }
  return result;
}

StatusOr<ModelConfig> load_model_config(const std::string& model_dir) {
  TROUPE_ASSIGN_OR_RETURN(const bj::value config, read_json_file(model_dir + "/config.json"));
  const std::string generation_path = model_dir + "/generation_config.json";
  std::error_code ignored;
  const bool has_generation = std::filesystem::exists(generation_path, ignored);
  bj::value generation;
  if (has_generation) {
    TROUPE_ASSIGN_OR_RETURN(generation, read_json_file(generation_path));
  }
  StatusOr<ModelConfig> result = parse_model_config(config, has_generation ? &generation : nullptr);
  // "config.json: …" → "<dir>/config.json: …"
  if (!result.ok()) {
    return Status(result.status().code(), absl::StrCat(model_dir, "/", result.status().message()));
  }
  return result;
}

}  // namespace troupe
