#pragma once

// Characters as they are written in an answer: plain UTF-8, or inside a JSON string, where some need an
// escape.

#include <span>
#include <string>

#include "common/grammar/regex/char_set.h"
#include "common/grammar/regex/regex_set.h"

namespace troupe::grammar {

enum class Encoding : uint8_t { kUtf8, kJsonString };

void append_utf8(std::string& out, uint32_t character);

// Matches one character of `chars`. In a JSON string each character has one spelling: itself where JSON
// permits, else its short escape, else \u00xx in lower case; so that texts and their spellings correspond.
RegexId encode(RegexSet& expressions, const CharSet& chars, Encoding encoding);
// Matches `text`, which is UTF-8.
RegexId encode_text(RegexSet& expressions, std::string_view text, Encoding encoding);

// Every text of bytes that has one of `parts` in it. None of them: kNothing.
RegexId containing(RegexSet& expressions, std::span<const std::string> parts);

}  // namespace troupe::grammar
