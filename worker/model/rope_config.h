#pragma once

// The rotary embedding's part of config.json, in every spelling Transformers has read over the years.

#include "common/core/status.h"
#include "worker/model/config.h"
#include "worker/model/config_keys.h"

namespace troupe {

// Fills in `rope` and `position_count_max`. REQUIRES: the sizes of `config` are read; rope.type is kNone for
// a model that does not rotate.
Status read_rope_config(const ConfigKeys& keys, ModelConfig& config);

}  // namespace troupe
