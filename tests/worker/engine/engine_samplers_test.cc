// Samplers that read the history, chains and mirostat's state through the whole engine: an answer is a pure
// function of its request, whatever else is in the batch, cached, preempted or resumed.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>

#include "tests/worker/engine_harness.h"

namespace troupe::engine_samplers_test {

using testing::Collector;
using testing::EngineHarness;
using ::testing::HasSubstr;

using EngineSamplers = testing::WaitsOrRunsAhead;
INSTANTIATE_TEST_SUITE_P(Runner, EngineSamplers, ::testing::Bool(), EngineSamplers::name);

// One or more of all samplers, by number.
SamplingParams varied(int i, const std::vector<TokenId>& alphabet) {
  SamplingParams sampling;
  sampling.seed = static_cast<uint64_t>(i + 1);
  HistorySamplers& history = sampling.history;
  if (i % 2 == 0) {
    history.dry = {.multiplier = 2.0f, .allowed_length = 1, .range = i % 4 == 0 ? 0 : 30};
    history.dry.breakers = std::make_shared<const DryBreakers>(
        std::vector<std::vector<int32_t>>{{alphabet[2]}, {alphabet[5], alphabet[6]}});
  }
  if (i % 3 == 0) {
    sampling.repetition_penalty = 1.5f;
    history.repetition_range = i % 6 == 0 ? 12 : 0;
    history.repetition_slope = 0.5f;
    history.repetition_decay = i % 9 == 0 ? 10 : 0;
  }
  if (i % 4 == 1)
    history.banned_sequences = {{alphabet[0], alphabet[1]}, {alphabet[4], alphabet[4], alphabet[7]}};
  if (i % 5 == 2) history.banned = {alphabet[8], alphabet[9]};
  if (i % 5 == 3) {
    history.min_tokens = 6;
    history.banned_early = {alphabet[10], alphabet[11], alphabet[12]};
  }
  if (i % 7 < 4) sampling.chain.emplace();
  if (i % 7 == 0) sampling.chain->typical_p = 0.8f;
  if (i % 7 == 1) sampling.chain->mirostat = 2, sampling.chain->mirostat_tau = 2.0f;
  if (i % 7 == 2) sampling.chain->mirostat = 1, sampling.chain->mirostat_tau = 3.0f;
  if (i % 7 == 3) {
    sampling.chain->xtc_probability = 0.5f;
    std::swap(sampling.chain->order[0], sampling.chain->order[7]);  // penalties behind cuts
    sampling.top_p = 0.9f;
  }
  return sampling;
}

TEST_P(EngineSamplers, AnswersDoNotDependOnBatchCacheOrPreemption) {
  SchedulerConfig config = EngineHarness::default_config();
  config.block_count = 60;  // 240 tokens; fifty requests need up to 90 each
  config.max_num_batched_tokens = 24;
  EngineHarness h(config, model());
  const auto alphabet = EngineHarness::alphabet(*h.tokenizer, false);
  std::vector<EngineRequest> requests;
  std::deque<Collector> outs;
  for (int i = 0; i < 50; ++i) {
    std::vector<TokenId> prompt = h.prompt(i % 4, 20 + (i % 4) * 10);
    for (int j = 0; j < 6 + i % 13; ++j) prompt.push_back(alphabet[static_cast<size_t>(i * 3 + j) % 12]);
    EngineRequest& r = requests.emplace_back(h.request(prompt, 10 + i % 17, 1));
    r.sampling = varied(i, alphabet);
    if (i % 4 == 0) r.logprobs = 2;
    ASSERT_TRUE(h.engine->submit(r, outs.emplace_back().sink()).ok());
  }
  int changed = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    const EngineRequest& r = requests[i];
    ASSERT_TRUE(outs[i].wait_end()) << i;
    EXPECT_EQ(outs[i].ids(), h.model.reference(r.prompt, r.sampling, r.max_new_count)) << i;
    SamplingParams plain;
    plain.seed = r.sampling.seed;
    changed += outs[i].ids() != h.model.reference(r.prompt, plain, r.max_new_count);
  }
  EXPECT_GT(changed, 35);
  EXPECT_THAT(h.metrics.text(),
              Not(HasSubstr("vllm:num_preemptions_total{engine=\"0\",model_name=\"fake\"} 0\n")));
}

// Cut anywhere and gone on with, an answer is what it would have been; with log-probabilities, too.
TEST_P(EngineSamplers, AResumedAnswerGoesOnAsItWould) {
  EngineHarness h(EngineHarness::default_config(), model());
  const auto alphabet = EngineHarness::alphabet(*h.tokenizer, false);
  for (int i = 0; i < 21; ++i) {
    std::vector<TokenId> prompt = h.prompt(i % 4, 20);
    for (int j = 0; j < 12; ++j) prompt.push_back(alphabet[static_cast<size_t>(i * 3 + j) % 12]);
    EngineRequest r = h.request(prompt, 16, 1);
    r.sampling = varied(i, alphabet);
    const std::vector<TokenId> whole = h.model.reference(r.prompt, r.sampling, r.max_new_count);
    for (const size_t cut : {size_t{1}, size_t{7}, size_t{15}}) {
      EngineRequest rest = r;
      rest.emitted.assign(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(cut));
      if (i % 3 == 0) {
        rest.logprobs = 1;
        rest.unsent_logprobs = 1;
      }
      Collector out;
      ASSERT_TRUE(h.engine->submit(rest, out.sink()).ok());
      ASSERT_TRUE(out.wait_end());
      std::vector<TokenId> all = rest.emitted;
      const std::vector<TokenId> ids = out.ids();
      all.insert(all.end(), ids.begin(), ids.end());
      EXPECT_EQ(all, whole) << i << ", cut at " << cut;
      EXPECT_EQ(out.last().usage.completion_tokens, 16);
      if (rest.logprobs) {
        EXPECT_LE(out.logprobs().size(), 16 - cut + 1);
        EXPECT_GE(out.logprobs().size(), 16 - cut);
      }
    }
  }
}

}  // namespace troupe::engine_samplers_test
