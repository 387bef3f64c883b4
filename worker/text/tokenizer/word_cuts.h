#pragma once

// Finds places at which a long text may be cut so that its parts' ids, concatenated, equal the whole's: the
// beginnings of words, in a BPE model without tokens that reach from one word into the next. No join crosses
// such a place, whatever the text around it (Llama 2's and Mistral's models are of this kind; models that
// cut by a regex first, or by best total score, are not). The cache can then find a persona's card that no
// added token ends.

#include <cstddef>
#include <string_view>

namespace troupe {

// The symbol of a space in tokens.
inline constexpr std::string_view kWordSymbol = "\xE2\x96\x81";

// Decides whether a vocabulary qualifies: call ok() after all its tokens were seen.
class WordCuts {
 public:
  void see(std::string_view token);
  bool ok() const { return has_symbol_ && !crosses_; }

 private:
  bool has_symbol_ = false;  // without it the symbol is unknown and may fuse with the unknown before it
  bool crosses_ = false;
};

// Bytes of the text's first part: at least `least`, and up to where `space` begins a word; the whole text if
// there is no such place. Later texts with the same beginning are cut at the same places.
size_t first_part(std::string_view text, std::string_view space, size_t least);

}  // namespace troupe
