// Thousands of machines of each way to form steps (scheduler_model.h).

#include "tests/worker/schedule/scheduler_model.h"

#include <gtest/gtest.h>

#include "tests/common/sanitized.h"

namespace troupe {
namespace scheduler_model {

TEST(SchedulerModel, RandomOperationsKeepEveryContextRight) {
  int64_t preemptions = 0, hit_tokens = 0, machines_that_evict = 0, partial_hits = 0;
  int64_t pins = 0, refused_beside_pins = 0, cut_short = 0, computed_in_vain = 0, corrupt = 0;
  int64_t rewinds = 0, rewinds_to_prompt = 0, runs = 0, runs_computed_in_parts = 0, runs_preempted = 0;
  for (int64_t seed = 1; seed <= eighth_if_sanitized(4000); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Machine machine(static_cast<uint64_t>(seed), Batching::kMerged);
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
    runs += machine.runs();
    runs_computed_in_parts += machine.runs_computed_in_parts();
    runs_preempted += machine.runs_preempted();
    machines_that_evict += machine.stats().blocks_free == 0;
  }
  // The seeds reach the cases that they are for.
  EXPECT_GT(preemptions, least_of_eighth(1000));
  EXPECT_GT(hit_tokens, least_of_eighth(100'000));
  EXPECT_GT(machines_that_evict, least_of_eighth(500));
  EXPECT_GT(partial_hits, least_of_eighth(5'000));
  EXPECT_GT(pins, least_of_eighth(2'000));
  EXPECT_GT(refused_beside_pins, least_of_eighth(500));
  EXPECT_GT(cut_short, least_of_eighth(50));
  EXPECT_GT(corrupt, least_of_eighth(1'000));
  EXPECT_GT(runs, least_of_eighth(10'000));
  EXPECT_GT(runs_computed_in_parts, least_of_eighth(400));
  EXPECT_GT(runs_preempted, least_of_eighth(40));
  EXPECT_GT(rewinds, least_of_eighth(5'000));
  EXPECT_GT(rewinds_to_prompt, least_of_eighth(1'000))
      << "the last id of the prompt lies in a block of the cache";
  EXPECT_GT(computed_in_vain, least_of_eighth(1'000));
}

TEST(SchedulerModel, RandomOperationsInSeparateStepsKeepEveryContextRight) {
  int64_t preemptions = 0, prompts_before_decodes = 0, pins = 0, computed_in_vain = 0, runs = 0;
  for (int64_t seed = 1; seed <= eighth_if_sanitized(3000) && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Machine machine(static_cast<uint64_t>(seed), Batching::kSeparate);
    machine.run(120);
    preemptions += machine.stats().preemptions_total;
    prompts_before_decodes += machine.prompts_before_decodes();
    runs += machine.runs();
    pins += machine.pins();
    computed_in_vain += machine.computed_in_vain();
  }
  EXPECT_GT(preemptions, least_of_eighth(900));
  EXPECT_GT(prompts_before_decodes, least_of_eighth(10'000));
  EXPECT_GT(runs, least_of_eighth(5'000));
  EXPECT_GT(pins, least_of_eighth(1'000));
  EXPECT_GT(computed_in_vain, least_of_eighth(500));
}

TEST(SchedulerModel, RandomOperationsInStaticBatchesKeepEveryContextRight) {
  int64_t preemptions = 0, batches = 0, pins = 0, computed_in_vain = 0;
  for (int64_t seed = 1; seed <= eighth_if_sanitized(3000) && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Machine machine(static_cast<uint64_t>(seed), Batching::kStatic);
    machine.run(120);
    preemptions += machine.stats().preemptions_total;
    batches += machine.batches();
    pins += machine.pins();
    computed_in_vain += machine.computed_in_vain();
  }
  EXPECT_GT(preemptions, least_of_eighth(500));
  EXPECT_GT(batches, least_of_eighth(5'000));
  EXPECT_GT(pins, least_of_eighth(1'000));
  EXPECT_GT(computed_in_vain, least_of_eighth(500));
}

TEST(SchedulerModel, CompanionsAreComputedBesideTheirRequests) {
  int64_t pairs = 0, pairs_preempted = 0, rewinds = 0, hit_tokens = 0, corrupt = 0, computed_in_vain = 0;
  for (const Batching batching : {Batching::kMerged, Batching::kSeparate, Batching::kStatic}) {
    const int64_t seeds = eighth_if_sanitized(batching == Batching::kMerged ? 2000 : 400);
    for (int64_t seed = 1; seed <= seeds && !HasFailure(); ++seed) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      Machine machine(static_cast<uint64_t>(seed), batching, /*companions=*/true);
      machine.run(120);
      pairs += machine.pairs();
      pairs_preempted += machine.pairs_preempted();
      rewinds += machine.rewinds();
      hit_tokens += machine.stats().prefix_hit_tokens_total;
      corrupt += machine.corrupt();
      computed_in_vain += machine.computed_in_vain();
    }
  }
  EXPECT_GT(pairs, least_of_eighth(50'000));
  EXPECT_GT(pairs_preempted, least_of_eighth(100));
  EXPECT_GT(rewinds, least_of_eighth(2'000));
  EXPECT_GT(hit_tokens, least_of_eighth(50'000));
  EXPECT_GT(corrupt, least_of_eighth(500));
  EXPECT_GT(computed_in_vain, least_of_eighth(500));
}

}  // namespace scheduler_model
}  // namespace troupe
