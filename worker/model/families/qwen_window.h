#pragma once

// Qwen2's and Qwen3's sliding window, which every published model turns off.

#include "worker/model/config.h"
#include "worker/model/config_keys.h"

namespace troupe {

// Sets `sliding_window` if one is on and a layer has it. `use_sliding_window` switches it for all layers; the
// layers that have it are named in `layer_types`, or are those from `max_window_layers` on.
Status read_qwen_window(const ConfigKeys& keys, ModelConfig& config);

}  // namespace troupe
