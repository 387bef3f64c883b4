#include "worker/text/tokenizer/word_cuts.h"

namespace troupe {
namespace {

bool ends_with_space(std::string_view text) {
  return text.ends_with(' ') || text.ends_with(kWordSymbol);
}

}  // namespace

void WordCuts::see(std::string_view token) {
  has_symbol_ |= token == kWordSymbol;
  while (token.starts_with(kWordSymbol)) token.remove_prefix(kWordSymbol.size());
  crosses_ |= token.find(kWordSymbol) != std::string_view::npos;
}

size_t first_part(std::string_view text, std::string_view space, size_t least) {
  for (size_t at = text.find(space, least); at != std::string_view::npos; at = text.find(space, at + 1)) {
    const std::string_view rest = text.substr(at + space.size());
    const bool begins_word = !rest.empty() && !rest.starts_with(' ') && !rest.starts_with(kWordSymbol);
    if (begins_word && at > 0 && !ends_with_space(text.substr(0, at))) return at;
  }
  return text.size();
}

}  // namespace troupe
