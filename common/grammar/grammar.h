#pragma once

// Constrained decoding: a grammar compiled for a vocabulary, and the state of one answer under it.
//
//   schema, regex, GBNF … -> Rules (front ends)          on any thread; bounded work
//   Rules + Vocabulary    -> CompiledGrammar             immutable, shared by requests
//   CompiledGrammar       -> GrammarMatcher              one an answer
//   each step:  matcher.fill_mask(bits); draw a token among them; matcher.accept(token)
//
// Masks are exact: a token is allowed if and only if some complete answer goes on with it. The engine may
// fill masks on another thread beside the step, take drafted tokens back (rollback), and resume an answer by
// accepting what was sent of it. What the parser finds out is kept in the compiled grammar for all answers
// under it, behind one lock.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/core/mutex.h"
#include "common/core/status.h"
#include "common/grammar/masks.h"
#include "common/grammar/rules/earley.h"
#include "common/grammar/rules/rules.h"
#include "common/grammar/tokens/vocabulary.h"

namespace troupe::grammar {

// Parser and masks of a grammar, as far as its answers have explored them. When it has grown past its bound,
// answers go on in a new one.
class GrammarRuntime {
 public:
  struct Options {
    Earley::Limits parser;
    Masks::Options masks;
  };
  GrammarRuntime(const Rules* rules, const Vocabulary* vocabulary, const Options& options);

 private:
  friend class GrammarMatcher;
  Mutex mutex_;
  Earley earley_ ABSL_GUARDED_BY(mutex_);
  Masks masks_ ABSL_GUARDED_BY(mutex_);
  const ConfigId start_;
};

// Thread-safe.
class CompiledGrammar {
 public:
  // Errors (kInvalidArgument): the grammar's first state is past the parser's bounds.
  static StatusOr<std::shared_ptr<const CompiledGrammar>> make(Rules rules,
                                                               std::shared_ptr<const Vocabulary> vocabulary,
                                                               const GrammarRuntime::Options& options);
  static StatusOr<std::shared_ptr<const CompiledGrammar>> make(Rules rules,
                                                               std::shared_ptr<const Vocabulary> vocabulary) {
    return make(std::move(rules), std::move(vocabulary), {});
  }

  const Vocabulary& vocabulary() const { return *vocabulary_; }

 private:
  friend class GrammarMatcher;
  CompiledGrammar() = default;
  std::shared_ptr<GrammarRuntime> runtime() const;
  // A runtime other than `full`.
  std::shared_ptr<GrammarRuntime> renewed(const std::shared_ptr<GrammarRuntime>& full) const;

  Rules rules_;
  std::shared_ptr<const Vocabulary> vocabulary_;
  GrammarRuntime::Options options_;
  mutable Mutex mutex_;
  mutable std::shared_ptr<GrammarRuntime> runtime_ ABSL_GUARDED_BY(mutex_);
};

// Not thread-safe; copies are independent. Errors of its functions (kResourceExhausted): the answer's parse
// is past the parser's bounds; the answer cannot go on under this grammar.
class GrammarMatcher {
 public:
  explicit GrammarMatcher(std::shared_ptr<const CompiledGrammar> grammar);

  // Sets the bits of the tokens that may come next and clears all others. REQUIRES: mask_words() words.
  Status fill_mask(std::span<uint32_t> bits);
  // Adds a token. False, and nothing is changed, if it may not come next.
  StatusOr<bool> accept(int32_t token);
  // Adds text that is no token of the answer (of a prompt that it continues); one step of rollback.
  StatusOr<bool> accept_text(std::string_view text);
  // Takes the last `steps` accepted tokens back. REQUIRES: as many were accepted
  void rollback(size_t steps);

  size_t step_count() const { return steps_.size() - 1; }
  // Whether the answer so far is complete, so that it may end here.
  bool is_accepting();
  // Whether it is complete and nothing but its end may follow.
  bool is_finished();
  // Whether an end token was accepted.
  bool has_ended() const { return steps_.back().has_ended; }
  // Bytes that must come next, at most `max` of them: a caller that encodes them may emit them unasked. Only
  // its tokenizer knows which of their tokens are canonical, and whether the last of them merges with what
  // follows.
  StatusOr<std::string> forced_bytes(size_t max);

 private:
  struct Step {
    ConfigId config;
    size_t text_end;  // in text_
    bool has_ended = false;
  };
  ConfigId walk(std::string_view text, ConfigId from) ABSL_EXCLUSIVE_LOCKS_REQUIRED(runtime_->mutex_);
  // Goes over to a new runtime, in which all steps are taken again.
  Status renew();

  std::shared_ptr<const CompiledGrammar> grammar_;
  std::shared_ptr<GrammarRuntime> runtime_;
  std::string text_;
  std::vector<Step> steps_;  // the first is the beginning
};

}  // namespace troupe::grammar
