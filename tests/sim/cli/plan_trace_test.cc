// plan --trace: the search for the number of nodes, and where it begins.

#include "sim/cli/plan_trace.h"

#include <gtest/gtest.h>

#include "sim/cli/searched_runs.h"
#include "tests/sim/simulator_testing.h"

namespace troupe::sim::plan_trace_test {
namespace {

// The answer where `needed` nodes hold and fewer do not; 0: none does.
double found(double begin, double most, double needed, int* runs) {
  NodeSearch search{.at = begin, .most = most};
  double best = 0;
  for (*runs = 0; !search.is_over(); ++*runs) {
    EXPECT_LT(*runs, 64);
    const bool holds = search.at >= needed;
    if (holds) best = search.at;
    search = search.after(holds);
  }
  return best;
}

TEST(NodeSearch, FindsTheLeastNumberFromAnyBegin) {
  int runs = 0;
  for (double needed = 1; needed <= 40; ++needed) {
    for (double begin = 1; begin <= 40; begin += 3) {
      EXPECT_EQ(found(begin, 40, needed, &runs), needed) << "from " << begin;
      EXPECT_LE(runs, 13);
    }
  }
  EXPECT_EQ(found(1, 40, 41, &runs), 0);
}

TEST(Prober, RunsAheadOnlyWhatMayComeNext) {
  EXPECT_EQ(runs_ahead(NodeSearch{.at = 4, .most = 100}, 3), (std::vector<double>{4, 2, 8}));
  EXPECT_EQ(runs_ahead(NodeSearch{.at = 5, .low = 4, .high = 6, .most = 100}, 9), (std::vector<double>{5}));
}

TEST(TraceLoad, IsWhatTheTraceAsks) {
  using simulator_test::request;
  simulator_test::ListSource source({request(0, 160, 20), request(5, 160, 40), request(10, 320, 30, 2)});
  const auto load = measure_load(source);
  ASSERT_TRUE(load.ok()) << load.status();
  EXPECT_EQ(load->requests, 3);
  EXPECT_DOUBLE_EQ(load->rate, 0.3);
  EXPECT_DOUBLE_EQ(load->prompt_tokens, 640.0 / 3);
  EXPECT_DOUBLE_EQ(load->output_tokens, 30);
  EXPECT_DOUBLE_EQ(load->shared, 160.0 / 640);
  simulator_test::ListSource one({request(0, 160, 20)});
  EXPECT_FALSE(measure_load(one).ok());
}

TEST(TraceLoad, BoundsTheNodesFromBelow) {
  NodeProfile profile;
  profile.max_num_seqs = 100;
  profile.costs.overlaps = true;
  profile.costs.weights_us = 10'000;  // 100 µs a token in the largest batch
  profile.costs.decode_token_us = 20;
  profile.costs.prefill_token_us = 50;
  TraceLoad load;
  load.rate = 100;
  load.prompt_tokens = 1000;
  load.output_tokens = 200;
  load.shared = 0.5;
  // Products: 500 x 50 + 200 x 20 = 29 ms, memory 20 ms.
  EXPECT_EQ(nodes_at_least(load, profile), 2);
  profile.costs.overlaps = false;
  EXPECT_EQ(nodes_at_least(load, profile), 4);
  load.rate = 1;
  EXPECT_EQ(nodes_at_least(load, profile), 1);
}

}  // namespace
}  // namespace troupe::sim::plan_trace_test
