// Guided answers through the whole engine: each is a pure function of its request, whatever else is in the
// batch, cached, preempted, resumed or taken back.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <deque>

#include "tests/worker/engine_harness.h"
#include "worker/model/log_softmax.h"

namespace troupe::guided_engine_test {

using testing::Collector;
using testing::EngineHarness;
using testing::FakeKv;
using ::testing::HasSubstr;

using GuidedEngine = testing::WaitsOrRunsAhead;
INSTANTIATE_TEST_SUITE_P(Runner, GuidedEngine, ::testing::Bool(), GuidedEngine::name);

// Every third has no guidance.
EngineRequest varied(int i) {
  EngineRequest r = EngineHarness::request(EngineHarness::prompt(i % 4, 20 + i % 9), 8 + i % 13, 1);
  r.sampling.seed = static_cast<uint64_t>(i + 1);
  if (i % 3 == 0) return r;
  r.guidance = Guidance{1.0 + 0.5 * (i % 5) + 0.25, EngineHarness::prompt(50 + i % 2, 1 + (i * 7) % 30)};
  if (i % 4 == 0) r.sampling.repetition_penalty = 1.3f;
  if (i % 4 == 1) r.sampling.chain.emplace().mirostat = 2;
  if (i % 5 == 1) r.logprobs = 2;
  return r;
}

TEST_P(GuidedEngine, AnswersDoNotDependOnBatchCacheOrPreemption) {
  SchedulerConfig config = EngineHarness::default_config();
  config.block_count = 60;
  config.max_num_batched_tokens = 24;
  EngineHarness h(config, model());
  std::vector<EngineRequest> requests;
  std::deque<Collector> outs;
  for (int i = 0; i < 40; ++i) {
    requests.push_back(varied(i));
    ASSERT_TRUE(h.engine->submit(requests.back(), outs.emplace_back().sink()).ok());
  }
  int changed = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    const EngineRequest& r = requests[i];
    ASSERT_TRUE(outs[i].wait_end()) << i;
    EXPECT_EQ(outs[i].ids(), h.model.reference(r.prompt, r.sampling, r.max_new_count, r.guidance)) << i;
    EXPECT_EQ(outs[i].last().usage.prompt_tokens, static_cast<int64_t>(r.prompt.size()))
        << "without the negative prompt's";
    changed += outs[i].ids() != h.model.reference(r.prompt, r.sampling, r.max_new_count);
  }
  EXPECT_GT(changed, 20);
  EXPECT_THAT(h.metrics.text(),
              Not(HasSubstr("vllm:num_preemptions_total{engine=\"0\",model_name=\"fake\"} 0\n")));
  EXPECT_TRUE(h.wait_idle());
  EXPECT_EQ(h.engine->load().kv_blocks_free, 60);
}

TEST_P(GuidedEngine, AResumedAnswerGoesOnAsItWould) {
  EngineHarness h(EngineHarness::default_config(), model());
  for (int i = 1; i < 9; ++i) {
    const EngineRequest r = varied(i);
    const auto whole = h.model.reference(r.prompt, r.sampling, r.max_new_count, r.guidance);
    for (const int cut : {1, 7}) {
      EngineRequest rest = r;
      rest.emitted.assign(whole.begin(), whole.begin() + cut);
      if (rest.logprobs) rest.unsent_logprobs = 1;
      Collector out;
      ASSERT_TRUE(h.engine->submit(rest, out.sink()).ok());
      ASSERT_TRUE(out.wait_end());
      std::vector<TokenId> all = rest.emitted;
      const std::vector<TokenId> ids = out.ids();
      all.insert(all.end(), ids.begin(), ids.end());
      EXPECT_EQ(all, whole) << i << ", cut at " << cut;
    }
  }
}

// They are those of the guided logits, the one that was drawn before a stream broke off included.
TEST_P(GuidedEngine, LogprobsAreOfTheGuidedLogits) {
  EngineHarness h(EngineHarness::default_config(), model());
  EngineRequest r = h.request(h.prompt(0, 12), 6);
  r.guidance = Guidance{2.5, h.prompt(9, 7)};
  r.logprobs = 1;
  const auto whole = h.model.reference(r.prompt, r.sampling, 6, r.guidance);
  for (const bool resumed : {false, true}) {
    EngineRequest asked = r;
    if (resumed) asked.emitted = {whole[0], whole[1]}, asked.unsent_logprobs = 1;
    Collector out;
    ASSERT_TRUE(h.engine->submit(asked, out.sink()).ok());
    ASSERT_TRUE(out.wait_end());
    const size_t first = resumed ? 1 : 0;
    const auto scores = out.logprobs();
    ASSERT_GE(scores.size(), 4u);
    for (size_t i = 0; i < scores.size(); ++i) {
      std::vector<TokenId> read = r.prompt, negative = r.guidance->negative_prompt;
      read.insert(read.end(), whole.begin(), whole.begin() + static_cast<ptrdiff_t>(first + i));
      negative.insert(negative.end(), whole.begin(), whole.begin() + static_cast<ptrdiff_t>(first + i));
      std::vector<float> logits = h.model.logits_after(read);
      guide_logits(logits, h.model.logits_after(negative), 2.5);
      EXPECT_FLOAT_EQ(*scores[i].logprob, log_probability(logits, whole[first + i])) << resumed << i;
    }
  }
}

TEST_P(GuidedEngine, BannedStringsTakeTokensOfBothBack) {
  EngineHarness h(EngineHarness::default_config(), model());
  int banned = 0;
  for (int i = 1; i < 40; ++i) {
    EngineRequest r = h.request(h.prompt(i, 14), 12);
    r.guidance = Guidance{1.75, h.prompt(i + 40, 9)};
    const auto free = h.model.reference(r.prompt, r.sampling, 12, r.guidance);
    const std::string word = h.decode({free[4], free[5]});
    if (word.size() < 2 || word.find("\xEF\xBF\xBD") != std::string::npos) continue;
    r.banned_strings = {word};
    Collector out, again;
    ASSERT_TRUE(h.engine->submit(r, out.sink()).ok());
    ASSERT_TRUE(out.wait_end());
    EXPECT_EQ(out.text().find(word), std::string::npos);
    EXPECT_NE(out.ids(), free);
    // The answer behind the word's place is as if that had been banned from the start.
    const auto ids = out.ids();
    size_t same = 0;
    while (same < 12 && ids[same] == free[same]) ++same;
    ASSERT_LE(same, 5u);
    std::vector<TokenId> read = r.prompt;
    read.insert(read.end(), ids.begin(), ids.begin() + static_cast<ptrdiff_t>(same + 1));
    EngineRequest rest = r;
    rest.emitted.assign(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(same + 1));
    ASSERT_TRUE(h.engine->submit(rest, again.sink()).ok());
    ASSERT_TRUE(again.wait_end());
    std::vector<TokenId> all = rest.emitted;
    const auto more = again.ids();
    all.insert(all.end(), more.begin(), more.end());
    EXPECT_EQ(all, ids);
    ++banned;
  }
  EXPECT_GT(banned, 3);
}

TEST_P(GuidedEngine, ANegativePromptOfNoNumbersFailsItsRequestAlone) {
  EngineHarness h(EngineHarness::default_config(), model());
  EngineRequest bad = h.request(h.prompt(0, 12), 6), good = bad;
  bad.guidance = Guidance{2, {FakeKv::kNanToken, 301}};
  good.guidance = Guidance{2, {300, 301}};
  Collector failed, answered;
  ASSERT_TRUE(h.engine->submit(bad, failed.sink()).ok());
  ASSERT_TRUE(h.engine->submit(good, answered.sink()).ok());
  ASSERT_TRUE(failed.wait_end() && answered.wait_end());
  EXPECT_EQ(failed.last().error.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(answered.ids(), h.model.reference(good.prompt, good.sampling, 6, good.guidance));
}

TEST_P(GuidedEngine, ACancelledRequestLeavesNothing) {
  EngineHarness h(EngineHarness::default_config(), model());
  EngineRequest r = h.request(h.prompt(0, 12), 300);
  r.guidance = Guidance{2, h.prompt(3, 9)};
  r.ignore_eos = true;
  Collector out;
  const auto id = h.engine->submit(r, out.sink());
  ASSERT_TRUE(id.ok());
  ASSERT_TRUE(out.wait_pieces(3));
  h.engine->cancel(*id);
  EXPECT_TRUE(h.wait_idle());
  EXPECT_EQ(h.engine->load().kv_blocks_free, 256);
}

TEST_P(GuidedEngine, WhatCannotFitIsRefusedOrCut) {
  EngineHarness h(EngineHarness::default_config(), model());
  EngineRequest r = h.request(h.prompt(0, 300), 90);
  r.guidance = Guidance{2, h.prompt(3, 200)};
  Collector out;
  SchedulerConfig config = EngineHarness::default_config();
  config.block_count = 150;  // the prompts and 49 tokens behind each take 149
  EngineHarness small(config, model());
  EXPECT_EQ(small.engine->submit(r, out.sink()).status().code(), absl::StatusCode::kInvalidArgument);
  r.spec.cut_to_fit = true;
  ASSERT_TRUE(small.engine->submit(r, out.sink()).ok());
  ASSERT_TRUE(out.wait_end());
  EXPECT_EQ(out.ids(), small.model.reference(r.prompt, r.sampling, 49, r.guidance));
}

TEST_P(GuidedEngine, AFailedStepFailsTheRequest) {
  std::atomic<int> count = 0;
  EngineHarness h(model(
      [&count](const Batch&) { return ++count == 2 ? absl::InternalError("broken") : absl::OkStatus(); }));
  EngineRequest r = h.request(h.prompt(0, 4), 6);
  r.guidance = Guidance{2, h.prompt(3, 150)};  // whose prompt alone is in the step
  Collector out;
  ASSERT_TRUE(h.engine->submit(r, out.sink()).ok());
  ASSERT_TRUE(out.wait_end());
  EXPECT_EQ(out.last().error.message(), "broken");
  EXPECT_TRUE(h.wait_idle());
  EXPECT_EQ(h.engine->load().kv_blocks_free, 256);
}

}  // namespace troupe::guided_engine_test
