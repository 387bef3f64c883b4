#pragma once

// An answer that has to follow a grammar: which tokens may come next, and when nothing but its end may.
// Compute thread only; one an answer.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/core/status.h"
#include "common/grammar/grammar.h"
#include "worker/engine/forced_tokens.h"
#include "worker/kv/types.h"

namespace troupe {

// The grammar of a request's answers.
struct AnswerGrammar {
  std::shared_ptr<const grammar::CompiledGrammar> compiled;  // null: none
  std::string begun;  // the part of the prompt that the answer, under the grammar, goes on with
};

class GrammarState {
 public:
  // `stop_token_ids`: those of them that are no text end an answer where it may end, as do the vocabulary's
  // end tokens unless `ignores_ends`. `sent`: tokens of the answer so far. REQUIRES: grammar.compiled
  GrammarState(const AnswerGrammar& grammar, const std::vector<TokenId>& stop_token_ids, bool ignores_ends,
               std::span<const TokenId> sent);

  // A bit for every token, valid between fill_mask() and the next accept().
  std::span<const uint32_t> mask() const { return mask_; }
  void fill_mask();
  // The text that must come next, as far as it is one and no special token; nothing where an end may come.
  ForcedText forced_text();
  // Takes the answer's next token in.
  void accept(TokenId token);
  // Keeps the answer's first tokens alone.
  void rewind_to(size_t token_count);
  // Whether the answer is complete and no token of text may follow.
  bool is_finished();
  // Why no token can be drawn, where none could.
  Status draw_error() const;

 private:
  void allow(TokenId token) { mask_[static_cast<size_t>(token) / 32] |= 1u << (token % 32); }
  void fail(const Status& status);

  grammar::GrammarMatcher matcher_;
  std::vector<TokenId> ends_;  // allowed where the answer may end
  const bool ignores_ends_;
  const std::vector<int32_t> vocabulary_ends_;
  size_t first_step_ = 0;  // steps of the matcher before the first token
  std::vector<uint32_t> mask_;
  Status error_;
};

}  // namespace troupe
