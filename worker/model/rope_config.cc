// `rope_parameters` (Transformers 5) holds base and scaling; before it, `rope_theta` stood alone and
// `rope_scaling` held the type ("rope_type", earlier "type"). If both objects are present the older one wins,
// as in Transformers.

#include "worker/model/rope_config.h"

#include <algorithm>
#include <array>
#include <boost/json/object.hpp>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/json/json.h"

namespace troupe {

namespace {

constexpr double kThetaMax = 1e15;
constexpr double kFactorMax = 1e6;

constexpr std::array<std::pair<std::string_view, RopeType>, 5> kTypes{{{"default", RopeType::kDefault},
                                                                       {"linear", RopeType::kLinear},
                                                                       {"dynamic", RopeType::kDynamic},
                                                                       {"llama3", RopeType::kLlama3},
                                                                       {"yarn", RopeType::kYarn}}};

std::string supported_types() {
  std::string text;
  for (const auto& [name, type] : kTypes) absl::StrAppend(&text, text.empty() ? "" : ", ", to_absl(name));
  return text;
}

Status read_type(const ConfigKeys& scaling, RopeConfig& rope) {
  for (const char* key : {"rope_type", "type"}) {
    TROUPE_ASSIGN_OR_RETURN(const auto name, scaling.string(key));
    if (!name) continue;
    for (const auto& [known, type] : kTypes) {
      if (*name == known) {
        rope.type = type;
        return absl::OkStatus();
      }
    }
    return scaling.error(key, absl::StrCat("'", *name, "' is not supported; ", supported_types(), " are"));
  }
  if (scaling.find("factor") == nullptr) return absl::OkStatus();
  return scaling.error("rope_type",
                       absl::StrCat("is missing, but a factor is given; must be one of ", supported_types()));
}

StatusOr<double> required_number(const ConfigKeys& keys, std::string_view key, double min) {
  TROUPE_ASSIGN_OR_RETURN(const auto value, keys.number(key, min, kFactorMax));
  if (!value) return keys.error(key, "is missing");
  return *value;
}

Status read_llama3(const ConfigKeys& scaling, RopeConfig& rope) {
  TROUPE_ASSIGN_OR_RETURN(rope.low_freq_factor, required_number(scaling, "low_freq_factor", 1e-6));
  TROUPE_ASSIGN_OR_RETURN(rope.high_freq_factor, required_number(scaling, "high_freq_factor", 1e-6));
  if (rope.high_freq_factor <= rope.low_freq_factor) {
    return scaling.error(
        "high_freq_factor",
        absl::StrCat(rope.high_freq_factor, " must be above low_freq_factor ", rope.low_freq_factor));
  }
  return absl::OkStatus();
}

// The factor of cosine and sine: the stated one, else the paper's formula, with DeepSeek's two mscales.
StatusOr<double> yarn_attention_factor(const ConfigKeys& scaling, double factor) {
  TROUPE_ASSIGN_OR_RETURN(const auto stated, scaling.number("attention_factor", 0.0, kFactorMax));
  if (stated) return *stated;
  TROUPE_ASSIGN_OR_RETURN(const auto mscale, scaling.number("mscale", 0.0, kFactorMax));
  TROUPE_ASSIGN_OR_RETURN(const auto mscale_all, scaling.number("mscale_all_dim", 0.0, kFactorMax));
  const auto growth = [factor](double scale) {
    return factor <= 1 ? 1.0 : 0.1 * scale * std::log(factor) + 1.0;
  };
  if (mscale.value_or(0) > 0 && mscale_all.value_or(0) > 0) return growth(*mscale) / growth(*mscale_all);
  return growth(1.0);
}

Status read_yarn(const ConfigKeys& scaling, RopeConfig& rope) {
  if (rope.theta <= 1) return scaling.error("rope_theta", "must be above 1 for 'yarn'");
  TROUPE_ASSIGN_OR_RETURN(const auto fast, scaling.number("beta_fast", 0.0, kFactorMax));
  TROUPE_ASSIGN_OR_RETURN(const auto slow, scaling.number("beta_slow", 0.0, kFactorMax));
  // 0 means the default, as in Transformers.
  if (fast.value_or(0) > 0) rope.beta_fast = *fast;
  if (slow.value_or(0) > 0) rope.beta_slow = *slow;
  TROUPE_ASSIGN_OR_RETURN(const auto truncate, scaling.boolean("truncate"));
  rope.truncate = truncate.value_or(true);
  TROUPE_ASSIGN_OR_RETURN(rope.attention_factor, yarn_attention_factor(scaling, rope.factor));
  return absl::OkStatus();
}

Status refuse_partial_rotation(const ConfigKeys& keys) {
  TROUPE_ASSIGN_OR_RETURN(const auto share, keys.number("partial_rotary_factor", 0.0, 1.0));
  if (share.value_or(1.0) == 1.0) return absl::OkStatus();
  return keys.error("partial_rotary_factor", "only 1 is supported");
}

Status read_scaling(const ConfigKeys& keys, const ConfigKeys& scaling, ModelConfig& config) {
  RopeConfig& rope = config.rope;
  TROUPE_RETURN_IF_ERROR(read_type(scaling, rope));
  TROUPE_RETURN_IF_ERROR(refuse_partial_rotation(scaling));
  TROUPE_ASSIGN_OR_RETURN(const auto theta, scaling.number("rope_theta", 1.0, kThetaMax));
  rope.theta = theta.value_or(rope.theta);
  if (rope.type == RopeType::kDefault) return absl::OkStatus();
  TROUPE_ASSIGN_OR_RETURN(rope.factor, required_number(scaling, "factor", 1.0));
  TROUPE_ASSIGN_OR_RETURN(const auto outer,
                          keys.integer("original_max_position_embeddings", {1, kPositionsMax}));
  TROUPE_ASSIGN_OR_RETURN(const auto inner,
                          scaling.integer("original_max_position_embeddings", {1, kPositionsMax}));
  rope.original_max_position_embeddings = outer.value_or(inner.value_or(config.max_position_embeddings));
  if (rope.type == RopeType::kDynamic && config.head_dim < 4) {
    return keys.error("head_dim", "must be at least 4 for rope_type 'dynamic'");
  }
  if (rope.type == RopeType::kLlama3) return read_llama3(scaling, rope);
  if (rope.type == RopeType::kYarn) return read_yarn(scaling, rope);
  return absl::OkStatus();
}

// Returns the object that describes the rotation, if there is one.
StatusOr<std::optional<ConfigKeys>> find_scaling(const ConfigKeys& keys) {
  for (const char* name : {"rope_scaling", "rope_parameters"}) {
    const bj::value* value = keys.find(name);
    if (value == nullptr) continue;
    if (!value->is_object()) return keys.wrong(name, *value, "an object");
    if (value->get_object().empty()) continue;
    for (const auto& entry : value->get_object()) {
      if (!entry.value().is_object()) continue;
      return keys.wrong(name, *value, "one rotation for all layers, not one a kind of layer");
    }
    return std::optional<ConfigKeys>(ConfigKeys(value->get_object(), absl::StrCat(name, ".")));
  }
  return std::optional<ConfigKeys>();
}

// A scaling in a model with ALiBi has nothing to scale: it is refused, not silently ignored.
Status refuse_scaling_without_rotation(const ConfigKeys& keys) {
  TROUPE_ASSIGN_OR_RETURN(const std::optional<ConfigKeys> scaling, find_scaling(keys));
  if (!scaling) return absl::OkStatus();
  RopeConfig read;
  TROUPE_RETURN_IF_ERROR(read_type(*scaling, read));
  if (read.type == RopeType::kDefault) return absl::OkStatus();
  return scaling->error(
      scaling->stated("rope_type") ? "rope_type" : "type",
      "only 'default' is supported: this model rotates nothing (no max_position_embeddings: ALiBi)");
}

// Longest sequence the scaling supports. config.json's max_position_embeddings is the length before scaling
// for linear and dynamic, and usually after it for llama3 and yarn.
int64_t reach(const ModelConfig& config) {
  const RopeConfig& rope = config.rope;
  const auto scaled = [&](int64_t positions) {
    const double product = static_cast<double>(positions) * rope.factor;
    return static_cast<int64_t>(std::min(product, static_cast<double>(kPositionsMax)));
  };
  const int64_t own = config.max_position_embeddings;
  if (rope.type == RopeType::kLinear || rope.type == RopeType::kDynamic) return scaled(own);
  if (rope.type == RopeType::kYarn) return std::max(own, scaled(rope.original_max_position_embeddings));
  return own;
}

}  // namespace

Status read_rope_config(const ConfigKeys& keys, ModelConfig& config) {
  config.position_count_max = config.max_position_embeddings;
  if (config.rope.type == RopeType::kNone) return refuse_scaling_without_rotation(keys);
  TROUPE_ASSIGN_OR_RETURN(const auto theta, keys.number("rope_theta", 1.0, kThetaMax));
  config.rope.theta = theta.value_or(10000.0);
  TROUPE_RETURN_IF_ERROR(refuse_partial_rotation(keys));
  TROUPE_ASSIGN_OR_RETURN(const std::optional<ConfigKeys> scaling, find_scaling(keys));
  if (scaling) TROUPE_RETURN_IF_ERROR(read_scaling(keys, *scaling, config));
  config.position_count_max = reach(config);
  return absl::OkStatus();
}

}  // namespace troupe
