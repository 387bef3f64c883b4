#pragma once

// The special tokens that a model's directory names, as Transformers' tokenizer object has them: its
// templates read them as variables, and its eos_token ends an answer beside the configured ids.

#include <string>

#include "common/core/status.h"
#include "common/json/json.h"

namespace troupe {

// Reads bos_token, eos_token, unk_token, sep_token, pad_token, cls_token, mask_token,
// additional_special_tokens (a list) and a model's own (extra_special_tokens' keys) as strings, whichever
// form they have: of tokenizer_config.json and special_tokens_map.json. The latter wins where the former has
// no added_tokens_decoder, as in Transformers, and else tells only what the former does not. Files may be
// missing.
StatusOr<bj::object> load_special_tokens(const std::string& model_dir);

}  // namespace troupe
