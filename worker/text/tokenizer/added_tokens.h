#pragma once

// Stage 2 of encoding: added tokens (special ones among them) are split out of the text before anything else
// looks at it. Longest match at the leftmost place wins. Tokens with "normalized": false are looked for in
// the text as it came, the others in the normalised text between them.

#include <boost/json/value.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/core/status.h"
#include "worker/text/json_fields.h"

namespace troupe {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool special = false;
  bool single_word = false;  // matches only where no word character touches it
  bool lstrip = false;       // swallows the white space before it
  bool rstrip = false;       // and behind it
  bool normalized = false;
};

// The fields of one; its id stands elsewhere in some files.
StatusOr<AddedToken> load_added_token(const JsonItem& item, int32_t id);
// tokenizer.json's "added_tokens".
StatusOr<std::vector<AddedToken>> load_added_tokens(const bj::value& value, const std::string& where);

// A stretch of text between tokens (id < 0), or a token.
struct TextPart {
  int32_t id = -1;
  std::string_view text;
};

// Finds one group of tokens in a text. The tokens must outlive it.
class AddedTokenMatcher {
 public:
  // `contents[i]` is what to look for to find `tokens[i]` (the normalised content, for normalised tokens).
  AddedTokenMatcher(std::vector<const AddedToken*> tokens, std::vector<std::string> contents);
  std::vector<TextPart> split(std::string_view text) const;

 private:
  struct Match {
    const AddedToken* token = nullptr;
    size_t begin = 0;
    size_t end = 0;
  };
  Match match_at(std::string_view text, size_t pos) const;

  // A byte trie: children of a node as a list, few tokens make that the fastest and smallest.
  struct Node {
    std::vector<std::pair<unsigned char, uint32_t>> children;
    const AddedToken* token = nullptr;
  };
  std::vector<Node> nodes_;
  bool can_start_[256] = {};
};

}  // namespace troupe
