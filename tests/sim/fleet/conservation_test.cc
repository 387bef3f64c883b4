#include "sim/fleet/conservation.h"

#include <gtest/gtest.h>

namespace troupe::sim {
namespace {

RequestSums good() {
  return {.arrived = 10, .finished = 6, .lost = 1, .on_their_way = 3, .tokens_due = 600, .tokens_sent = 600};
}

// Sums off by one, in either direction: each is detected.
TEST(Conservation, DetectsEveryWrongFigure) {
  EXPECT_TRUE(check(good()).ok());
  for (int64_t RequestSums::*figure :
       {&RequestSums::arrived, &RequestSums::finished, &RequestSums::lost, &RequestSums::on_their_way,
        &RequestSums::tokens_due, &RequestSums::tokens_sent}) {
    for (const int64_t off : {-1, 1}) {
      RequestSums sums = good();
      sums.*figure += off;
      EXPECT_FALSE(check(sums).ok());
    }
  }
}

TEST(Conservation, NodeHoldsTheRequestsSentThere) {
  EXPECT_TRUE(check(NodeSums{4, 4}).ok());
  EXPECT_FALSE(check(NodeSums{4, 3}).ok()) << "one was forgotten";
  const Status twice = check(NodeSums{3, 4});
  EXPECT_EQ(to_std(twice.message()), "3 requests are at a node whose scheduler has 4");
}

TEST(Conservation, EveryPromptTokenIsCachedOrComputed) {
  EXPECT_TRUE(check(PromptSums{100, 60, 40}).ok());
  EXPECT_FALSE(check(PromptSums{100, 60, 41}).ok()) << "one was computed twice";
  const Status none = check(PromptSums{100, 59, 40});
  EXPECT_EQ(to_std(none.message()), "prompts of 100 tokens were 59 cached and 40 computed at a node");
}

}  // namespace
}  // namespace troupe::sim
