#pragma once

// Text that only quotes special tokens: a user's "<|im_end|>" is seven letters and signs, not the end of the
// turn. A text's cuts are the places that no special token may span. While a template renders a text that
// has cuts, a mark stands for each (U+FDD0, a noncharacter; one that the text already has is escaped, and the
// escape, U+FDD1, as well).

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

struct CutText {
  std::string text;
  std::vector<size_t> cuts;  // byte offsets, ascending; a cut stands before its byte
};

// Whether `text` has the mark's character, or its escape's.
bool has_marks(std::string_view text);
// Writes a mark at each of `cuts`, and escapes the marks that are text.
std::string with_marks(std::string_view text, std::span<const size_t> cuts);
// The inverse, for a text made of such ones. Linear.
CutText without_marks(std::string_view marked);

}  // namespace troupe
