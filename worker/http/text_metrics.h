#pragma once

// Metrics of text in: how often the tokens of a text were known, and for how long its threads have been away.

#include "common/core/metrics.h"
#include "worker/http/text_jobs.h"
#include "worker/text/tokenizer/token_cache.h"

namespace troupe {

class TextMetrics {
 public:
  // Exports the counts so far: other threads count. `cache` may be null.
  void publish(Metrics& metrics, const TokenCache* cache, const TextJobs& jobs);

 private:
  TokenCache::Stats published_;
};

}  // namespace troupe
