#pragma once

// Text for a trace's prompts: equal block ids give equal words, so live workers find cached what the
// simulator's do.

#include <cstdint>
#include <string>

#include "sim/trace/trace.h"

namespace troupe::sim {

// Appends `count` short words (a token each in most vocabularies), a space before each; equal for equal `id`.
void append_words(std::string& out, uint64_t id, int64_t count);

// About `request.input_tokens` words, those of the prefix's whole blocks in the first string, the rest in the
// second. `unique` seeds the words that no block id covers.
struct PromptText {
  std::string prefix, rest;
};
PromptText prompt_text(const TraceRequest& request, uint64_t unique);

}  // namespace troupe::sim
