// Forced tokens through the whole engine: they cost no steps of their own, and an answer ends, is cut,
// cancelled, preempted and resumed within a run of them as if each had been drawn.

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <limits>

#include "common/json/json.h"
#include "tests/worker/engine_harness.h"
#include "worker/input/grammar_cache.h"

namespace troupe::forced_engine_test {

using grammar::Format;
using testing::Collector;
using testing::EngineHarness;

constexpr std::string_view kSheet =
    R"({"type":"object","properties":{"current_emotion":{"enum":["calm","angry"]},)"
    R"("relationship_level":{"type":"integer","minimum":0,"maximum":9},)"
    R"("inner_thoughts":{"type":"string","maxLength":6},"leaves_the_scene":{"type":"boolean"}},)"
    R"("required":["current_emotion","relationship_level","inner_thoughts","leaves_the_scene"],)"
    R"("additionalProperties":false})";

class ForcedGrammarEngine : public testing::WaitsOrRunsAhead {
 protected:
  EngineHarness::Model model() {
    EngineHarness::Model wanted;
    wanted.runs_ahead = GetParam();
    wanted.emits_eos = wanted.emits_all = true;
    wanted.before_step = [this](const Batch&) {
      ++steps_;
      return absl::OkStatus();
    };
    return wanted;
  }
  static EngineRequest sheet(const EngineHarness& h, uint64_t seed) {
    static const auto* const compiled = [&] {
      static const std::unique_ptr<Tokenizer> tokenizer = EngineHarness::load_tokenizer();
      static GrammarCache cache(tokenizer.get(), h.tokenizer->vocab_size(), {EngineHarness::kEos});
      Format format{.kind = Format::Kind::kSchema, .text = std::string(kSheet)};
      return new std::shared_ptr<const grammar::CompiledGrammar>(cache.find(format).value());
    }();
    EngineRequest request = h.request(h.prompt(static_cast<TokenId>(seed), 12), 120, seed);
    request.grammar.compiled = *compiled;
    return request;
  }
  // Its answer, alone.
  Collector& answer(const EngineHarness& h, EngineRequest request) {
    Collector& out = outs_.emplace_back();
    EXPECT_TRUE(h.engine->submit(std::move(request), out.sink()).ok());
    EXPECT_TRUE(out.wait_end());
    EXPECT_TRUE(out.last().error.ok()) << out.last().error;
    EXPECT_EQ(out.last().usage.completion_tokens, static_cast<int64_t>(out.ids().size()));
    return out;
  }
  static std::vector<TokenId> first(const std::vector<TokenId>& ids, size_t count) {
    return {ids.begin(), ids.begin() + static_cast<ptrdiff_t>(count)};
  }

  std::atomic<int> steps_ = 0;
  std::deque<Collector> outs_;  // they outlive the engine
};
INSTANTIATE_TEST_SUITE_P(Runner, ForcedGrammarEngine, ::testing::Bool(), ForcedGrammarEngine::name);

TEST_P(ForcedGrammarEngine, RunsTakeOneStep) {
  EngineHarness h(model());
  int drawn_steps = 0, drawn_tokens = 0, tokens = 0;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    EngineRequest request = sheet(h, seed);
    Collector& out = answer(h, request);
    const auto value = parse_json(out.text());
    ASSERT_TRUE(value.ok()) << out.text();
    EXPECT_EQ(value->as_object().size(), 4u);
    EXPECT_EQ(out.text(), h.decode(out.ids()));
    tokens += static_cast<int>(out.ids().size());
    const int before = steps_;
    request.logprobs = 0;
    drawn_tokens += static_cast<int>(answer(h, request).ids().size());
    drawn_steps += steps_ - before;
  }
  const int steps = steps_ - drawn_steps;
  EXPECT_GE(drawn_steps, drawn_tokens) << "with log-probabilities each token has its step";
  EXPECT_LT(5 * steps, 4 * tokens) << steps << " steps for " << tokens << " tokens";
  EXPECT_LT(steps, drawn_steps);
}

TEST_P(ForcedGrammarEngine, AnAnswerEndsWithinARunWhereItHasItsLength) {
  EngineHarness h(model());
  const EngineRequest request = sheet(h, 3);
  const std::vector<TokenId> ids = answer(h, request).ids();
  for (size_t count = 1; count < ids.size(); ++count) {
    EngineRequest shorter = request;
    shorter.max_new_count = static_cast<int32_t>(count);
    Collector& out = answer(h, shorter);
    EXPECT_EQ(out.ids(), first(ids, count));
    EXPECT_EQ(out.last().finish, FinishReason::kLength);
    EXPECT_EQ(out.text(), h.decode(out.ids()));
  }
  EXPECT_TRUE(h.wait_idle());
}

TEST_P(ForcedGrammarEngine, AnAnswerEndsWithinARunAtAStop) {
  EngineHarness h(model());
  EngineRequest request = sheet(h, 3);
  Collector& whole = answer(h, request);
  const std::vector<TokenId> ids = whole.ids();
  size_t count = 1;
  while (h.decode(first(ids, count)).find("ship_lev") == std::string::npos) ++count;
  request.stop_strings = {"ship_lev"};
  Collector& stopped = answer(h, request);
  EXPECT_EQ(stopped.last().finish, FinishReason::kStop);
  EXPECT_EQ(stopped.text(), whole.text().substr(0, whole.text().find("ship_lev")));
  EXPECT_EQ(stopped.last().usage.completion_tokens, static_cast<int64_t>(count));
  // A token of the run that is nowhere before it.
  const TokenId last = ids[count - 1];
  ASSERT_EQ(std::find(ids.begin(), ids.end(), last) - ids.begin(), static_cast<ptrdiff_t>(count - 1));
  request.stop_strings.clear();
  request.stop_token_ids = {last};
  Collector& by_token = answer(h, request);
  EXPECT_EQ(by_token.ids(), first(ids, count));
  EXPECT_EQ(by_token.last().finish, FinishReason::kStop);
  EXPECT_EQ(by_token.text(), h.decode(first(ids, count - 1)));
  EXPECT_TRUE(h.wait_idle());
}

TEST_P(ForcedGrammarEngine, ATokenThatIsBannedIsNotForced) {
  EngineHarness h(model());
  EngineRequest request = sheet(h, 3);
  const std::vector<TokenId> ids = answer(h, request).ids();
  for (const TokenId banned : ids) {
    if (h.tokenizer->token_bytes(banned, true).size() < 3) continue;
    request.sampling.logit_bias = {{banned, -100.0f}};
    Collector& out = answer(h, request);
    const std::vector<TokenId> others = out.ids();
    EXPECT_EQ(std::find(others.begin(), others.end(), banned), others.end());
    EXPECT_TRUE(parse_json(out.text()).ok()) << out.text();
  }
}

// Choices of one request, some of them cancelled, in so few blocks that requests give way within runs, which
// are computed in parts.
TEST_P(ForcedGrammarEngine, NeighboursChangeNothing) {
  SchedulerConfig config = EngineHarness::default_config();
  config.block_count = 70;
  config.max_num_batched_tokens = 17;
  EngineHarness h(config, model());
  std::vector<std::vector<TokenId>> alone;
  std::vector<EngineRequest> group;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    group.push_back(sheet(h, seed));
    alone.push_back(answer(h, group.back()).ids());
  }
  for (int round = 0; round < 4; ++round) {
    std::deque<Collector> outs;
    std::vector<RequestId> cancelled;
    for (size_t i = 0; i < group.size(); ++i) {
      const auto id = h.engine->submit(group[i], outs.emplace_back().sink());
      ASSERT_TRUE(id.ok());
      if (i % 4 == 3) cancelled.push_back(*id);
    }
    outs.front().wait_pieces(1 + round);
    for (const RequestId id : cancelled) h.engine->cancel(id);
    for (size_t i = 0; i < group.size(); ++i) {
      if (i % 4 == 3) continue;
      ASSERT_TRUE(outs[i].wait_end());
      EXPECT_EQ(outs[i].ids(), alone[i]) << i;
    }
    ASSERT_TRUE(h.wait_idle());
  }
  std::atomic<int64_t> preemptions = -1;
  ASSERT_TRUE(h.engine->ask([&](const Scheduler* s) { preemptions = s->stats().preemptions_total; }));
  while (preemptions < 0) std::this_thread::yield();
  EXPECT_GT(preemptions, 4);
}

}  // namespace troupe::forced_engine_test
