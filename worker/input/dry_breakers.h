#pragma once

// DRY's sequence breakers, texts in a request, as tokens: every token that has the text in it, and the tokens
// in whose end it begins, with those behind that finish it. So a breaker is found however the tokenizer cut
// the text around it.

#include <memory>
#include <string>
#include <vector>

#include "common/core/mutex.h"
#include "common/core/status.h"
#include "worker/model/sampler.h"
#include "worker/text/tokenizer/tokenizer.h"

namespace troupe {

// A scan of the vocabulary a text: some tenths of a millisecond for one of a byte, a millisecond for a longer
// one. Errors: kInvalidArgument where too many tokens end as the texts begin; work_limit.h's.
StatusOr<DryBreakers> find_breakers(const Tokenizer& tokenizer, const std::vector<std::string>& texts);

// Keeps the breakers of the lists of texts asked for last: most requests have the same few. Thread-safe.
class DryBreakerCache {
 public:
  // `tokenizer` must outlive it.
  explicit DryBreakerCache(const Tokenizer* tokenizer) : tokenizer_(tokenizer) {}

  // Errors: find_breakers()'s.
  StatusOr<std::shared_ptr<const DryBreakers>> find(const std::vector<std::string>& texts);

 private:
  static constexpr size_t kListsMax = 16;
  struct Entry {
    std::vector<std::string> texts;
    std::shared_ptr<const DryBreakers> breakers;
  };

  const Tokenizer* const tokenizer_;
  Mutex mutex_;
  std::vector<Entry> entries_ ABSL_GUARDED_BY(mutex_);  // last used first
};

}  // namespace troupe
