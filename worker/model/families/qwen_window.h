#pragma once

// Qwen2 and Qwen3 name a sliding window that every published model leaves off.

#include "worker/model/config.h"
#include "worker/model/config_keys.h"

namespace troupe {

// Sets `sliding_window` where one is on and a layer has it. `use_sliding_window` rules them all; the layers
// that have it are named in `layer_types`, or are those from `max_window_layers` on.
Status read_qwen_window(const ConfigKeys& keys, ModelConfig& config);

}  // namespace troupe
