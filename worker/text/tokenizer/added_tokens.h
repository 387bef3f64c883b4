#pragma once

// Stage 2 of encoding: added tokens (special ones among them) are split out of the text before every other
// stage. The longest match at the leftmost place wins. Tokens with "normalized": false are searched in the
// original text, the others in the normalised text between them.

#include <boost/json/value.hpp>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/core/status.h"
#include "worker/text/json_fields.h"
#include "worker/text/tokenizer/cut_text.h"
#include "worker/text/tokenizer/token_automaton.h"

namespace troupe {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool special = false;
  bool single_word = false;  // matches only without a word character next to it
  bool lstrip = false;       // includes the white space before it
  bool rstrip = false;       // and after it
  bool normalized = false;
};

// Reads one token's fields; `id` is separate because some files store it elsewhere. Its content may be empty:
// such a token is none, and left out.
StatusOr<AddedToken> load_added_token(const JsonItem& item, int32_t id);
// Reads tokenizer.json's "added_tokens".
StatusOr<std::vector<AddedToken>> load_added_tokens(const bj::value& value, const std::string& where);

// A stretch of text between tokens (id < 0), or a token.
struct TextPart {
  int32_t id = -1;
  std::string_view text;
};

// Finds one group of tokens in a text. The tokens must outlive it.
class AddedTokenMatcher {
 public:
  // `contents[i]` is the text that matches `tokens[i]` (the normalised content, for normalised tokens).
  AddedTokenMatcher(const std::vector<const AddedToken*>& tokens, const std::vector<std::string>& contents);
  // Tokens that their content matches.
  explicit AddedTokenMatcher(const std::vector<const AddedToken*>& tokens);
  // `cuts`: places of the text, ascending, that no special token spans (cut_text.h).
  std::vector<TextPart> split(std::string_view text, std::span<const size_t> cuts = {}) const;
  // The longest token at each place where one begins, those that overlap included.
  std::vector<TokenPlace> places(std::string_view text) const;
  // A cut within each of the text's special tokens, those that overlap included, and one at its end where it
  // ends with the beginning of one, which another text may go on. (One of a single character has no place
  // within.)
  std::vector<size_t> cuts_of_special(std::string_view text) const;
  bool empty() const { return longest_ == 0; }

 private:
  struct Match {
    const AddedToken* token = nullptr;
    size_t begin = 0;
    size_t end = 0;
  };
  // The longest one at `pos`; a special one ends by `special_end`.
  Match match_at(std::string_view text, size_t pos, size_t special_end) const;
  bool begins_at(std::string_view text, size_t pos) const;  // and would go on after the text's end
  bool ends_with_beginning(std::string_view text) const;

  // Where a token is long all are looked for at once: a text may be full of what nearly is one. Short ones
  // are looked for at each place, which costs their length at most, and less time than the automaton's.
  static constexpr size_t kShortBytes = 64;
  struct LongTokens {
    std::vector<const AddedToken*> tokens;
    std::vector<size_t> bytes;
    TokenAutomaton reversed;  // read from a text's end on it finds what begins at each place
    TokenAutomaton forward;
  };
  std::vector<TokenAutomaton::State> long_ones(
      std::string_view text) const;  // by place; empty: none are long
  Match long_match(TokenAutomaton::State found, size_t pos, size_t special_end) const;

  void build_trie(const std::vector<const AddedToken*>& tokens, const std::vector<std::string>& contents);

  // Where none is long, a byte trie: a node keeps its children in a list, which is the fastest and smallest
  // for few tokens.
  struct Node {
    std::vector<std::pair<unsigned char, uint32_t>> children;
    const AddedToken* token = nullptr;
  };
  std::vector<Node> nodes_;
  bool can_start_[256] = {};
  size_t longest_ = 0;                      // bytes
  std::unique_ptr<const LongTokens> long_;  // null: all are short
};

}  // namespace troupe
