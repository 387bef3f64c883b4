#pragma once

// Drives a scheduler over a KV memory that remembers what was written, one step after the other.

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <vector>

#include "worker/schedule/scheduler.h"

namespace troupe::testing {

inline std::vector<TokenId> tokens_from(TokenId first, int count) {
  std::vector<TokenId> ids(static_cast<size_t>(count));
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

inline std::vector<TokenId> joined(std::vector<TokenId> a, const std::vector<TokenId>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Drives a scheduler; every sampled token is 1'000'000 + its position in its answer.
class Driver {
 public:
  explicit Driver(const SchedulerConfig& config) : scheduler(config) {}

  Status add(RequestId id, std::vector<TokenId> prompt, int32_t max_new_count = 4, Hash128 salt = {}) {
    NewRequest request;
    request.id = id;
    request.prompt = std::move(prompt);
    request.max_new_count = max_new_count;
    request.spec.salt = salt;
    return scheduler.add(std::move(request));
  }

  // One step; the tokens it computed by request.
  std::map<RequestId, int> step() {
    std::map<RequestId, int> counts;
    const Batch& batch = scheduler.plan(TimePoint{});
    std::vector<StepToken> tokens;
    for (const BatchItem& item : batch.items) {
      counts[item.id] = static_cast<int>(item.ids.size());
      if (item.samples) tokens.push_back({item.id, 1'000'000 + item.sample_position, false});
      if (item.samples) sampled[item.id].push_back(1'000'000 + item.sample_position);
    }
    if (batch.empty()) return counts;
    std::vector<RequestId> done;
    scheduler.commit(tokens, TimePoint{}, done);
    finished.insert(finished.end(), done.begin(), done.end());
    EXPECT_TRUE(scheduler.verify().ok()) << scheduler.verify();
    return counts;
  }

  void run_until_idle(int limit = 10'000) {
    while (!step().empty()) ASSERT_GT(--limit, 0) << "the scheduler does not come to rest";
    const SchedulerStats& stats = scheduler.stats();
    EXPECT_EQ(stats.running + stats.waiting, 0) << "an empty step while requests are there";
    EXPECT_EQ(stats.blocks_free + stats.blocks_cached, stats.blocks_total);
    EXPECT_EQ(stats.blocks_used, 0);
    EXPECT_EQ(stats.pending_prefill_tokens, 0);
  }

  Scheduler scheduler;
  std::vector<RequestId> finished;
  std::map<RequestId, std::vector<TokenId>> sampled;
};

inline SchedulerConfig config_of(int32_t block_count) {
  SchedulerConfig config;
  config.block_size = 4;
  config.block_count = block_count;
  config.max_num_batched_tokens = 64;
  config.max_model_len = 256;
  return config;
}

}  // namespace troupe::testing
