#pragma once

// Grammars compiled for a tokenizer, those asked for last: a product's requests have the same few schemas.
// Thread-safe.

#include <memory>
#include <string>
#include <vector>

#include "common/core/mutex.h"
#include "common/core/status.h"
#include "common/grammar/front/format.h"
#include "common/grammar/grammar.h"
#include "worker/text/tokenizer/tokenizer.h"

namespace troupe {

// The vocabulary of a model with so many logits. A special token is a mark by its name, any other its bytes
// in the middle of a text.
StatusOr<std::shared_ptr<const grammar::Vocabulary>> grammar_vocabulary(
    const Tokenizer& tokenizer, int64_t vocab_size, const std::vector<int32_t>& eos_token_ids);

class GrammarCache {
 public:
  // `tokenizer` must outlive it. The vocabulary is made when the first grammar is asked for: tenths of a
  // second where it is large.
  GrammarCache(const Tokenizer* tokenizer, int64_t vocab_size, std::vector<int32_t> eos_token_ids);

  // Errors: kInvalidArgument, for the request's sender: see grammar/front; the grammar takes too much time.
  StatusOr<std::shared_ptr<const grammar::CompiledGrammar>> find(const grammar::Format& format);
  // Whether a text's first token loses the space it begins with.
  bool strips_first_space() const { return strips_first_space_; }

 private:
  static constexpr size_t kGrammarsMax = 24;
  struct Entry {
    std::string key;
    std::shared_ptr<const grammar::CompiledGrammar> compiled;
  };
  StatusOr<std::shared_ptr<const grammar::Vocabulary>> vocabulary();

  const Tokenizer* const tokenizer_;
  const int64_t vocab_size_;
  const std::vector<int32_t> eos_token_ids_;
  const bool strips_first_space_;
  Mutex vocabulary_mutex_;
  std::shared_ptr<const grammar::Vocabulary> vocabulary_ ABSL_GUARDED_BY(vocabulary_mutex_);
  Mutex mutex_;
  std::vector<Entry> entries_ ABSL_GUARDED_BY(mutex_);  // last used first
};

}  // namespace troupe
