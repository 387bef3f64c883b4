#pragma once

// The fields of Metaspace, both a pre-tokenizer and a decoder.

#include <string>

#include "worker/text/json_fields.h"

namespace troupe {

// Reads "replacement": one character, usually "▁".
StatusOr<std::string> metaspace_replacement(const JsonItem& item);
// Reads "prepend_scheme": always, first or never; if absent, "add_prefix_space" (files from before tokenizers
// 0.15) selects always or never. An error if the two contradict each other.
StatusOr<std::string> metaspace_scheme(const JsonItem& item);

}  // namespace troupe
