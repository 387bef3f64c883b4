#pragma once

// config.json and generation_config.json of a Hugging Face model directory, checked. Unsupported values are
// refused with the key, the value, and what is supported.

#include <boost/json/fwd.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/core/status.h"
#include "kernels/tensor.h"

namespace troupe {

inline constexpr int64_t kPositionsMax = int64_t{1} << 24;

// Types of rotary frequencies (rope.h).
enum class RopeType : uint8_t {
  kNone,  // no rotation: ALiBi
  kDefault,
  kLinear,
  kDynamic,
  kLlama3,
  kYarn,
};
struct RopeConfig {
  RopeType type = RopeType::kDefault;
  double theta = 10000.0;
  double factor = 1.0;                           // all but default
  double low_freq_factor = 1.0;                  // llama3
  double high_freq_factor = 4.0;                 // llama3
  int64_t original_max_position_embeddings = 0;  // llama3, yarn
  double beta_fast = 32.0;                       // yarn
  double beta_slow = 1.0;                        // yarn
  bool truncate = true;                          // yarn
  double attention_factor = 1.0;                 // yarn: factor of cosine and sine
};

struct ModelConfig {
  std::string architecture;       // "LlamaForCausalLM"
  int64_t vocab_size = 0;         // V
  int64_t hidden_size = 0;        // D
  int64_t intermediate_size = 0;  // F
  int64_t layers = 0;             // L
  int64_t heads = 0;              // H
  int64_t kv_heads = 0;           // G; divides H
  int64_t head_dim = 0;           // C
  int64_t max_position_embeddings = 0;
  int64_t position_count_max = 0;  // limit of max_model_len, which rope scaling extends
  int64_t sliding_window = 0;      // 0: full attention; else the longest supported sequence
  double rms_norm_eps = 1e-5;
  RopeConfig rope;
  bool attention_bias = false;  // on the family's own choice of products
  bool mlp_bias = false;
  bool tie_word_embeddings = false;
  DType dtype = DType::kBFloat16;             // the checkpoint's
  std::vector<int32_t> eos_token_ids;         // generation_config's list wins over config's
  std::vector<std::string> eos_ids_unusable;  // as JSON: what its list has that is no id of the vocabulary
  std::optional<int32_t> bos_token_id;

  // Sampling defaults of generation_config.json (do_sample false → temperature 0).
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int64_t> top_k;
};

// Parses the two files' JSON; `generation` is null if there is no such file. Errors are "config.json: key
// 'x': …" or "generation_config.json: key 'x': …".
StatusOr<ModelConfig> parse_model_config(const boost::json::value& config,
                                         const boost::json::value* generation);
// Errors: "<dir>/config.json: key 'x': …".
StatusOr<ModelConfig> load_model_config(const std::string& model_dir);

}  // namespace troupe
