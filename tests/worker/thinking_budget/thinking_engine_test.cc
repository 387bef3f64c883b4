// Bounded thoughts, through the whole engine: every answer is compared with one that is drawn token by token,
// whatever else is in the batch, cached, preempted, taken back, resumed, or planned ahead.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <limits>

#include "common/json/json.h"
#include "tests/worker/engine_harness.h"
#include "worker/input/grammar_cache.h"
#include "worker/text/tokenizer/banned_strings.h"

namespace troupe {
namespace thinking_engine_test {

using testing::Collector;
using testing::EngineHarness;

// In a thought that the prompt has opened.
std::shared_ptr<const ThinkingLimit> limit_of(const EngineHarness& h, int32_t count) {
  ThinkingLimit limit;
  limit.token_count_max = count;
  limit.syntax.thoughts = thought_form("qwen3");
  limit.syntax.in_thought = true;
  limit.end = thought_end_tokens(*h.tokenizer, *limit.syntax.thoughts);
  return std::make_shared<const ThinkingLimit>(std::move(limit));
}

// The token that must be at the end of `answer`, if any. (No model here ends a thought itself.)
std::optional<TokenId> forced_behind(const EngineRequest& r, const std::vector<TokenId>& answer) {
  if (r.thinking_limit == nullptr) return std::nullopt;
  const std::vector<TokenId>& end = r.thinking_limit->end;
  const auto count = static_cast<size_t>(r.thinking_limit->token_count_max);
  if (answer.size() < count) return std::nullopt;
  // A mark may begin in the thought's last tokens.
  size_t begun = std::min(end.size() - 1, count);
  while (!std::equal(end.begin(), end.begin() + static_cast<ptrdiff_t>(begun),
                     answer.begin() + static_cast<ptrdiff_t>(count - begun)))
    --begun;
  const size_t at = begun + answer.size() - count;
  return at < end.size() ? std::optional<TokenId>(end[at]) : std::nullopt;
}

struct Reference {
  std::vector<TokenId> ids;
  int rewinds = 0;
};

// With mirostat's state, which is one of the draws alone.
TokenId draw(const EngineHarness& h, const EngineRequest& r, const std::vector<TokenId>& answer,
             std::span<const TokenId> banned, float& mu) {
  std::vector<TokenId> context = r.prompt;
  context.insert(context.end(), answer.begin(), answer.end());
  std::vector<float> logits = h.model.logits_after(context);
  for (const TokenId token : banned)
    logits[static_cast<size_t>(token)] = -std::numeric_limits<float>::infinity();
  SampleRow row{.draw = draw_params(r.sampling, answer.size())};
  const auto adjuster = LogitAdjuster::make(r.sampling, r.prompt);
  if (adjuster != nullptr) {
    for (const TokenId token : answer) adjuster->add_emitted(token);
    row.penalties = adjuster->penalties();
    row.edits = adjuster->edits(answer.size());
  }
  if (r.sampling.chain) row.chain = &*r.sampling.chain;
  row.mirostat_mu = &mu;
  return edit_and_draw(logits, row);
}

Reference reference(const EngineHarness& h, const EngineRequest& r) {
  BannedStrings strings(h.tokenizer.get(), r.banned_strings);
  Reference made;
  size_t settled = 0;
  float mu = r.sampling.chain ? first_mirostat_mu(*r.sampling.chain) : 0;
  while (made.ids.size() < static_cast<size_t>(r.max_new_count)) {
    if (const auto forced = forced_behind(r, made.ids)) {
      made.ids.push_back(*forced);
      strings.release_all();
      strings.append_sent(*forced);
      settled = made.ids.size();
      continue;
    }
    made.ids.push_back(draw(h, r, made.ids, strings.banned(), mu));
    if (made.ids.back() == EngineHarness::kEos) break;
    const BannedStrings::Verdict verdict = strings.push(made.ids.back());
    settled += verdict.released;
    if (!verdict.rewinds) continue;
    ++made.rewinds;
    made.ids.resize(settled + verdict.kept);
  }
  return made;
}

using ThinkingEngine = testing::WaitsOrRunsAhead;
INSTANTIATE_TEST_SUITE_P(Runner, ThinkingEngine, ::testing::Bool(), ThinkingEngine::name);

TEST_P(ThinkingEngine, ThoughtsEndAtTheirBoundWhateverElseIsComputed) {
  SchedulerConfig config = EngineHarness::default_config();
  config.block_count = 60;  // few: some requests are preempted
  config.max_num_batched_tokens = 24;
  std::deque<Collector> outs;  // they outlive the engine
  EngineHarness h(config, model());
  std::vector<EngineRequest> requests;
  for (int i = 0; i < 60; ++i) {
    EngineRequest& r = requests.emplace_back(
        h.request(h.prompt(i % 4, 20 + i % 9), 12 + i % 20, static_cast<uint64_t>(i % 7)));
    if (i % 8 != 0) r.thinking_limit = limit_of(h, i % 11);
    if (i % 3 == 0) r.sampling.repetition_penalty = 1.3f;
    if (i % 4 == 0) r.sampling.frequency_penalty = 0.5f;
    if (i % 5 == 0) r.logprobs = 1;
    if (i % 10 == 3) r.sampling.chain = SamplerChain{.mirostat = 2};
    if (i % 10 == 7) r.sampling.history.dry.multiplier = 2;
    if (i % 10 == 9) r.sampling.logit_bias = {{limit_of(h, 0)->end.front(), -100.0f}};
    ASSERT_TRUE(h.engine->submit(r, outs.emplace_back().sink()).ok());
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(i);
    ASSERT_TRUE(outs[i].wait_end());
    const Reference expected = reference(h, requests[i]);
    EXPECT_EQ(outs[i].ids(), expected.ids);
    EXPECT_EQ(outs[i].text(), h.decode(expected.ids));
    EXPECT_EQ(outs[i].last().usage.completion_tokens, static_cast<int64_t>(expected.ids.size()));
    const size_t scored = requests[i].logprobs ? expected.ids.size() : 0;
    EXPECT_EQ(outs[i].logprobs().size(), scored);
  }
  ASSERT_TRUE(h.wait_idle());
  EXPECT_EQ(h.engine->load().kv_blocks_free, h.engine->load().kv_blocks_total);
}

// Before the bound, at it, within the mark, and behind it; with mirostat all that was sent is drawn again.
TEST_P(ThinkingEngine, AnswersResumeAtEveryCut) {
  std::deque<Collector> outs;  // they outlive the engine
  EngineHarness h(model());
  for (const bool has_state : {false, true}) {
    EngineRequest whole = h.request(h.prompt(3, 12), 20, 5);
    whole.thinking_limit = limit_of(h, 6);
    if (has_state) whole.sampling.chain = SamplerChain{.mirostat = 2};
    const Reference expected = reference(h, whole);
    for (size_t cut = 0; cut < expected.ids.size(); ++cut) {
      SCOPED_TRACE(cut);
      const auto rest = expected.ids.begin() + static_cast<ptrdiff_t>(cut);
      EngineRequest r = whole;
      r.emitted.assign(expected.ids.begin(), rest);
      r.unsent_logprobs = cut > 2 && cut % 2 == 0 ? 2 : 0;
      if (r.unsent_logprobs > 0) r.logprobs = 0;
      Collector& out = outs.emplace_back();
      ASSERT_TRUE(h.engine->submit(r, out.sink()).ok());
      ASSERT_TRUE(out.wait_end());
      EXPECT_EQ(out.ids(), std::vector<TokenId>(rest, expected.ids.end()));
    }
  }
}

// Tokens that are taken back are no tokens of the thought; the mark itself stays, whatever is banned.
TEST_P(ThinkingEngine, TokensThatAreTakenBackDoNotCount) {
  std::deque<Collector> outs;  // they outlive the engine
  EngineHarness h(model());
  int rewinds = 0;
  for (int i = 0; i < 12; ++i) {
    SCOPED_TRACE(i);
    EngineRequest r = h.request(h.prompt(i % 4, 20), 30, 1 + static_cast<uint64_t>(i));
    const std::vector<TokenId> free = h.model.reference(r.prompt, r.sampling, 30);
    for (size_t at = 1; at < 12; at += 3) {
      const auto first = free.begin() + static_cast<ptrdiff_t>(at);
      const std::string text = h.decode({first, first + 2});
      if (text.find("\xEF\xBF\xBD") == std::string::npos && !text.empty()) r.banned_strings.push_back(text);
    }
    r.banned_strings.emplace_back("think");
    r.thinking_limit = limit_of(h, 3 + i % 6);
    Collector& out = outs.emplace_back();
    ASSERT_TRUE(h.engine->submit(r, out.sink()).ok());
    ASSERT_TRUE(out.wait_end());
    const Reference expected = reference(h, r);
    rewinds += expected.rewinds;
    EXPECT_EQ(out.ids(), expected.ids);
  }
  EXPECT_GT(rewinds, 10);
}

TEST_P(ThinkingEngine, AGrammarBeginsBehindAForcedEnd) {
  std::deque<Collector> outs;  // they outlive the engine
  EngineHarness::Model wanted = model();
  wanted.emits_eos = wanted.emits_all = true;
  EngineHarness h(std::move(wanted));
  GrammarCache cache(h.tokenizer.get(), h.tokenizer->vocab_size(), {EngineHarness::kEos});
  using grammar::Format;
  const Format number{.kind = Format::Kind::kRegex, .text = "[0-9]{3}x"};
  const auto compiled = cache.find(Format::sequence({Format::until("</think>", {"</think>"}), number}));
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  for (const uint64_t seed : {0, 1, 2}) {
    for (const int32_t count : {0, 1, 7}) {
      EngineRequest r = h.request(h.prompt(2, 12), 60, seed);
      r.grammar.compiled = *compiled;
      r.thinking_limit = limit_of(h, count);
      Collector& out = outs.emplace_back();
      ASSERT_TRUE(h.engine->submit(r, out.sink()).ok());
      ASSERT_TRUE(out.wait_end());
      ASSERT_TRUE(out.last().error.ok()) << out.last().error;
      const std::vector<TokenId> ids = out.ids();
      const std::vector<TokenId>& end = r.thinking_limit->end;
      ASSERT_GT(ids.size(), static_cast<size_t>(count) + end.size());
      EXPECT_TRUE(std::equal(end.begin(), end.end(), ids.begin() + count));
      const std::string text = out.text();
      const std::string said = text.substr(text.find("</think>") + 8);
      EXPECT_EQ(said.size(), 4u) << text;
      EXPECT_EQ(said.find_first_not_of("0123456789"), 3u) << text;
      EXPECT_EQ(out.last().finish, FinishReason::kStop);
    }
  }
}

}  // namespace thinking_engine_test
}  // namespace troupe
