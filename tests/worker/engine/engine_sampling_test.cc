// Sampling options through the whole engine: penalties, several choices, log-probabilities, prompt scores.
// Every answer is compared with its reference, a pure function, whatever else is in the batch, cached,
// chunked or preempted.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>

#include "tests/worker/engine_harness.h"
#include "worker/model/log_softmax.h"

namespace troupe {
namespace engine_sampling_test {

using testing::Collector;
using testing::EngineHarness;
using ::testing::HasSubstr;

SchedulerConfig tight_config() {
  SchedulerConfig config = EngineHarness::default_config();
  config.block_count = 60;  // 240 tokens; fifty requests need up to 90 each
  config.max_num_batched_tokens = 24;
  return config;
}

// Varies every parameter, by number.
void vary(SamplingParams& sampling, int i, const std::vector<TokenId>& alphabet) {
  if (i % 3 == 0) sampling.repetition_penalty = 1.4f;
  if (i % 4 == 1) sampling.presence_penalty = 1.2f;
  if (i % 5 == 2) sampling.frequency_penalty = 0.8f;
  if (i % 7 == 3) sampling.logit_bias = {{alphabet[3], 2.0f}, {alphabet[9], -100.0f}};
  if (i % 6 == 4) sampling.top_k = 7;
  if (i % 6 == 5) sampling.min_p = 0.2f;
}

using EngineSampling = testing::WaitsOrRunsAhead;
INSTANTIATE_TEST_SUITE_P(Runner, EngineSampling, ::testing::Bool(), EngineSampling::name);

TEST_P(EngineSampling, PenaltiesDoNotDependOnBatchCacheOrPreemption) {
  EngineHarness h(tight_config(), model());
  const auto alphabet = EngineHarness::alphabet(*h.tokenizer, false);
  std::vector<EngineRequest> requests;
  std::deque<Collector> outs;
  for (int i = 0; i < 50; ++i) {
    // Prompts of the model's own alphabet, so that penalties of the prompt take effect.
    std::vector<TokenId> prompt = h.prompt(i % 4, 20 + (i % 4) * 10);
    for (int j = 0; j < 6 + i % 13; ++j) prompt.push_back(alphabet[static_cast<size_t>(i * 3 + j) % 40]);
    EngineRequest& r = requests.emplace_back(h.request(prompt, 10 + i % 17, static_cast<uint64_t>(i % 5)));
    vary(r.sampling, i, alphabet);
    if (i % 4 == 0) r.logprobs = 2;  // reporting changes nothing
    if (i % 8 == 0) r.prompt_logprobs = true;
    ASSERT_TRUE(h.engine->submit(r, outs.emplace_back().sink()).ok());
  }
  int changed = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    const EngineRequest& r = requests[i];
    ASSERT_TRUE(outs[i].wait_end()) << i;
    EXPECT_EQ(outs[i].ids(), h.model.reference(r.prompt, r.sampling, r.max_new_count)) << i;
    SamplingParams plain;
    plain.seed = r.sampling.seed;
    plain.temperature = r.sampling.temperature;
    changed += outs[i].ids() != h.model.reference(r.prompt, plain, r.max_new_count);
  }
  EXPECT_GT(changed, 20);
  EXPECT_THAT(h.metrics.text(),
              Not(HasSubstr("vllm:num_preemptions_total{engine=\"0\",model_name=\"fake\"} 0\n")));
}

std::vector<EngineRequest> choices(const EngineRequest& request, size_t count) {
  std::vector<EngineRequest> group(count, request);
  for (size_t i = 0; i < count; ++i) {
    group[i].sampling.seed = choice_seed(request.sampling.seed, static_cast<uint32_t>(i));
  }
  return group;
}

// Collects a group's pieces, by choice. Outlives the engine's use of its sink.
struct Group {
  explicit Group(size_t count) : outs(count) {
    for (Collector& out : outs) sinks.push_back(out.sink());
  }
  EngineSink sink() {
    return [this](EngineOutput piece) { sinks[static_cast<size_t>(piece.choice)](std::move(piece)); };
  }
  std::deque<Collector> outs;
  std::vector<EngineSink> sinks;
};

TEST_P(EngineSampling, ChoicesComputeTheirPromptOnce) {
  EngineHarness h(model());
  const auto request = h.request(h.prompt(3, 61), 12, /*seed=*/8);
  Group group(5);
  ASSERT_TRUE(h.engine->submit(choices(request, 5), group.sink()).ok());
  for (size_t i = 0; i < 5; ++i) {
    ASSERT_TRUE(group.outs[i].wait_end());
    SamplingParams sampling = request.sampling;
    sampling.seed = choice_seed(8, static_cast<uint32_t>(i));
    EXPECT_EQ(group.outs[i].ids(), h.model.reference(request.prompt, sampling, 12)) << i;
    EXPECT_EQ(group.outs[i].last().usage.cached_tokens, i == 0 ? 0 : 60) << i;
  }
  EXPECT_EQ(group.outs[0].ids(), h.model.reference(request.prompt, request.sampling, 12)) << "the plain seed";
  EXPECT_NE(group.outs[1].ids(), group.outs[0].ids());
  ASSERT_TRUE(h.wait_idle());
  // 61 once; then one token of the prompt for each; 11 fed back for each.
  EXPECT_EQ(h.engine->load().work_tokens_total, 61 + 4 * 1 + 5 * 11);
}

TEST_P(EngineSampling, AdmitsGroupWholeOrNotAtAll) {
  SchedulerConfig config = EngineHarness::default_config();
  config.max_num_seqs = 2;
  config.max_waiting = 4;
  EngineHarness h(config, model());
  Group group(7);
  EXPECT_EQ(h.engine->submit(choices(h.request(h.prompt(1, 9), 4), 7), group.sink()).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(h.engine->idle());
  auto bad = choices(h.request(h.prompt(1, 9), 4), 3);
  bad.back().prompt.clear();
  EXPECT_EQ(h.engine->submit(std::move(bad), group.sink()).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(h.engine->idle());
  const auto ids = h.engine->submit(choices(h.request(h.prompt(1, 9), 300), 6), group.sink());
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(ids->size(), 6u);
  for (const RequestId id : *ids) h.engine->cancel(id);
  ASSERT_TRUE(h.wait_idle());
  EXPECT_EQ(h.engine->load().kv_blocks_free, h.engine->load().kv_blocks_total);
}

// Compares the answer's tokens with the model's own logits.
void expect_logprobs(const EngineHarness& h, std::vector<TokenId> context, const std::vector<TokenId>& ids,
                     const std::vector<TokenLogprob>& told, size_t top_count) {
  ASSERT_EQ(told.size(), ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::vector<float> logits = h.model.logits_after(context);
    const LogSoftmax softmax(logits);
    EXPECT_EQ(told[i].bytes, h.tokenizer->token_bytes(ids[i], false)) << i;
    EXPECT_EQ(told[i].logprob, softmax.of(ids[i])) << i;
    const auto best = softmax.best(top_count);
    ASSERT_EQ(told[i].top.size(), top_count);
    for (size_t k = 0; k < top_count; ++k) {
      EXPECT_EQ(told[i].top[k].logprob, best[k].logprob);
      EXPECT_EQ(told[i].top[k].bytes, h.tokenizer->token_bytes(best[k].id, false));
    }
    context.push_back(ids[i]);
  }
}

TEST_P(EngineSampling, LogprobsComeFromRawLogitsDespitePenalties) {
  EngineHarness h(model());
  for (int i = 0; i < 8; ++i) {
    EngineRequest request = h.request(h.prompt(i, 30), 15, static_cast<uint64_t>(i));
    vary(request.sampling, i, EngineHarness::alphabet(*h.tokenizer, false));
    request.logprobs = i % 4;
    Collector out;
    ASSERT_TRUE(h.engine->submit(request, out.sink()).ok());
    ASSERT_TRUE(out.wait_end());
    expect_logprobs(h, request.prompt, out.ids(), out.logprobs(), static_cast<size_t>(i % 4));
    EXPECT_TRUE(out.prompt_logprobs().empty());
  }
}

// Each piece has the log-probabilities of the tokens whose text it ends, and no others.
TEST_P(EngineSampling, LogprobsArriveWithTheirText) {
  EngineHarness h(model());
  const auto prompt = h.prompt(6, 12);
  const auto ids = h.model.reference(prompt, {.temperature = 0}, 80);
  const std::string text = h.decode(ids);
  for (const std::string& stop : {std::string("never said"), text.substr(text.size() / 2, 4)}) {
    EngineRequest request = h.request(prompt, 80);
    request.logprobs = 0;
    request.stop_strings = {stop};
    Collector out;
    std::string said, bytes;
    auto sink = [&, inner = out.sink()](EngineOutput piece) {
      said += piece.text;
      for (const TokenLogprob& token : piece.logprobs) bytes += token.bytes;
      // Never ahead of the text (in which an invalid byte takes three).
      if (piece.finish == FinishReason::kNone) {
        EXPECT_LE(bytes.size(), said.size());
      }
      inner(std::move(piece));
    };
    ASSERT_TRUE(h.engine->submit(request, sink).ok());
    ASSERT_TRUE(out.wait_end());
    const size_t end = std::min(text.find(stop), text.size());
    EXPECT_EQ(out.text(), text.substr(0, end));
    // All of the text, and nothing after the token that a stop string cut.
    const auto first_ids = [&ids](size_t count) {
      return std::vector<TokenId>(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(count));
    };
    const size_t count = out.logprobs().size();
    EXPECT_EQ(count == ids.size(), stop == "never said");
    std::string expected;
    for (const TokenId id : first_ids(count)) expected += h.tokenizer->token_bytes(id, true);
    EXPECT_EQ(bytes, expected);
    EXPECT_TRUE(h.tokenizer->decode(first_ids(count), true).starts_with(out.text()));
    EXPECT_FALSE(h.tokenizer->decode(first_ids(count - 2), true).starts_with(out.text()));
    EXPECT_EQ(out.logprobs().front().text_offset, 0);
  }
}

TEST_P(EngineSampling, OmitsLogprobsOfTheTokenThatEndsTheAnswer) {
  EngineHarness h(model());
  const auto prompt = h.prompt(9, 12);
  const auto expected = h.model.reference(prompt, {.temperature = 0}, 30);
  EngineRequest request = h.request(prompt, 30);
  request.logprobs = 1;
  request.stop_token_ids = {expected[7]};
  Collector out;
  ASSERT_TRUE(h.engine->submit(request, out.sink()).ok());
  ASSERT_TRUE(out.wait_end());
  EXPECT_EQ(out.logprobs().size() + 1, out.ids().size());
}

TEST_P(EngineSampling, ScoresPromptInChunksCachedOrPreempted) {
  EngineHarness h(tight_config(), model());
  std::vector<EngineRequest> requests;
  std::deque<Collector> outs;
  for (int i = 0; i < 24; ++i) {
    EngineRequest& r =
        requests.emplace_back(h.request(h.prompt(i % 3, 40 + i), 20, static_cast<uint64_t>(i)));
    r.logprobs = 2;
    r.prompt_logprobs = i % 2 == 0;
    r.prompt_only = i % 6 == 0;
    if (r.prompt_only) r.max_new_count = 1;
    ASSERT_TRUE(h.engine->submit(r, outs.emplace_back().sink()).ok());
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    const EngineRequest& r = requests[i];
    ASSERT_TRUE(outs[i].wait_end());
    const auto told = outs[i].prompt_logprobs();
    if (r.prompt_logprobs) {
      ASSERT_EQ(told.size(), r.prompt.size()) << i;
      EXPECT_FALSE(told.front().logprob.has_value());
      EXPECT_EQ(told.front().bytes, h.tokenizer->token_bytes(r.prompt.front(), false));
      expect_logprobs(h, {r.prompt.front()}, {r.prompt.begin() + 1, r.prompt.end()},
                      {told.begin() + 1, told.end()}, 2);
      EXPECT_EQ(outs[i].last().usage.cached_tokens, 0);
    } else {
      EXPECT_TRUE(told.empty());
    }
    const auto answer =
        r.prompt_only ? std::vector<TokenId>() : h.model.reference(r.prompt, r.sampling, r.max_new_count);
    EXPECT_EQ(outs[i].ids(), answer);
    EXPECT_EQ(outs[i].last().finish, FinishReason::kLength);
    EXPECT_EQ(outs[i].last().usage.completion_tokens, static_cast<int64_t>(answer.size()));
  }
  ASSERT_TRUE(h.wait_idle());
  EXPECT_EQ(h.engine->load().kv_blocks_free, h.engine->load().kv_blocks_total);
  EXPECT_THAT(h.metrics.text(),
              Not(HasSubstr("vllm:num_preemptions_total{engine=\"0\",model_name=\"fake\"} 0\n")));
}

// A fully cached prompt is scored all the same, and its computation serves the next one.
TEST_P(EngineSampling, ScoringSkipsTheCacheButFillsIt) {
  EngineHarness h(model());
  const auto prompt = h.prompt(2, 41);
  const int64_t cached[] = {0, 0, 40};
  for (int i = 0; i < 3; ++i) {
    EngineRequest request = h.request(prompt, 3);
    request.logprobs = 0;
    request.prompt_logprobs = i < 2;
    Collector out;
    ASSERT_TRUE(h.engine->submit(request, out.sink()).ok());
    ASSERT_TRUE(out.wait_end());
    EXPECT_EQ(out.prompt_logprobs().size(), i < 2 ? 41u : 0u);
    EXPECT_EQ(out.last().usage.cached_tokens, cached[i]);
  }
}

TEST_P(EngineSampling, DifferentSaltsShareNothing) {
  EngineHarness h(model());
  const auto prompt = h.prompt(4, 50);
  const Hash128 salts[] = {{}, {1, 2}, {1, 3}, {1, 2}, {}};
  const int64_t cached[] = {0, 0, 0, 49, 49};
  for (size_t i = 0; i < std::size(salts); ++i) {
    EngineRequest request = h.request(prompt, 3);
    request.spec.salt = salts[i];
    Collector out;
    ASSERT_TRUE(h.engine->submit(request, out.sink()).ok());
    ASSERT_TRUE(out.wait_end());
    EXPECT_EQ(out.last().usage.cached_tokens, cached[i]) << i;
  }
}

}  // namespace engine_sampling_test
}  // namespace troupe
