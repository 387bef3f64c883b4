#include "worker/http/text_metrics.h"

#include <chrono>

namespace troupe {

void TextMetrics::publish(Metrics& metrics, const TokenCache* cache, const TextJobs& jobs) {
  const auto age = [&](const char* texts, TextJobs::Kind kind) {
    metrics
        .gauge("troupe_text_job_age_seconds", "Time that the text under way has had so far",
               {{"texts", texts}})
        .Set(std::chrono::duration<double>(jobs.age(kind)).count());
  };
  age("short", TextJobs::Kind::kShort);
  age("long", TextJobs::Kind::kLong);
  if (cache == nullptr) return;
  const TokenCache::Stats now = cache->stats();
  metrics.counter("troupe_text_cache_lookups_total", "Stretches of text between special tokens looked up")
      .Increment(static_cast<double>(now.lookups - published_.lookups));
  metrics.counter("troupe_text_cache_hits_total", "Of these, those whose tokens were known")
      .Increment(static_cast<double>(now.hits - published_.hits));
  metrics.gauge("troupe_text_cache_bytes", "Memory of the texts whose tokens are known")
      .Set(static_cast<double>(now.bytes));
  published_ = now;
}

}  // namespace troupe
