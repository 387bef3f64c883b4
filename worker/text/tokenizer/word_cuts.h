#pragma once

// Where a long text may be cut so that its parts' ids, one after the other, are the whole's: at the beginning
// of a word, in a BPE model none of whose tokens reaches from one word into the next. There no join crosses
// such a place, whatever stands on both sides (Llama 2's and Mistral's models are of this kind; what is cut
// by a regex first, or by best total score, is not). A persona's card that no added token ends is found again
// by this.

#include <cstddef>
#include <string_view>

namespace troupe {

// What stands for a space in tokens.
inline constexpr std::string_view kWordSymbol = "\xE2\x96\x81";

// Collects whether a vocabulary is such a one: ask ok() when all its tokens were seen.
class WordCuts {
 public:
  void see(std::string_view token);
  bool ok() const { return has_symbol_ && !crosses_; }

 private:
  bool has_symbol_ = false;  // else it is an unknown one, which the one before may swallow
  bool crosses_ = false;
};

// Bytes of the text's first part: at least `least`, and up to where `space` begins a word; all of the text
// where there is no such place. Later texts with the same beginning are cut at the same places.
size_t first_part(std::string_view text, std::string_view space, size_t least);

}  // namespace troupe
