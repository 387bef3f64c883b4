#pragma once

// The fields of Metaspace, which is a pre-tokenizer and a decoder.

#include <string>

#include "worker/text/json_fields.h"

namespace troupe {

// "replacement": one character, "▁" as a rule.
StatusOr<std::string> metaspace_replacement(const JsonItem& item);
// "prepend_scheme": always, first or never; where it is absent, "add_prefix_space" (files from before
// tokenizers 0.15) chooses between always and never. Errors where the two contradict each other.
StatusOr<std::string> metaspace_scheme(const JsonItem& item);

}  // namespace troupe
