// The engine under every way its scheduler forms steps.

#include <gtest/gtest.h>

#include <deque>

#include "tests/worker/engine_harness.h"

namespace troupe {
namespace engine_batching_test {

using namespace testing;

class EngineBatching : public WaitsOrRunsAhead {};

INSTANTIATE_TEST_SUITE_P(Runner, EngineBatching, ::testing::Bool(), WaitsOrRunsAhead::name);

TEST_P(EngineBatching, AnswersAreTheSame) {
  for (const Batching batching : {Batching::kMerged, Batching::kSeparate, Batching::kStatic}) {
    SchedulerConfig config = EngineHarness::default_config();
    config.batching = batching;
    config.block_count = 40;  // few enough to run out
    EngineHarness h(config, model());
    std::deque<Collector> outs;
    for (int i = 0; i < 12; ++i) {
      const auto request = h.request(h.prompt(i, 10 + 5 * i), 40 - 3 * i, static_cast<uint64_t>(i));
      ASSERT_TRUE(h.engine->submit(request, outs.emplace_back().sink()).ok());
    }
    for (int i = 0; i < 12; ++i) {
      const auto request = h.request(h.prompt(i, 10 + 5 * i), 40 - 3 * i, static_cast<uint64_t>(i));
      Collector& out = outs[static_cast<size_t>(i)];
      ASSERT_TRUE(out.wait_end());
      EXPECT_EQ(out.ids(), h.model.reference(request.prompt, request.sampling, request.max_new_count));
    }
    EXPECT_TRUE(h.wait_idle());
  }
}

}  // namespace engine_batching_test
}  // namespace troupe
