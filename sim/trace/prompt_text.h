#pragma once

// Text for a trace's prompts: equal block ids give equal words, so what could be found cached in the
// simulator can be found by live workers.

#include <cstdint>
#include <string>

#include "sim/trace/trace.h"

namespace troupe::sim {

// Appends `count` short words (a token each in most vocabularies), a space before each; the same for the same
// `id`.
void append_words(std::string& out, uint64_t id, int64_t count);

// Some `request.input_tokens` words, those of the prefix's whole blocks in the first string, the rest in the
// second. `unique` makes the words that no block id covers.
struct PromptText {
  std::string prefix, rest;
};
PromptText prompt_text(const TraceRequest& request, uint64_t unique);

}  // namespace troupe::sim
