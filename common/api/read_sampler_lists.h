#pragma once

// Sampler fields that are lists, in each form in which clients send them. Private to common/api.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/api/read.h"
#include "common/api/sampler_fields.h"

namespace troupe {

// A list of texts; or one text that is such a list in JSON, or its inside: "\"\\n\", \":\"". None is empty.
Fault read_breakers(std::string_view param, dom::element value, std::vector<std::string>& out);
// A list of token ids, as numbers or digits, or one text with commas between them. -1 is none.
Fault read_banned_tokens(std::string_view param, dom::element value, std::vector<int32_t>& out);
// A text or a list of texts; an empty one is none.
Fault read_bad_words(std::string_view param, dom::element value, std::vector<std::string>& out);
// koboldcpp's `sampler_order` (numbers), text-generation-webui's `sampler_priority` (names, in a list or one
// a line) or llama.cpp's `samplers` (names, or a letter each). Those that it does not name come after, in the
// default order.
Fault read_sampler_order(std::string_view param, dom::element value, SamplerFields& out);
// Temperature and smoothing behind all cuts, before XTC; or before all cuts, unless an order was read.
void move_temperature(bool last, SamplerFields& out);

}  // namespace troupe
