#pragma once

// A bound on the tokens of an answer's thoughts (vLLM's `thinking_token_budget`). The answer's tokens go in;
// a token that has to come next comes out: once the thoughts have as many tokens as they may, those of the
// mark that ends them, one after another. Marks are no tokens of thoughts, but for one that the model has
// only begun: there the rest of it is forced. All of it follows from the tokens alone, so an answer that goes
// on elsewhere, or from a token taken back, goes on as it would have. Pure; not thread-safe; one an answer.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "worker/kv/types.h"
#include "worker/text/answer/answer_parser.h"
#include "worker/text/tokenizer/tokenizer.h"

namespace troupe {

struct ThinkingLimit {
  int32_t token_count_max = 0;  // over all of an answer's thoughts
  AnswerSyntax syntax;          // REQUIRES: with thoughts
  std::vector<TokenId> end;     // the tokens that end a thought. REQUIRES: ends_thought()
  // Sorted; the special tokens that are text in the answer. May be null.
  std::shared_ptr<const std::vector<TokenId>> shown_special;
};

// The tokens that a text has for the mark that ends a thought of this form; empty: none that end one.
std::vector<TokenId> thought_end_tokens(const Tokenizer& tokenizer, const ThoughtForm& form);

class ThinkingBudget {
 public:
  // `tokenizer` outlives this.
  ThinkingBudget(const Tokenizer* tokenizer, std::shared_ptr<const ThinkingLimit> limit);

  // The answer's next token.
  void push(TokenId token);
  // The answer has these tokens, and no other.
  void restart(std::span<const TokenId> answer);
  // The token that must be the next one; none: any may come.
  std::optional<TokenId> forced() const;
  // Whether the last token pushed was forced.
  bool last_was_forced() const { return last_was_forced_; }
  // Whether a token may be forced within the next `count` that are pushed, or right behind them.
  bool may_force_within(int32_t count) const;

 private:
  const Tokenizer* const tokenizer_;
  const std::shared_ptr<const ThinkingLimit> limit_;
  std::optional<ThoughtSplitter> thoughts_;
  std::vector<size_t> fallbacks_;  // of each beginning of limit_->end: its longest own end that is one, too
  size_t matched_ = 0;             // tokens of limit_->end that the thought so far ends with
  int32_t token_count_ = 0;        // of thoughts
  bool last_was_forced_ = false;
};

}  // namespace troupe
