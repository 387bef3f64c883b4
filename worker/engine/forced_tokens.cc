// Why those tokens are the ones that any longer text has: in a model of merges, or of best total score, the
// tokens before a place between two tokens are the tokens of the text before it. So whatever follows the
// known text, its tokens begin with those of the known text up to where the token that crosses its end
// begins. Such a place is the end itself, or one from which on the text is the beginning of some token. What
// the tokens of all these texts have in common stays. A rule that first cuts the text into words looks one
// character ahead, so the last token is not among them, unless the answer ends with it; and blanks at the end
// may all come into one word with a line break that follows.

#include "worker/engine/forced_tokens.h"

#include <algorithm>

namespace troupe {

namespace {

// Stands before the part of the answer that is encoded with the forced text. Any text would do.
constexpr std::string_view kBefore = "x";
// Bytes of the answer at the least that are encoded with it.
constexpr size_t kTailBytes = 48;
// Places at which a token may begin that goes on behind the text.
constexpr int kPlacesMax = 8;

bool begins_character(char c) {
  return (static_cast<uint8_t>(c) & 0xC0) != 0x80;
}

// The last place of the text, at most `at`, between two characters.
size_t cut_at(std::string_view text, size_t at) {
  if (at >= text.size()) return text.size();
  while (at > 0 && !begins_character(text[at])) --at;
  return at;
}

// Without the last character if some of its bytes are missing.
void drop_cut_character(std::string& text) {
  size_t last = text.size();
  while (last > 0 && !begins_character(text[last - 1])) --last;
  if (last == 0) return text.clear();
  const auto lead = static_cast<uint8_t>(text[last - 1]);
  const size_t size = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (text.size() - (last - 1) < size) text.resize(last - 1);
}

// Whether some text of the trie begins with `text` and goes on.
bool is_begun_in(const grammar::TokenTrie& trie, std::string_view text) {
  const auto nodes = trie.nodes();
  uint32_t node = 0;
  for (const char c : text) {
    uint32_t child = node + 1;
    while (child < nodes[node].end && nodes[child].byte != static_cast<uint8_t>(c)) child = nodes[child].end;
    if (child >= nodes[node].end) return false;
    node = child;
  }
  return nodes[node].end > node + 1;
}

size_t common_count(const std::vector<TokenId>& a, const std::vector<TokenId>& b) {
  const auto size = static_cast<ptrdiff_t>(std::min(a.size(), b.size()));
  return static_cast<size_t>(std::mismatch(a.begin(), a.begin() + size, b.begin()).first - a.begin());
}

}  // namespace

ForcedTokens::ForcedTokens(const Tokenizer* tokenizer, const grammar::Vocabulary* vocabulary)
    : tokenizer_(tokenizer), vocabulary_(vocabulary) {
  const auto ids = tokenizer_->encode(kBefore, /*add_special=*/false);
  before_count_ = ids.ok() ? ids->size() : 0;
}

// Some of its last tokens' text, which begins with a character.
std::string ForcedTokens::tail_of(std::span<const TokenId> answer) const {
  size_t first = answer.size(), size = 0;
  for (; first > 0; --first) {
    const std::string_view text = vocabulary_->text(answer[first - 1]);
    if (grammar::is_mark_or_empty(text)) break;
    size += text.size();
    if (size >= kTailBytes && begins_character(text.front())) {
      --first;
      break;
    }
  }
  std::string tail;
  for (const TokenId token : answer.subspan(first)) tail += vocabulary_->text(token);
  return tail;
}

std::vector<TokenId> ForcedTokens::encode(std::string_view text) const {
  const std::string whole = std::string(kBefore) + std::string(text);
  EncodeOptions options;
  options.boundary = kBefore.size();
  const auto ids = tokenizer_->encode(whole, options);
  if (!ids.ok() || ids->size() < before_count_) return {};
  return {ids->begin() + static_cast<ptrdiff_t>(before_count_), ids->end()};
}

// Whether some token begins with `text` and goes on.
bool ForcedTokens::is_begun(std::string_view text) const {
  const auto& bands = vocabulary_->bands();
  return std::any_of(bands.begin(), bands.end(), [text](const grammar::Band& band) {
    return band.text_max() > text.size() && is_begun_in(band.trie(), text);
  });
}

// How many of the tokens are the tail's; none if no token ends where it does, or that one is not `last`.
std::optional<size_t> ForcedTokens::tail_count(std::span<const TokenId> ids, std::string_view tail,
                                               TokenId last) const {
  for (size_t i = 0; i < ids.size(); ++i) {
    const bool is_known = ids[i] >= 0 && static_cast<size_t>(ids[i]) < vocabulary_->size();
    const std::string_view bytes = is_known ? vocabulary_->text(ids[i]) : std::string_view();
    if (bytes.empty() || !tail.starts_with(bytes)) return {};
    tail.remove_prefix(bytes.size());
    if (tail.empty()) return ids[i] == last ? std::optional(i + 1) : std::nullopt;
  }
  return {};
}

std::vector<TokenId> ForcedTokens::find(std::span<const TokenId> answer, const ForcedText& text) const {
  // One byte is a token that would end with it.
  if (answer.empty() || text.bytes.size() < (text.completes ? 1 : 2)) return {};
  std::string known = tail_of(answer);
  const size_t tail_size = known.size();
  known += text.bytes;
  if (!text.completes) drop_cut_character(known);
  if (tail_size == 0 || known.size() <= tail_size) return {};
  const std::vector<TokenId> ids = encode(known);
  const auto begin = tail_count(ids, std::string_view(known).substr(0, tail_size), answer.back());
  if (!begin) return {};
  size_t count = ids.size();
  if (!text.completes) {
    --count;
    const size_t blanks = known.find_last_not_of(" \t\r\n\v\f") + 1;
    int place_count = 0;
    for (size_t at = 0; at < known.size() && count > *begin; ++at) {
      if (at != blanks && !is_begun(std::string_view(known).substr(at))) continue;
      if (++place_count > kPlacesMax) return {};
      const std::string_view before = std::string_view(known).substr(0, cut_at(known, at));
      count = std::min(count, common_count(ids, encode(before)));
    }
  }
  std::string_view rest = std::string_view(known).substr(tail_size);
  std::vector<TokenId> run;
  for (size_t i = *begin; i < count; ++i) {
    const bool is_known = ids[i] >= 0 && static_cast<size_t>(ids[i]) < vocabulary_->size();
    const std::string_view bytes = is_known ? vocabulary_->text(ids[i]) : std::string_view();
    if (bytes.empty() || !rest.starts_with(bytes)) break;
    rest.remove_prefix(bytes.size());
    run.push_back(ids[i]);
  }
  return run;
}

void ForcedRun::push(TokenId token) {
  answer_.push_back(token);
  is_judged_ = false;
  const bool is_forced = is_found_ && !run_.empty() && run_[taken_count_] == token;
  if (is_forced && taken_count_ + 1 < run_.size()) {
    ++taken_count_;
  } else {
    is_found_ = false;
  }
}

}  // namespace troupe
