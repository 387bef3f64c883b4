#include "worker/model/families/qwen_window.h"

#include <algorithm>
#include <boost/json/array.hpp>

#include "common/json/json.h"

namespace troupe {

namespace {

bool is_sliding(const bj::value& layer_type) {
  return layer_type.is_string() && layer_type.get_string() == "sliding_attention";
}

}  // namespace

Status read_qwen_window(const ConfigKeys& keys, ModelConfig& config) {
  TROUPE_ASSIGN_OR_RETURN(const auto on, keys.boolean("use_sliding_window"));
  if (!on.value_or(false)) return absl::OkStatus();
  TROUPE_ASSIGN_OR_RETURN(const auto window, keys.integer("sliding_window", {1, kPositionsMax}));
  if (!window && keys.stated("sliding_window")) return absl::OkStatus();  // null: none
  bool some_layer = true;
  if (const bj::value* types = keys.find("layer_types")) {
    if (!types->is_array()) return keys.wrong("layer_types", *types, "a list");
    some_layer = std::ranges::any_of(types->get_array(), is_sliding);
  } else {
    TROUPE_ASSIGN_OR_RETURN(const auto full_layers, keys.integer("max_window_layers", {0, kPositionsMax}));
    TROUPE_ASSIGN_OR_RETURN(const auto layers, keys.integer("num_hidden_layers", {1, kPositionsMax}));
    some_layer = full_layers.value_or(28) < layers.value_or(1);
  }
  if (some_layer) config.sliding_window = window.value_or(4096);
  return absl::OkStatus();
}

}  // namespace troupe
