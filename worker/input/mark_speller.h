#pragma once

// Texts of a grammar in which a tokenizer's special tokens are those tokens.

#include <string>
#include <string_view>
#include <vector>

#include "worker/kv/types.h"
#include "worker/text/tokenizer/tokenizer.h"

namespace troupe {

class MarkSpeller {
 public:
  // `tokenizer` must outlive it.
  explicit MarkSpeller(const Tokenizer* tokenizer) : tokenizer_(tokenizer) {}

  // Special tokens in the text become marks (grammar/tokens/vocabulary.h), the longest at each place.
  std::string spell(std::string_view text);
  std::vector<std::string> spell_all(const std::vector<std::string_view>& texts);
  bool has_special(std::string_view token) const;
  // The special tokens that texts had.
  const std::vector<TokenId>& tokens() const { return tokens_; }

 private:
  const Tokenizer* const tokenizer_;
  std::vector<TokenId> tokens_;
};

}  // namespace troupe
