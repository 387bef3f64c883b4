// A request that lost its KV to another and was recomputed, with the real scheduler and the real model: every
// logit must equal that of a request that runs alone.

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "tests/worker/model/demo_model.h"
#include "worker/model/sampler.h"
#include "worker/schedule/scheduler.h"

namespace troupe {
namespace preemption_test {

constexpr int32_t kNewCount = 48;

struct Outcome {
  std::map<RequestId, std::vector<Logits>> steps;  // by emitted token
  SchedulerStats stats;
};

// Greedy, to the maximum length, whatever stop tokens come.
Outcome compute(const std::vector<std::vector<TokenId>>& prompts, int64_t kv_tokens, bool prefix_caching) {
  Outcome outcome;
  RunnerOptions options = demo_options("cpu", kv_tokens);
  options.dtype = DType::kFloat32;
  const auto runner = ModelRunner::load(options);
  EXPECT_TRUE(runner.ok()) << runner.status();
  if (!runner.ok()) return outcome;
  SchedulerConfig config;
  config.block_size = options.block_size;
  config.block_count = (*runner)->block_count();
  config.enable_prefix_caching = prefix_caching;
  config.output_reserve = OutputReserve::kNone;  // so that blocks run out
  Scheduler scheduler(config);
  const TimePoint now{};
  for (size_t i = 0; i < prompts.size(); ++i) {
    NewRequest request;
    request.id = i + 1;
    request.prompt = prompts[i];
    request.max_new_count = kNewCount;
    const Status added = scheduler.add(std::move(request));
    EXPECT_TRUE(added.ok()) << added;
  }
  std::vector<RequestId> finished;
  while (true) {
    const Batch& batch = scheduler.plan(now);
    if (batch.empty()) break;
    std::vector<Logits> rows = run_step(**runner, batch);
    std::vector<StepToken> tokens;
    for (const BatchItem& item : batch.items) {
      if (!item.samples) continue;
      const Logits& row = rows[tokens.size()];
      auto& steps = outcome.steps[item.id];
      EXPECT_EQ(static_cast<size_t>(item.sample_position), steps.size());
      tokens.push_back({item.id, sample_token(row, {.temperature = 0}, 0), false});
      steps.push_back(row);
    }
    scheduler.commit(tokens, now, finished);
  }
  outcome.stats = scheduler.stats();
  return outcome;
}

class Preemption : public testing::TestWithParam<bool> {};

TEST_P(Preemption, RecomputedLogitsAreBitwiseEqual) {
  // 158, 161 and 162 tokens: 10 or 11 blocks each, three more by the end. 35 blocks hold the prompts but
  // not the ends.
  std::vector<std::vector<TokenId>> prompts;
  for (size_t c = 0; c < 3; ++c) prompts.push_back(golden_cases()[c].prompt);
  const Outcome crowded = compute(prompts, int64_t{35} * 16, GetParam());
  ASSERT_GE(crowded.stats.preemptions_total, 1) << "the test is to preempt";
  int64_t once = 0;
  for (const auto& prompt : prompts) once += static_cast<int64_t>(prompt.size()) + kNewCount - 1;
  if (!GetParam()) {
    EXPECT_GT(crowded.stats.computed_tokens_total, once + 158) << "a whole prompt is to be recomputed";
  }
  ASSERT_EQ(crowded.steps.size(), prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i) {
    SCOPED_TRACE("request " + std::to_string(i));
    const Outcome alone = compute({prompts[i]}, 4096, GetParam());
    ASSERT_EQ(alone.stats.preemptions_total, 0);
    const auto& expected = alone.steps.at(1);
    const auto& got = crowded.steps.at(i + 1);
    ASSERT_EQ(got.size(), static_cast<size_t>(kNewCount));
    for (size_t step = 0; step < got.size(); ++step) {
      EXPECT_TRUE(got[step] == expected[step]) << "not bitwise equal at token " << step;
    }
  }
}

std::string caching_name(const testing::TestParamInfo<bool>& info) {
  return info.param ? "PrefixesCached" : "NothingCached";
}
INSTANTIATE_TEST_SUITE_P(Caching, Preemption, testing::Bool(), caching_name);

}  // namespace preemption_test
}  // namespace troupe
