// Prompts of which only lengths are known, and the beginnings that they share.

#include "sim/trace/lengths_only.h"

#include <gtest/gtest.h>

#include <set>

#include "sim/fleet/oracle_caches.h"

namespace troupe::sim::lengths_only_test {
namespace {

struct Lengths {
  int32_t input = 0, output = 0;
  uint64_t set = 0, session = 0;
  int32_t prefix = 0;
};

TraceRequest named(LengthsOnly& lengths, const Lengths& told) {
  TraceRequest request;
  request.input_tokens = told.input;
  request.output_tokens = told.output;
  request.set = told.set;
  request.session = told.session;
  request.prefix_tokens = told.prefix;
  request.block_tokens = LengthsOnly::kBlockTokens;
  lengths.name_blocks(request);
  EXPECT_EQ(request.blocks.size(), static_cast<size_t>(told.input / 16));
  EXPECT_EQ(request.output_blocks.size(),
            static_cast<size_t>((told.input + told.output) / 16 - told.input / 16));
  return request;
}

// Leading tokens of `b` that a cache finds which has served `a`.
int64_t shared(const TraceRequest& a, const TraceRequest& b) {
  PooledLru cache(-1);
  cache.serve(a);
  return cache.serve(b).infinite;
}

TEST(LengthsOnly, APromptOfNoNameIsLikeNoOther) {
  LengthsOnly lengths;
  const TraceRequest a = named(lengths, {160, 32}), b = named(lengths, {160, 32});
  EXPECT_EQ(shared(a, b), 0);
  EXPECT_EQ(std::set(a.blocks.begin(), a.blocks.end()).size(), 10u);
}

TEST(LengthsOnly, ASessionsPromptBeginsWithTheLastOneAndItsAnswer) {
  LengthsOnly lengths;
  const TraceRequest first = named(lengths, {.input = 100, .output = 60, .session = 7});
  const TraceRequest other = named(lengths, {.input = 180, .output = 10, .session = 8});
  const TraceRequest next = named(lengths, {.input = 180, .output = 10, .session = 7});
  EXPECT_EQ(shared(first, next), 160);
  EXPECT_EQ(shared(first, other), 0);
  EXPECT_EQ(lengths.counts().of_sessions, 1);
}

TEST(LengthsOnly, AShorterPromptWasCutAndSharesOnlyTheSetsPrefix) {
  LengthsOnly lengths;
  const Lengths told{.input = 640, .output = 16, .set = 3, .session = 7, .prefix = 320};
  const TraceRequest first = named(lengths, told);
  Lengths shorter = told;
  shorter.input = 480;
  const TraceRequest cut = named(lengths, shorter);
  EXPECT_EQ(shared(first, cut), 320);
  shorter.input = 512;
  EXPECT_EQ(shared(cut, named(lengths, shorter)), 496) << "from there on it grows again";
}

TEST(LengthsOnly, RequestsOfASetShareItsPrefixWhereItsLengthIsGiven) {
  LengthsOnly lengths;
  const TraceRequest a = named(lengths, {.input = 320, .set = 3, .prefix = 160}),
                     b = named(lengths, {.input = 480, .set = 3, .prefix = 160}),
                     other = named(lengths, {.input = 480, .set = 4, .prefix = 160}),
                     vague = named(lengths, {.input = 480, .set = 3});
  EXPECT_EQ(shared(a, b), 160);
  EXPECT_EQ(shared(a, other), 0);
  EXPECT_EQ(shared(a, vague), 0);
  EXPECT_EQ(lengths.counts().of_sets, 3);
  EXPECT_EQ(lengths.counts().vague_sets, 1);
}

TEST(LengthsOnly, APrefixThatEndsWithinABlockIsSharedUpToThatBlock) {
  LengthsOnly lengths;
  const Lengths told{.input = 320, .set = 3, .prefix = 170};
  const TraceRequest a = named(lengths, told);
  EXPECT_EQ(shared(a, named(lengths, told)), 160);
}

}  // namespace
}  // namespace troupe::sim::lengths_only_test
