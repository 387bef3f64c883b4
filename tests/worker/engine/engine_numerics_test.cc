// A request whose logits are no numbers: it ends with an error, alone, and nobody computes on from its KV.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <future>

#include "tests/worker/engine_harness.h"
#include "worker/engine/engine_errors.h"

namespace troupe {
namespace engine_numerics_test {

using namespace testing;

class EngineNumerics : public WaitsOrRunsAhead {};

INSTANTIATE_TEST_SUITE_P(Runner, EngineNumerics, ::testing::Bool(), WaitsOrRunsAhead::name);

std::vector<TokenId> with_nan(std::vector<TokenId> prompt, size_t at) {
  prompt.insert(prompt.begin() + static_cast<std::ptrdiff_t>(at), FakeKv::kNanToken);
  return prompt;
}

void expect_consistent(EngineHarness& h) {
  ASSERT_TRUE(h.wait_idle());
  std::promise<Status> verified;
  ASSERT_TRUE(h.engine->ask([&](const Scheduler* scheduler) { verified.set_value(scheduler->verify()); }));
  const Status status = verified.get_future().get();
  EXPECT_TRUE(status.ok()) << status;
}

// In one batch with others of their persona, in prompts of one chunk and of several, asked for one token and
// for many.
TEST_P(EngineNumerics, OneEndsWithAnErrorAndTheOthersGoOn) {
  EngineHarness h(model());
  const auto persona = h.prompt(3, 50);
  std::deque<Collector> outs;
  std::vector<EngineRequest> requests;
  for (int i = 0; i < 24; ++i) {
    auto prompt = persona;
    for (int j = 0; j < 1 + 7 * (i % 5); ++j) prompt.push_back(500 + i * 3 + j);
    if (i % 3 == 1) prompt = with_nan(prompt, prompt.size() - static_cast<size_t>(i % 2));
    requests.push_back(h.request(prompt, i % 4 == 0 ? 1 : 12, static_cast<uint64_t>(i)));
    ASSERT_TRUE(h.engine->submit(requests.back(), outs.emplace_back().sink()).ok());
  }
  for (size_t i = 0; i < outs.size(); ++i) {
    ASSERT_TRUE(outs[i].wait_end());
    if (i % 3 == 1) {
      EXPECT_EQ(outs[i].last().error.code(), absl::StatusCode::kDataLoss) << i;
      EXPECT_TRUE(outs[i].ids().empty());
    } else {
      const EngineRequest& asked = requests[i];
      EXPECT_EQ(outs[i].ids(), h.model.reference(asked.prompt, asked.sampling, asked.max_new_count)) << i;
    }
  }
  expect_consistent(h);
}

TEST_P(EngineNumerics, ItsKvIsNotCached) {
  for (const size_t at : {size_t{0}, size_t{30}, size_t{149}}) {
    for (const int count : {1, 20}) {
      EngineHarness h(model());
      for (int again = 0; again < 2; ++again) {
        Collector out;
        ASSERT_TRUE(h.engine->submit(h.request(with_nan(h.prompt(1, 150), at), count), out.sink()).ok());
        ASSERT_TRUE(out.wait_end());
        EXPECT_FALSE(out.last().error.ok());
        expect_consistent(h);
        EXPECT_EQ(h.engine->cached_blocks(), 0) << at << ", " << count << " tokens";
      }
    }
  }
}

TEST_P(EngineNumerics, ThePersonaOfOthersStays) {
  EngineHarness h(model());
  const auto persona = h.prompt(5, 48);
  const auto ask = [&](std::vector<TokenId> prompt) {
    Collector out;
    EXPECT_TRUE(h.engine->submit(h.request(std::move(prompt), 3), out.sink()).ok());
    EXPECT_TRUE(out.wait_end());
    return out.last();
  };
  auto healthy = persona, other = persona;
  for (int i = 0; i < 20; ++i) healthy.push_back(700 + i), other.push_back(900 + i);
  EXPECT_TRUE(ask(healthy).error.ok());
  EXPECT_FALSE(ask(with_nan(healthy, 60)).error.ok());
  EXPECT_FALSE(ask(with_nan(persona, 48)).error.ok());
  EXPECT_EQ(ask(healthy).usage.cached_tokens, 67);
  EXPECT_EQ(ask(other).usage.cached_tokens, 48);
  expect_consistent(h);
}

// Memory fails below a persona that was served for a while, with conversations behind it. A few requests may
// end with an error before the block is gone; the next one computes the persona anew.
TEST_P(EngineNumerics, ABadBlockOfAPersonaDoesNotStay) {
  std::atomic<BlockId> of_persona = -1, bad_block = -1;
  EngineHarness::Model wanted = model();
  wanted.bad_block = &bad_block;
  wanted.before_step = [&](const Batch& batch) {
    of_persona = batch.items[0].blocks[5];
    return absl::OkStatus();
  };
  EngineHarness h(wanted);
  const auto persona = h.prompt(5, 48);
  const auto conversation = [&](TokenId own) {
    auto prompt = persona;
    for (TokenId i = 0; i < 20; ++i) prompt.push_back(own + i);
    return h.request(prompt, 8, 1);
  };
  const auto fails = [&](const EngineRequest& asked) {
    Collector out;
    EXPECT_TRUE(h.engine->submit(asked, out.sink()).ok());
    EXPECT_TRUE(out.wait_end());
    const bool failed = !out.last().error.ok();
    EXPECT_TRUE(failed || out.ids() == h.model.reference(asked.prompt, asked.sampling, 8));
    return failed;
  };
  for (TokenId own = 600; own < 1000; own += 100) EXPECT_FALSE(fails(conversation(own)));
  bad_block = of_persona.load();
  int failures = 0;
  while (failures < 10 && fails(conversation(1000 + 100 * failures))) ++failures;
  EXPECT_GT(failures, 0);
  EXPECT_LE(failures, 3);
  for (TokenId own = 600; own < 1000; own += 100) EXPECT_FALSE(fails(conversation(own)));
  expect_consistent(h);
}

// A prefix that is computed ahead, and pinned.
TEST_P(EngineNumerics, APrefixIsNotPinned) {
  EngineHarness h(model());
  EngineRequest prefix = h.request(with_nan(h.prompt(2, 90), 10), 1);
  prefix.prompt_only = true;
  prefix.spec.background = true;
  prefix.spec.pin = Hash128{1, 2};
  Collector out;
  ASSERT_TRUE(h.engine->submit(prefix, out.sink()).ok());
  ASSERT_TRUE(out.wait_end());
  EXPECT_FALSE(out.last().error.ok());
  expect_consistent(h);
  EXPECT_EQ(h.engine->load().kv_blocks_pinned, 0);
  EXPECT_EQ(h.engine->cached_blocks(), 0);
}

// In the middle of an answer: a model may break at any token.
TEST_P(EngineNumerics, WhatWasDrawnBeforeIsSent) {
  EngineHarness h(model());
  EngineRequest asked = h.request(h.prompt(4, 20), 40);
  const auto healthy = h.model.reference(asked.prompt, asked.sampling, 6);
  asked.emitted = healthy;
  asked.emitted.push_back(FakeKv::kNanToken);  // as if it had been drawn
  Collector out;
  ASSERT_TRUE(h.engine->submit(asked, out.sink()).ok());
  ASSERT_TRUE(out.wait_end());
  EXPECT_EQ(out.last().error.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(out.last().usage.completion_tokens, 7);
  expect_consistent(h);
}

TEST(EngineErrors, NumbersThatAreNoneHaveACodeOfTheirOwn) {
  const ApiError error = step_error(absl::DataLossError("the model computed logits that are no numbers"));
  EXPECT_EQ(error.http_status, 500);
  EXPECT_EQ(error.code, "numerical_error");
}

}  // namespace engine_numerics_test
}  // namespace troupe
