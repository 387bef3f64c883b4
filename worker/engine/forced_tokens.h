#pragma once

// The tokens of a text that must follow under an answer's grammar: those that the tokenizer has for it behind
// what stands, so that the model reads what it was trained on, and of these only the ones that no longer text
// would change. They follow from the answer's tokens and the grammar alone, so an answer that goes on
// elsewhere, even within such a run, goes on as it would have. Compute thread only.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/grammar/tokens/vocabulary.h"
#include "worker/kv/types.h"
#include "worker/text/tokenizer/tokenizer.h"

namespace troupe {

// Text that must come next.
struct ForcedText {
  std::string bytes;
  bool completes = false;  // the answer is complete behind it, and nothing but its end may follow
};

// Immutable; linear in the text: beside the whole of it the text up to each place near its end is encoded at
// which a token may begin that goes on behind it, and where there are more than eight of those nothing is
// found.
class ForcedTokens {
 public:
  // Both must outlive this. `vocabulary` is the tokenizer's.
  ForcedTokens(const Tokenizer* tokenizer, const grammar::Vocabulary* vocabulary);

  // The tokens that `text` begins with behind `answer`. None where the answer is empty, or its last token is
  // not the one that the tokenizer has at that place: behind it the tokenizer's would not be the model's own.
  std::vector<TokenId> find(std::span<const TokenId> answer, const ForcedText& text) const;

 private:
  std::optional<size_t> tail_count(std::span<const TokenId> ids, std::string_view tail, TokenId last) const;
  std::string tail_of(std::span<const TokenId> answer) const;
  std::vector<TokenId> encode(std::string_view text) const;
  bool is_begun(std::string_view text) const;

  const Tokenizer* const tokenizer_;
  const grammar::Vocabulary* const vocabulary_;
  size_t before_count_ = 0;  // tokens of kBefore
};

// The forced tokens of one answer, as it goes on.
class ForcedRun {
 public:
  // `sent`: tokens of the answer so far.
  ForcedRun(const Tokenizer* tokenizer, const grammar::Vocabulary* vocabulary, std::span<const TokenId> sent)
      : tokens_(tokenizer, vocabulary), answer_(sent.begin(), sent.end()) {}

  // Calls of find() so far.
  int64_t search_count() const { return search_count_; }
  // The answer's next token.
  void push(TokenId token);
  // The answer's last `count` tokens; valid until push().
  std::span<const TokenId> last(size_t count) const { return std::span(answer_).last(count); }
  // The token that must be the next one; none: any may come. `text()`: what must; `is_banned(token)`: it must
  // not come, whatever the text. Both are called at most once a token.
  template <typename Text, typename IsBanned>
  std::optional<TokenId> next(const Text& text, const IsBanned& is_banned) {
    if (!is_found_) {
      run_ = tokens_.find(answer_, text());
      ++search_count_;
      taken_count_ = 0;
      is_found_ = true;
    }
    if (!is_judged_) {
      is_banned_ = !run_.empty() && is_banned(run_[taken_count_]);
      is_judged_ = true;
    }
    return run_.empty() || is_banned_ ? std::nullopt : std::optional<TokenId>(run_[taken_count_]);
  }

 private:
  const ForcedTokens tokens_;
  std::vector<TokenId> answer_;
  std::vector<TokenId> run_;
  size_t taken_count_ = 0;  // of run_; less than all, unless that is empty
  bool is_found_ = false;   // run_ is of the answer so far
  bool is_judged_ = false;  // is_banned_ is of the next token
  bool is_banned_ = false;
  int64_t search_count_ = 0;
};

}  // namespace troupe
