#include "sim/fleet/conservation.h"

#include <gtest/gtest.h>

namespace troupe::sim {
namespace {

RequestBooks good() {
  return {.arrived = 10, .finished = 6, .lost = 1, .on_their_way = 3, .tokens_due = 600, .tokens_told = 600};
}

// Sums off by one, in either direction: each is detected.
TEST(Conservation, DetectsEveryWrongFigure) {
  EXPECT_TRUE(check(good()).ok());
  for (int64_t RequestBooks::*figure :
       {&RequestBooks::arrived, &RequestBooks::finished, &RequestBooks::lost, &RequestBooks::on_their_way,
        &RequestBooks::tokens_due, &RequestBooks::tokens_told}) {
    for (const int64_t off : {-1, 1}) {
      RequestBooks books = good();
      books.*figure += off;
      EXPECT_FALSE(check(books).ok());
    }
  }
}

TEST(Conservation, NodeHoldsTheRequestsSentThere) {
  EXPECT_TRUE(check(NodeBooks{4, 4}).ok());
  EXPECT_FALSE(check(NodeBooks{4, 3}).ok()) << "one was forgotten";
  const Status twice = check(NodeBooks{3, 4});
  EXPECT_EQ(to_std(twice.message()), "3 requests are at a node whose scheduler has 4");
}

TEST(Conservation, EveryPromptTokenIsCachedOrComputed) {
  EXPECT_TRUE(check(PromptBooks{100, 60, 40}).ok());
  EXPECT_FALSE(check(PromptBooks{100, 60, 41}).ok()) << "one was computed twice";
  const Status none = check(PromptBooks{100, 59, 40});
  EXPECT_EQ(to_std(none.message()), "prompts of 100 tokens were 59 cached and 40 computed at a node");
}

}  // namespace
}  // namespace troupe::sim
