#include "worker/input/prompt_echo.h"

#include <algorithm>
#include <string_view>

#include "worker/text/unicode.h"

namespace troupe {

namespace {

bool is_continuation(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}

// Places tokens along the text. A token that the tokenizer inserted (BOS, SentencePiece's space before a
// text) takes no room; a rewritten one (a normalised character) takes its own number of bytes. Offsets are
// then approximate, and exact again from the next token found at its expected place.
class Layout {
 public:
  Layout(const Tokenizer& tokenizer, std::string_view text, const std::vector<TokenId>& ids)
      : tokenizer_(tokenizer), text_(text), ids_(ids) {}

  std::vector<int64_t> offsets() const {
    std::vector<int64_t> offsets;
    offsets.reserve(ids_.size());
    size_t at = 0;
    int64_t begun_chars = 0;  // characters that begin before `at`
    for (size_t i = 0; i < ids_.size(); ++i) {
      const bool is_inside = at < text_.size() && is_continuation(text_[at]);
      offsets.push_back(begun_chars - (is_inside ? 1 : 0));
      const size_t end = std::min(at + room_of(i, at), text_.size());
      for (; at < end; ++at) begun_chars += is_continuation(text_[at]) ? 0 : 1;
    }
    return offsets;
  }

 private:
  std::string_view bytes_of(size_t i) const {
    return tokenizer_.token_bytes(ids_[i], /*skip_special=*/false);
  }

  size_t room_of(size_t i, size_t at) const {
    const std::string_view bytes = bytes_of(i);
    if (tokenizer_.is_special(ids_[i])) return text_.substr(at).starts_with(bytes) ? bytes.size() : 0;
    const bool begins_stretch = i == 0 || tokenizer_.is_special(ids_[i - 1]);
    const bool has_space = begins_stretch && bytes.starts_with(' ');
    return bytes.size() - (has_space && space_is_put_in(i, at) ? 1 : 0);
  }

  // Whether the stretch from token i on fits the text better without its first space. The text may begin with
  // a space of its own, so the first token alone does not decide.
  bool space_is_put_in(size_t i, size_t at) const {
    const size_t with = fitting_count(i, at, 0);
    const size_t without = fitting_count(i, at, 1);
    return without > with || (without == with && !text_.substr(at).starts_with(' '));
  }

  // Counts tokens, up to the next special one, that are found at their expected places.
  size_t fitting_count(size_t i, size_t at, size_t dropped) const {
    size_t count = 0;
    for (; i + count < ids_.size() && !tokenizer_.is_special(ids_[i + count]); ++count) {
      const std::string_view bytes = bytes_of(i + count).substr(count == 0 ? dropped : 0);
      if (!text_.substr(at).starts_with(bytes)) break;
      at += bytes.size();
    }
    return count;
  }

  const Tokenizer& tokenizer_;
  const std::string_view text_;
  const std::vector<TokenId>& ids_;
};

}  // namespace

EchoedPrompt echo_prompt(const Tokenizer& tokenizer, const std::string* text, const std::vector<TokenId>& ids,
                         bool with_offsets) {
  EchoedPrompt echo;
  echo.text = text != nullptr ? *text : tokenizer.decode(ids, /*skip_special=*/false);
  echo.char_count = static_cast<int64_t>(count_code_points(echo.text));
  if (with_offsets) echo.offsets = Layout(tokenizer, echo.text, ids).offsets();
  return echo;
}

}  // namespace troupe
