#include "worker/echo.h"

#include <algorithm>
#include <string_view>

#include "worker/text/unicode.h"

namespace troupe {

namespace {

bool is_continuation(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}

// Tokens are laid along the text. What a tokenizer puts in (BOS) takes no room, what it has rewritten (a
// normalised character) as much room as it has bytes: then offsets are near, and exact again from the next
// token on that is found where it is looked for.
std::vector<int64_t> offsets_of(const Tokenizer& tokenizer, std::string_view text,
                                const std::vector<TokenId>& ids) {
  std::vector<int64_t> offsets;
  offsets.reserve(ids.size());
  size_t at = 0;
  int64_t begun_chars = 0;  // that begin before `at`
  for (const TokenId id : ids) {
    const bool is_inside = at < text.size() && is_continuation(text[at]);
    offsets.push_back(begun_chars - (is_inside ? 1 : 0));
    const std::string_view bytes = tokenizer.token_bytes(id, /*skip_special=*/false);
    const std::string_view rest = text.substr(at);
    const bool is_put_in = tokenizer.is_special(id) && !rest.starts_with(bytes);
    const size_t end = at + (is_put_in ? 0 : std::min(bytes.size(), rest.size()));
    for (; at < end; ++at) begun_chars += is_continuation(text[at]) ? 0 : 1;
  }
  return offsets;
}

}  // namespace

EchoedPrompt echo_prompt(const Tokenizer& tokenizer, const std::string* text, const std::vector<TokenId>& ids,
                         bool with_offsets) {
  EchoedPrompt echo;
  echo.text = text != nullptr ? *text : tokenizer.decode(ids, /*skip_special=*/false);
  echo.char_count = static_cast<int64_t>(count_code_points(echo.text));
  if (with_offsets) echo.offsets = offsets_of(tokenizer, echo.text, ids);
  return echo;
}

}  // namespace troupe
