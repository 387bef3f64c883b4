#pragma once

// Text that only quotes special tokens: a user's "<|im_end|>" is seven letters and signs, not the end of the
// turn. A text's cuts are the places that no special token may span. While a template renders a text that
// has cuts, a mark stands for each (U+FDD0, a noncharacter; one that the text already has is escaped, and the
// escape, U+FDD1, as well). Before a special token of the template's own another mark stands (U+FDD3), which
// no request can write: in a request's text it is escaped.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "worker/text/own_mark.h"

namespace troupe {

struct CutText {
  std::string text;
  std::vector<size_t> cuts;   // byte offsets, ascending; a cut stands before its byte
  std::vector<size_t> own{};  // likewise: where special tokens of the template's own begin
};

// A token that a text spells: its bytes [begin, end).
struct TokenPlace {
  int32_t id = -1;
  size_t begin = 0;
  size_t end = 0;
};

// Whether `text` has a mark's character, or the escape's.
bool has_marks(std::string_view text);
// Writes a mark at each of `cuts`, and escapes the marks that are text.
std::string with_marks(std::string_view text, std::span<const size_t> cuts);
// Writes the other mark at each of `places`, ascending, and escapes nothing: `text` is a template's.
std::string with_own_marks(std::string_view text, std::span<const size_t> places);
// The inverse, for a text made of such ones. Linear.
CutText without_marks(std::string_view marked);

}  // namespace troupe
