#include "worker/text/tokenizer/added_tokens.h"

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "absl/strings/str_cat.h"
#include "worker/text/json_fields.h"
#include "worker/text/unicode.h"

namespace troupe {
namespace {

size_t previous_boundary(std::string_view text, size_t pos) {
  do {
    --pos;
  } while (pos > 0 && (static_cast<unsigned char>(text[pos]) & 0xC0) == 0x80);
  return pos;
}

bool ends_with_word(std::string_view text) {
  if (text.empty()) return false;
  size_t pos = previous_boundary(text, text.size());
  return is_word_char(next_code_point(text, pos));
}

bool starts_with_word(std::string_view text) {
  size_t pos = 0;
  return !text.empty() && is_word_char(next_code_point(text, pos));
}

// Start of the white space that ends at `end`, not before `least`.
size_t trailing_space_begin(std::string_view text, size_t least, size_t end) {
  size_t begin = end;
  while (begin > least) {
    size_t previous = previous_boundary(text, begin);
    size_t pos = previous;
    if (!is_white_space(next_code_point(text, pos))) break;
    begin = previous;
  }
  return begin;
}

// Ends of the white space that begins at rising places of a text. It may begin at every place of one stretch,
// where tokens are white space themselves, which is then read once.
class LeadingSpace {
 public:
  explicit LeadingSpace(std::string_view text) : text_(text) {}

  size_t end(size_t begin) {
    size_t pos = std::max(begin, end_);
    for (end_ = pos; pos < text_.size(); end_ = pos) {
      if (!is_white_space(next_code_point(text_, pos))) break;
    }
    return end_;
  }

 private:
  std::string_view text_;
  size_t end_ = 0;  // of the last stretch
};

std::vector<std::string> contents_of(const std::vector<const AddedToken*>& tokens) {
  std::vector<std::string> contents;
  for (const AddedToken* token : tokens) contents.push_back(token->content);
  return contents;
}

}  // namespace

StatusOr<AddedToken> load_added_token(const JsonItem& item, int32_t id) {
  AddedToken token;
  token.id = id;
  TROUPE_ASSIGN_OR_RETURN(token.content, string_field(item, "content"));
  TROUPE_ASSIGN_OR_RETURN(token.special, bool_field(item, "special", false));
  TROUPE_ASSIGN_OR_RETURN(token.single_word, bool_field(item, "single_word", false));
  TROUPE_ASSIGN_OR_RETURN(token.lstrip, bool_field(item, "lstrip", false));
  TROUPE_ASSIGN_OR_RETURN(token.rstrip, bool_field(item, "rstrip", false));
  TROUPE_ASSIGN_OR_RETURN(token.normalized, bool_field(item, "normalized", !token.special));
  return token;
}

StatusOr<std::vector<AddedToken>> load_added_tokens(const bj::value& value, const std::string& where) {
  std::vector<AddedToken> tokens;
  if (value.is_null()) return tokens;
  if (!value.is_array()) return invalid_argument(where + ": expected an array");
  for (const bj::value& entry : value.get_array()) {
    TROUPE_ASSIGN_OR_RETURN(JsonItem item, json_object(entry, absl::StrCat(where, "[", tokens.size(), "]")));
    const bj::value* value_of_id = find_field(item, "id");
    if (value_of_id == nullptr) return invalid_argument(field_path(item, "id") + ": missing");
    TROUPE_ASSIGN_OR_RETURN(int32_t id, token_id(*value_of_id, field_path(item, "id")));
    TROUPE_ASSIGN_OR_RETURN(AddedToken token, load_added_token(item, id));
    tokens.push_back(std::move(token));
  }
  return tokens;
}

AddedTokenMatcher::AddedTokenMatcher(const std::vector<const AddedToken*>& tokens)
    : AddedTokenMatcher(tokens, contents_of(tokens)) {}

AddedTokenMatcher::AddedTokenMatcher(const std::vector<const AddedToken*>& tokens,
                                     const std::vector<std::string>& contents) {
  for (const std::string& content : contents) {
    if (!content.empty()) can_start_[static_cast<unsigned char>(content.front())] = true;
    longest_ = std::max(longest_, content.size());
  }
  if (longest_ <= kShortBytes) {
    build_trie(tokens, contents);
    return;
  }
  std::vector<std::string> reversed;
  std::vector<size_t> bytes;
  for (const std::string& content : contents) {
    reversed.emplace_back(content.rbegin(), content.rend());
    bytes.push_back(content.size());
  }
  long_ = std::make_unique<const LongTokens>(
      LongTokens{tokens, std::move(bytes), TokenAutomaton(reversed), TokenAutomaton(contents)});
}

void AddedTokenMatcher::build_trie(const std::vector<const AddedToken*>& tokens,
                                   const std::vector<std::string>& contents) {
  nodes_.emplace_back();
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (contents[i].empty()) continue;
    uint32_t node = 0;
    for (char c : contents[i]) {
      auto byte = static_cast<unsigned char>(c);
      auto& children = nodes_[node].children;
      auto it = std::find_if(children.begin(), children.end(),
                             [&](const auto& child) { return child.first == byte; });
      if (it != children.end()) {
        node = it->second;
        continue;
      }
      auto next = static_cast<uint32_t>(nodes_.size());
      children.emplace_back(byte, next);
      nodes_.emplace_back();
      node = next;
    }
    if (nodes_[node].token == nullptr) nodes_[node].token = tokens[i];
  }
}

std::vector<TokenAutomaton::State> AddedTokenMatcher::long_ones(std::string_view text) const {
  std::vector<TokenAutomaton::State> found;
  if (long_ == nullptr) return found;
  found.resize(text.size());
  TokenAutomaton::State state = TokenAutomaton::kStart;
  for (size_t pos = text.size(); pos-- > 0;) {
    state = long_->reversed.next(state, text[pos]);
    found[pos] = long_->reversed.longest(state);
  }
  return found;
}

AddedTokenMatcher::Match AddedTokenMatcher::long_match(TokenAutomaton::State found, size_t pos,
                                                       size_t special_end) const {
  for (; found != TokenAutomaton::kStart; found = long_->reversed.shorter(found)) {
    const size_t i = long_->reversed.string_of(found);
    const size_t end = pos + long_->bytes[i];
    if (!long_->tokens[i]->special || end <= special_end) return {long_->tokens[i], pos, end};
  }
  return {};
}

AddedTokenMatcher::Match AddedTokenMatcher::match_at(std::string_view text, size_t pos,
                                                     size_t special_end) const {
  Match match;
  uint32_t node = 0;
  for (size_t at = pos; at < text.size(); ++at) {
    auto byte = static_cast<unsigned char>(text[at]);
    const auto& children = nodes_[node].children;
    auto it = std::find_if(children.begin(), children.end(),
                           [&](const auto& child) { return child.first == byte; });
    if (it == children.end()) break;
    node = it->second;
    const AddedToken* token = nodes_[node].token;
    if (token != nullptr && (!token->special || at < special_end)) match = {token, pos, at + 1};
  }
  return match;
}

std::vector<TokenPlace> AddedTokenMatcher::places(std::string_view text) const {
  std::vector<TokenPlace> places;
  const std::vector<TokenAutomaton::State> found = long_ones(text);
  for (size_t pos = 0; pos < text.size(); ++pos) {
    if (!can_start_[static_cast<unsigned char>(text[pos])]) continue;
    const Match match =
        found.empty() ? match_at(text, pos, text.size()) : long_match(found[pos], pos, text.size());
    if (match.token != nullptr) places.push_back({match.token->id, match.begin, match.end});
  }
  return places;
}

std::vector<size_t> AddedTokenMatcher::cuts_of_special(std::string_view text) const {
  std::vector<size_t> cuts;
  for (const TokenPlace& place : places(text)) {
    size_t second = place.begin;
    next_code_point(text, second);
    if (second < place.end) cuts.push_back(second);
  }
  if (ends_with_beginning(text)) cuts.push_back(text.size());
  return cuts;
}

bool AddedTokenMatcher::ends_with_beginning(std::string_view text) const {
  const size_t begin = text.size() - std::min(text.size(), longest_);
  if (long_ != nullptr) {
    TokenAutomaton::State state = TokenAutomaton::kStart;
    for (const char c : text.substr(begin)) state = long_->forward.next(state, c);
    return long_->forward.begins_one(state);
  }
  for (size_t pos = begin; pos < text.size(); ++pos) {
    if (begins_at(text, pos)) return true;
  }
  return false;
}

bool AddedTokenMatcher::begins_at(std::string_view text, size_t pos) const {
  uint32_t node = 0;
  for (; pos < text.size(); ++pos) {
    const auto& children = nodes_[node].children;
    const auto it = std::find_if(children.begin(), children.end(), [&](const auto& child) {
      return child.first == static_cast<unsigned char>(text[pos]);
    });
    if (it == children.end()) return false;
    node = it->second;
  }
  return !nodes_[node].children.empty();
}

std::vector<TextPart> AddedTokenMatcher::split(std::string_view text, std::span<const size_t> cuts) const {
  std::vector<TextPart> parts;
  size_t done = 0;           // parts cover [0, done)
  LeadingSpace after(text);  // of what follows a match
  const std::vector<TokenAutomaton::State> found = long_ones(text);
  for (size_t pos = 0; pos < text.size();) {
    Match match;
    while (!cuts.empty() && cuts.front() <= pos) cuts = cuts.subspan(1);
    const size_t special_end = cuts.empty() ? text.size() : cuts.front();
    if (can_start_[static_cast<unsigned char>(text[pos])])
      match = found.empty() ? match_at(text, pos, special_end) : long_match(found[pos], pos, special_end);
    if (match.token == nullptr) {
      ++pos;
      continue;
    }
    pos = match.end;
    const AddedToken& token = *match.token;
    bool touches_word =
        ends_with_word(text.substr(0, match.begin)) || starts_with_word(text.substr(match.end));
    if (token.single_word && touches_word) continue;
    size_t begin = match.begin;
    size_t end = match.end;
    // An earlier token's rstrip keeps what it took.
    if (token.lstrip) begin = begin > done ? trailing_space_begin(text, done, begin) : done;
    if (token.rstrip) end = after.end(end);
    if (done < begin) parts.push_back({-1, text.substr(done, begin - done)});
    parts.push_back({token.id, text.substr(begin, std::max(begin, end) - begin)});
    done = end;
  }
  if (done < text.size()) parts.push_back({-1, text.substr(done)});
  return parts;
}

}  // namespace troupe
