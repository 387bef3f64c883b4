// The cost of a step, learned online, and its use by the scheduler: no decode waits for a prefill longer than
// the budget, and prefill hardly slows down.

#include "worker/schedule/step_cost.h"

#include <algorithm>
#include <cstdio>
#include <random>

#include "tests/worker/schedule/driver.h"

namespace troupe {
namespace step_cost_test {

using namespace testing;

StepLoad load_of(int decodes, int64_t context, int64_t start, int64_t chunk) {
  StepLoad load;
  for (int i = 0; i < decodes; ++i) load.add_decode(context);
  if (chunk > 0) load.add_prefill(start, chunk);
  return load;
}

// A machine by its costs: reading the weights once, every token, every key.
double true_seconds(const StepLoad& load) {
  return 0.008 + 1.2e-4 * static_cast<double>(load.prefill_tokens) +
         2e-5 * static_cast<double>(load.decode_count) +
         6e-8 * static_cast<double>(load.decode_context_tokens) +
         1e-8 * static_cast<double>(load.prefill_pairs) + 2.4e-3 * static_cast<double>(load.scored_rows);
}

StepLoad random_load(std::mt19937_64& random) {
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  return load_of(pick(0, 48), pick(50, 3000), pick(0, 4000), pick(0, 3) == 0 ? 0 : pick(1, 512));
}

TEST(StepCost, LearnsMachineDespiteNoiseAndOutliers) {
  std::mt19937_64 random(1);
  std::normal_distribution<double> noise(1, 0.03);
  StepCost cost;
  EXPECT_EQ(cost.seconds(load_of(1, 1, 0, 0)), 0);
  for (int i = 0; i < 600; ++i) {
    const StepLoad load = random_load(random);
    cost.observe(load, true_seconds(load) * noise(random) * (i % 50 == 49 ? 10 : 1));
  }
  double worst = 0;
  for (int i = 0; i < 200; ++i) {
    const StepLoad load = random_load(random);
    worst = std::max(worst, std::abs(cost.seconds(load) / true_seconds(load) - 1));
  }
  EXPECT_LT(worst, 0.12);
}

TEST(StepCost, RemembersPrefillCostThroughDecodesOnly) {
  std::mt19937_64 random(2);
  StepCost cost;
  for (int i = 0; i < 300; ++i) {
    const StepLoad load = random_load(random);
    cost.observe(load, true_seconds(load));
  }
  for (int i = 0; i < 20'000; ++i) {
    const StepLoad load = load_of(20 + i % 5, 500 + i % 100, 0, 0);
    cost.observe(load, true_seconds(load));
  }
  const StepLoad load = load_of(20, 500, 0, 256);
  EXPECT_NEAR(cost.seconds(load) / true_seconds(load), 1, 0.15);
}

TEST(StepCost, LimitsChunkToTwiceTheLargestSeen) {
  StepCost cost;
  EXPECT_LE(cost.chunk_within(10, {}, {0, 4096}), 64);
  const StepLoad load = load_of(4, 100, 0, 100);
  for (int i = 0; i < 50; ++i) cost.observe(load, 0.01);
  EXPECT_LE(cost.chunk_within(10, {}, {0, 4096}), 200);
  EXPECT_EQ(cost.chunk_within(10, {}, {0, 80}), 80);
  EXPECT_EQ(cost.chunk_within(1e-6, {}, {0, 80}), 0);
}

struct Outcome {
  double p99_gap_ms = 0;
  double seconds = 0;  // until all prompts were answered
  int64_t cut_steps = 0;
};

struct Prompts {
  int count = 60;
  int length = 3000;
  bool scored = false;
  int steps_to_learn = 50;
};

// Thirty-two streams decode while long prompts come in, one behind the other.
Outcome serve_under(Duration budget, const Prompts& prompts = {}) {
  SchedulerConfig config;
  config.block_count = 8000;
  config.max_num_batched_tokens = 2048;
  config.max_model_len = 8192;
  config.tpot_budget = budget;
  Scheduler scheduler(config);
  std::mt19937_64 random(5);
  std::normal_distribution<double> noise(1, 0.03);
  TimePoint now{};
  const auto add = [&](RequestId id, int prompt_count, int32_t max_new_count, bool scored) {
    NewRequest request;
    request.id = id;
    request.prompt = tokens_from(static_cast<TokenId>(id) * 10'000, prompt_count);
    request.max_new_count = max_new_count;
    request.scores_prompt = scored;
    EXPECT_TRUE(scheduler.add(std::move(request)).ok());
  };
  for (RequestId id = 1; id <= 32; ++id) add(id, 40, 4000, false);
  std::map<RequestId, TimePoint> last;
  std::vector<double> gaps_ms;
  RequestId next_id = 100;
  int prompts_left = prompts.count;
  for (int step = 0; step < 100'000; ++step) {
    if (step >= 100 && prompts_left > 0 && scheduler.stats().running + scheduler.stats().waiting < 34) {
      add(next_id++, prompts.length + prompts.length / 30 * (prompts_left % 7), 2, prompts.scored);
      --prompts_left;
    }
    const Batch& batch = scheduler.plan(now);
    std::vector<StepToken> tokens;
    for (const BatchItem& item : batch.items) {
      if (item.samples) tokens.push_back({item.id, 7, false});
    }
    now += std::chrono::duration_cast<Duration>(
        std::chrono::duration<double>(true_seconds(step_load(batch)) * noise(random)));
    for (const StepToken& token : tokens) {
      const auto before = last.find(token.id);
      // The first steps are for learning.
      if (before != last.end() && step > 100 + prompts.steps_to_learn && token.id <= 32) {
        gaps_ms.push_back(std::chrono::duration<double, std::milli>(now - before->second).count());
      }
      last[token.id] = now;
    }
    std::vector<RequestId> finished;
    scheduler.commit(tokens, now, finished);
    if (prompts_left == 0 && scheduler.stats().running == 32 && scheduler.stats().waiting == 0) break;
  }
  EXPECT_EQ(prompts_left, 0);
  std::sort(gaps_ms.begin(), gaps_ms.end());
  return {gaps_ms[gaps_ms.size() * 99 / 100], std::chrono::duration<double>(now.time_since_epoch()).count(),
          scheduler.stats().budget_limited_steps_total};
}

TEST(StepCost, ChunkKeepsStepWithinTpotBudget) {
  const Outcome free = serve_under(Duration::zero());
  const Outcome held = serve_under(std::chrono::milliseconds(50));
  std::printf("TPOT budget none: p99 gap %.1f ms, %.1f s for all; 50 ms: p99 gap %.1f ms, %.1f s\n",
              free.p99_gap_ms, free.seconds, held.p99_gap_ms, held.seconds);
  EXPECT_GT(free.p99_gap_ms, 200);
  EXPECT_LT(held.p99_gap_ms, 50 * 1.2);
  EXPECT_LT(held.seconds, 1.35 * free.seconds);
}

// A row of logits at a vocabulary of 150,000 costs as much as twenty tokens.
TEST(StepCost, ScoredPromptKeepsStepWithinTpotBudget) {
  const Prompts scored{.count = 20, .length = 400, .scored = true, .steps_to_learn = 5};
  const Outcome free = serve_under(Duration::zero(), scored);
  const Outcome held = serve_under(std::chrono::milliseconds(100), scored);
  std::printf("TPOT budget none: p99 gap %.1f ms, %.1f s for all; 100 ms: p99 gap %.1f ms, %.1f s\n",
              free.p99_gap_ms, free.seconds, held.p99_gap_ms, held.seconds);
  EXPECT_GT(free.p99_gap_ms, 900);
  EXPECT_LT(held.p99_gap_ms, 100 * 1.2);
  EXPECT_LT(held.seconds, 1.5 * free.seconds);
  EXPECT_GT(held.cut_steps, 100);
}

// Prefills without scores go on beside a scored one, and every row is scored once.
TEST(StepCost, ScoredPromptDoesNotDelayOtherPrefills) {
  SchedulerConfig config = config_of(4000);
  config.max_num_batched_tokens = 512;
  config.max_model_len = 5000;
  config.tpot_budget = std::chrono::milliseconds(60);
  Scheduler scheduler(config);
  TimePoint now{};
  std::map<RequestId, int> prompt_counts{{1, 8}, {2, 300}, {3, 1000}};
  int32_t scored = 0, last_prefill_of_3 = 0;
  int step = 0;
  for (; step < 2000; ++step) {
    if (step == 0 || step == 300) {
      for (const auto& [id, count] : prompt_counts) {
        if ((id == 1) != (step == 0)) continue;
        NewRequest request;
        request.id = id;
        request.prompt = tokens_from(static_cast<TokenId>(id) * 10'000, count);
        request.max_new_count = id == 1 ? 4000 : 1;
        request.scores_prompt = id == 2;
        ASSERT_TRUE(scheduler.add(std::move(request)).ok());
      }
    }
    const Batch& batch = scheduler.plan(now);
    std::vector<StepToken> tokens;
    for (const BatchItem& item : batch.items) {
      if (item.samples) tokens.push_back({item.id, 7, false});
      if (item.id == 3) last_prefill_of_3 = step;
      if (item.id != 2) {
        EXPECT_EQ(item.scored.count, 0);
        continue;
      }
      EXPECT_EQ(item.start + item.scored.first, scored);
      scored += item.scored.count;
    }
    now +=
        std::chrono::duration_cast<Duration>(std::chrono::duration<double>(true_seconds(step_load(batch))));
    std::vector<RequestId> finished;
    scheduler.commit(tokens, now, finished);
    if (scored == 299) break;
  }
  EXPECT_EQ(scored, 299);
  EXPECT_GT(last_prefill_of_3, 0);
  EXPECT_LT(last_prefill_of_3, step) << "the prompt that is not scored had to wait for the one that is";
}

TEST(StepCost, UnreachableTpotBudgetDoesNotStopPrefill) {
  SchedulerConfig config = config_of(400);
  config.max_num_batched_tokens = 512;
  config.max_model_len = 1000;
  config.tpot_budget = std::chrono::microseconds(1);
  Scheduler scheduler(config);
  TimePoint now{};
  std::vector<int32_t> chunks;
  for (int step = 0; step < 40; ++step) {
    if (step == 0 || step == 20) {
      NewRequest request;
      request.id = step == 0 ? 1 : 2;
      request.prompt = tokens_from(1000 * step, step == 0 ? 8 : 320);
      request.max_new_count = 100;
      ASSERT_TRUE(scheduler.add(std::move(request)).ok());
    }
    const Batch& batch = scheduler.plan(now);
    std::vector<StepToken> tokens;
    for (const BatchItem& item : batch.items) {
      if (item.samples) tokens.push_back({item.id, 7, false});
      if (item.id == 2 && item.sample_position == 0) chunks.push_back(static_cast<int32_t>(item.ids.size()));
    }
    now += std::chrono::milliseconds(20 + batch.token_count);
    std::vector<RequestId> finished;
    scheduler.commit(tokens, now, finished);
  }
  EXPECT_EQ(chunks, std::vector<int32_t>(10, 32));
  EXPECT_GE(scheduler.stats().budget_limited_steps_total, 8);
}

TEST(StepCost, ShortPrefillDoesNotWaitForLongPrompt) {
  SchedulerConfig config = config_of(4000);
  config.max_num_batched_tokens = 64;
  config.max_model_len = 5000;
  Driver driver(config);
  ASSERT_TRUE(driver.add(1, tokens_from(0, 2000), 2).ok());
  EXPECT_EQ(driver.step(), (std::map<RequestId, int>{{1, 64}}));
  ASSERT_TRUE(driver.add(2, tokens_from(10'000, 1990), 2).ok());  // as long: it waits its turn
  ASSERT_TRUE(driver.add(3, tokens_from(20'000, 20), 2).ok());    // short: it does not
  EXPECT_EQ(driver.step(), (std::map<RequestId, int>{{1, 44}, {3, 20}}));
  // A stream of short ones takes half at most.
  for (RequestId id = 10; driver.scheduler.stats().running + driver.scheduler.stats().waiting > 2 || id < 20;
       ++id) {
    ASSERT_LT(id, 200u) << "the long prompt starves";
    ASSERT_TRUE(driver.add(id, tokens_from(static_cast<TokenId>(30'000 + 100 * id), 60), 1).ok());
    const auto counts = driver.step();
    if (counts.contains(1) && counts.at(1) > 1) {
      EXPECT_GE(counts.at(1), 31);
    }
    if (std::find(driver.finished.begin(), driver.finished.end(), 2u) != driver.finished.end()) break;
  }
  driver.run_until_idle();
}

}  // namespace step_cost_test
}  // namespace troupe
