// Thousands of machines of each way to form steps (scheduler_model.h).

#include "tests/worker/schedule/scheduler_model.h"

#include <gtest/gtest.h>

namespace troupe {
namespace scheduler_model {

TEST(SchedulerModel, RandomOperationsKeepEveryContextRight) {
  int64_t preemptions = 0, hit_tokens = 0, machines_that_evict = 0, partial_hits = 0;
  int64_t pins = 0, refused_beside_pins = 0, cut_short = 0, computed_in_vain = 0, corrupt = 0;
  int64_t rewinds = 0, rewinds_to_prompt = 0;
  for (uint64_t seed = 1; seed <= 4000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Machine machine(seed, Batching::kMerged);
    machine.run(120);
    if (HasFailure()) break;
    preemptions += machine.stats().preemptions_total;
    hit_tokens += machine.stats().prefix_hit_tokens_total;
    partial_hits += machine.partial_hits();
    pins += machine.pins();
    refused_beside_pins += machine.refused_beside_pins();
    cut_short += machine.cut_short();
    computed_in_vain += machine.computed_in_vain();
    corrupt += machine.corrupt();
    rewinds += machine.rewinds();
    rewinds_to_prompt += machine.rewinds_to_prompt();
    machines_that_evict += machine.stats().blocks_free == 0;
  }
  // The seeds reach the cases that they are for.
  EXPECT_GT(preemptions, 1000);
  EXPECT_GT(hit_tokens, 100'000);
  EXPECT_GT(machines_that_evict, 500);
  EXPECT_GT(partial_hits, 5'000);
  EXPECT_GT(pins, 2'000);
  EXPECT_GT(refused_beside_pins, 500);
  EXPECT_GT(cut_short, 50);
  EXPECT_GT(corrupt, 1'000);
  EXPECT_GT(rewinds, 5'000);
  EXPECT_GT(rewinds_to_prompt, 1'000) << "the last id of the prompt lies in a block of the cache";
  EXPECT_GT(computed_in_vain, 1'000);
}

TEST(SchedulerModel, RandomOperationsInSeparateStepsKeepEveryContextRight) {
  int64_t preemptions = 0, prompts_before_decodes = 0, pins = 0, computed_in_vain = 0;
  for (uint64_t seed = 1; seed <= 3000 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Machine machine(seed, Batching::kSeparate);
    machine.run(120);
    preemptions += machine.stats().preemptions_total;
    prompts_before_decodes += machine.prompts_before_decodes();
    pins += machine.pins();
    computed_in_vain += machine.computed_in_vain();
  }
  EXPECT_GT(preemptions, 1000);
  EXPECT_GT(prompts_before_decodes, 10'000);
  EXPECT_GT(pins, 1'000);
  EXPECT_GT(computed_in_vain, 500);
}

TEST(SchedulerModel, RandomOperationsInStaticBatchesKeepEveryContextRight) {
  int64_t preemptions = 0, batches = 0, pins = 0, computed_in_vain = 0;
  for (uint64_t seed = 1; seed <= 3000 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Machine machine(seed, Batching::kStatic);
    machine.run(120);
    preemptions += machine.stats().preemptions_total;
    batches += machine.batches();
    pins += machine.pins();
    computed_in_vain += machine.computed_in_vain();
  }
  EXPECT_GT(preemptions, 500);
  EXPECT_GT(batches, 5'000);
  EXPECT_GT(pins, 1'000);
  EXPECT_GT(computed_in_vain, 500);
}

}  // namespace scheduler_model
}  // namespace troupe
