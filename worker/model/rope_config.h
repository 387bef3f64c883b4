#pragma once

// Reads the rotary embedding's part of config.json, in every spelling of Transformers.

#include "common/core/status.h"
#include "worker/model/config.h"
#include "worker/model/config_keys.h"

namespace troupe {

// Sets `rope` and `position_count_max`. REQUIRES: the sizes of `config` are read; rope.type is kNone for a
// model that does not rotate.
Status read_rope_config(const ConfigKeys& keys, ModelConfig& config);

}  // namespace troupe
