// Answers under grammars, through the whole engine: each is compared with one that is drawn token by token
// among the tokens that the grammar takes when it is asked one by one, whatever else is in the batch,
// preempted, taken back, or resumed.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <limits>

#include "common/json/json.h"
#include "tests/worker/engine_harness.h"
#include "worker/input/grammar_cache.h"
#include "worker/text/tokenizer/banned_strings.h"

namespace troupe {
namespace grammar_engine_test {

using grammar::Format;
using testing::Collector;
using testing::EngineHarness;
using ::testing::HasSubstr;

constexpr std::string_view kTracker =
    R"({"type":"object","properties":{"name":{"type":"string","maxLength":9},"mood":{"enum":["calm","angry","宋江"]},)"
    R"("level":{"type":"integer","minimum":0,"maximum":99},"tags":{"type":"array","items":{"type":"boolean"},"maxItems":3}},)"
    R"("required":["name","mood","level","tags"],"additionalProperties":false})";

Format schema(std::string_view text, bool any_whitespace = false) {
  Format format{.kind = Format::Kind::kSchema, .text = std::string(text)};
  format.json.any_whitespace = any_whitespace;
  return format;
}

Format regex(std::string_view text) {
  return {.kind = Format::Kind::kRegex, .text = std::string(text)};
}

class GrammarEngine : public testing::WaitsOrRunsAhead {
 protected:
  EngineHarness::Model model() const {
    EngineHarness::Model wanted;
    wanted.runs_ahead = GetParam();
    wanted.emits_eos = wanted.emits_all = true;
    return wanted;
  }
  static std::shared_ptr<const grammar::CompiledGrammar> compile(const EngineHarness& h,
                                                                 const Format& format) {
    static GrammarCache* cache = nullptr;
    static std::unique_ptr<Tokenizer> tokenizer;
    if (cache == nullptr) {
      tokenizer = EngineHarness::load_tokenizer();
      cache = new GrammarCache(tokenizer.get(), h.tokenizer->vocab_size(), {EngineHarness::kEos});
    }
    auto found = cache->find(format);
    EXPECT_TRUE(found.ok()) << found.status();
    return *std::move(found);
  }
};
INSTANTIATE_TEST_SUITE_P(Runner, GrammarEngine, ::testing::Bool(), GrammarEngine::name);

// The next token, by asking the grammar for each.
TokenId draw(const EngineHarness& h, const EngineRequest& r, const grammar::GrammarMatcher& matcher,
             const std::vector<TokenId>& answer, std::span<const TokenId> banned) {
  std::vector<TokenId> context = r.prompt;
  context.insert(context.end(), answer.begin(), answer.end());
  std::vector<float> logits = h.model.logits_after(context);
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  for (size_t id = 0; id < logits.size(); ++id) {
    grammar::GrammarMatcher copy = matcher;
    if (!copy.accept(static_cast<TokenId>(id)).value_or(false)) logits[id] = kNever;
  }
  for (const TokenId token : banned) logits[static_cast<size_t>(token)] = kNever;
  if (r.ignore_eos) logits[EngineHarness::kEos] = kNever;
  SampleRow row{.draw = draw_params(r.sampling, answer.size())};
  const auto adjuster = LogitAdjuster::make(r.sampling, r.prompt);
  if (adjuster != nullptr) {
    for (const TokenId token : answer) adjuster->add_emitted(token);
    row.penalties = adjuster->penalties();
    row.edits = adjuster->edits(answer.size());
  }
  if (r.sampling.chain) row.chain = &*r.sampling.chain;
  return edit_and_draw(logits, row);
}

// Whether tokens that must come are taken without a draw.
bool takes_forced(const EngineRequest& r) {
  return !r.logprobs && r.banned_strings.empty() && (!r.sampling.chain || r.sampling.chain->mirostat == 0);
}

// The token that must come next, found anew behind each.
std::optional<TokenId> forced(const EngineHarness& h, const EngineRequest& r,
                              grammar::GrammarMatcher& matcher, const std::vector<TokenId>& answer) {
  if (!takes_forced(r)) return std::nullopt;
  ForcedText text{matcher.forced_bytes(256).value_or("")};
  if (text.bytes.empty()) return std::nullopt;
  EXPECT_TRUE(matcher.accept_text(text.bytes).value_or(false));
  text.completes = matcher.is_finished();
  matcher.rollback(1);
  const auto run = ForcedTokens(h.tokenizer.get(), &r.grammar.compiled->vocabulary()).find(answer, text);
  return run.empty() ? std::nullopt : std::optional<TokenId>(run.front());
}

struct Reference {
  std::vector<TokenId> ids;
  bool finished = false;  // else it has its length
  int rewinds = 0;
  int forced = 0;
};

Reference reference(const EngineHarness& h, const EngineRequest& r) {
  BannedStrings strings(h.tokenizer.get(), r.banned_strings);
  grammar::GrammarMatcher matcher(r.grammar.compiled);
  Reference made;
  size_t settled = 0;
  while (!made.finished && made.ids.size() < static_cast<size_t>(r.max_new_count)) {
    const std::optional<TokenId> only = forced(h, r, matcher, made.ids);
    const TokenId token = only ? *only : draw(h, r, matcher, made.ids, strings.banned());
    made.forced += only.has_value();
    EXPECT_TRUE(matcher.accept(token).value_or(false));
    made.ids.push_back(token);
    made.finished = token == EngineHarness::kEos;
    if (made.finished) break;
    if (!r.banned_strings.empty()) {
      const BannedStrings::Verdict verdict = strings.push(token);
      settled += verdict.released;
      if (verdict.rewinds) {
        ++made.rewinds;
        matcher.rollback(made.ids.size() - settled - verdict.kept);
        made.ids.resize(settled + verdict.kept);
        continue;
      }
    }
    made.finished = matcher.is_finished();
  }
  return made;
}

void expect_reference(const EngineHarness& h, const EngineRequest& r, const Collector& out,
                      const Reference& expected) {
  EXPECT_EQ(out.ids(), expected.ids);
  EXPECT_EQ(out.text(), h.decode(expected.ids));
  EXPECT_EQ(out.last().finish, expected.finished ? FinishReason::kStop : FinishReason::kLength);
  EXPECT_EQ(out.last().usage.completion_tokens, static_cast<int64_t>(expected.ids.size()));
  if (!r.logprobs) return;
  const bool has_stop = expected.ids.back() == EngineHarness::kEos;
  EXPECT_EQ(out.logprobs().size(), expected.ids.size() - has_stop);
}

TEST_P(GrammarEngine, AnswersFollowTheirsWhateverElseIsComputed) {
  SchedulerConfig config = EngineHarness::default_config();
  config.block_count = 90;
  config.max_num_batched_tokens = 24;
  std::deque<Collector> outs;  // they outlive the engine
  EngineHarness h(config, model());
  const std::vector<Format> formats = {
      schema(kTracker), regex("(?:ab|宋|[0-9]{2}){3,6}x"), schema(kTracker, true),
      Format::either({Format::literal("yes"), Format::literal("no, never")})};
  std::vector<EngineRequest> requests;
  for (int i = 0; i < 40; ++i) {
    EngineRequest& r = requests.emplace_back(
        h.request(h.prompt(i % 4, 20 + i % 9), 20 + i % 90, static_cast<uint64_t>(i % 7)));
    if (i % 9 != 8) r.grammar.compiled = compile(h, formats[static_cast<size_t>(i) % formats.size()]);
    if (i % 3 == 0) r.sampling.repetition_penalty = 1.3f;
    if (i % 5 == 0) r.logprobs = 1;
    if (i % 6 == 3) r.sampling.chain = SamplerChain{.typical_p = 0.8f, .xtc_probability = 0.5f};
    if (i % 7 == 4) r.sampling.history.dry.multiplier = 2;
    if (i % 8 == 5) r.sampling.top_k = 40;
    if (i % 8 == 6) r.sampling.logit_bias = {{70, 3.0f}};
    if (i % 10 == 7) r.ignore_eos = true;
    ASSERT_TRUE(h.engine->submit(r, outs.emplace_back().sink()).ok());
  }
  int forced = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(i);
    ASSERT_TRUE(outs[i].wait_end());
    ASSERT_TRUE(outs[i].last().error.ok()) << outs[i].last().error << outs[i].text();
    if (requests[i].grammar.compiled == nullptr) continue;
    const Reference expected = reference(h, requests[i]);
    expect_reference(h, requests[i], outs[i], expected);
    forced += expected.forced;
    if (!expected.finished || i % 2 == 1) continue;
    const auto value = parse_json(outs[i].text());
    ASSERT_TRUE(value.ok()) << outs[i].text();
    EXPECT_EQ(value->as_object().size(), 4u);
  }
  EXPECT_GT(forced, 100);
  EXPECT_GT(h.engine->load().kv_blocks_total, 0);
  EXPECT_TRUE(h.wait_idle());
}

// With mirostat, too, whose state comes of all draws, so that what was sent is drawn once more.
TEST_P(GrammarEngine, AnswersResumeAtEveryCut) {
  std::deque<Collector> outs;  // they outlive the engine
  EngineHarness h(model());
  for (const bool has_state : {false, true}) {
    EngineRequest r = h.request(h.prompt(3, 12), 80, 5);
    r.grammar.compiled = compile(h, schema(kTracker));
    if (has_state) r.sampling.chain = SamplerChain{.mirostat = 2};
    Collector& whole = outs.emplace_back();
    ASSERT_TRUE(h.engine->submit(r, whole.sink()).ok());
    ASSERT_TRUE(whole.wait_end());
    const std::vector<TokenId> ids = whole.ids();
    ASSERT_GT(ids.size(), 8u);
    ASSERT_TRUE(parse_json(whole.text()).ok()) << whole.text();
    for (size_t cut = 0; cut < ids.size(); ++cut) {
      SCOPED_TRACE(cut);
      EngineRequest rest = r;
      rest.emitted.assign(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(cut));
      Collector& out = outs.emplace_back();
      ASSERT_TRUE(h.engine->submit(rest, out.sink()).ok());
      ASSERT_TRUE(out.wait_end());
      std::vector<TokenId> both = rest.emitted;
      const std::vector<TokenId> more = out.ids();
      both.insert(both.end(), more.begin(), more.end());
      EXPECT_EQ(both, ids);
      EXPECT_EQ(out.last().finish, FinishReason::kStop);
    }
  }
}

TEST_P(GrammarEngine, TokensThatAreTakenBackAreTakenOutOfTheGrammar) {
  std::deque<Collector> outs;  // they outlive the engine
  EngineHarness h(model());
  int rewinds = 0;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(seed);
    EngineRequest r = h.request(h.prompt(static_cast<TokenId>(seed), 12), 90, seed);
    r.grammar.compiled = compile(h, regex("[a-e]{1,3}(?:, [a-e ]{2,8}){4,9}\\."));
    r.banned_strings = {"a", "bb", "dc"};
    Collector& out = outs.emplace_back();
    ASSERT_TRUE(h.engine->submit(r, out.sink()).ok());
    ASSERT_TRUE(out.wait_end());
    const Reference expected = reference(h, r);
    rewinds += expected.rewinds;
    expect_reference(h, r, out, expected);
    EXPECT_EQ(out.text().find('a'), std::string::npos) << out.text();
  }
  EXPECT_GT(rewinds, 10);
}

TEST_P(GrammarEngine, WhereNothingMayFollowTheAnswerEnds) {
  std::deque<Collector> outs;  // they outlive the engine
  EngineHarness h(model());
  EngineRequest r = h.request(h.prompt(1, 9), 50, 7);
  r.grammar.compiled = compile(h, regex("[0-9]{4}"));
  r.ignore_eos = true;
  r.sampling.history.min_tokens = 40;
  r.sampling.history.banned_early = {EngineHarness::kEos};
  Collector& out = outs.emplace_back();
  ASSERT_TRUE(h.engine->submit(r, out.sink()).ok());
  ASSERT_TRUE(out.wait_end());
  EXPECT_EQ(out.text().size(), 4u) << out.text();
  EXPECT_EQ(out.last().finish, FinishReason::kStop);
}

TEST_P(GrammarEngine, WhereAllThatMayFollowIsBannedTheAnswerFails) {
  std::deque<Collector> outs;  // they outlive the engine
  EngineHarness h(model());
  EngineRequest r = h.request(h.prompt(1, 9), 50, 7);
  r.grammar.compiled = compile(h, regex("x[ab]"));
  for (TokenId id = 0; id < h.tokenizer->vocab_size(); ++id) {
    const std::string_view bytes = h.tokenizer->token_bytes(id, true);
    if (bytes.starts_with("a") || bytes.starts_with("b") || bytes.starts_with("xa") ||
        bytes.starts_with("xb"))
      r.sampling.logit_bias.emplace_back(id, -std::numeric_limits<float>::infinity());
  }
  Collector& out = outs.emplace_back();
  Collector& other = outs.emplace_back();
  ASSERT_TRUE(h.engine->submit(r, out.sink()).ok());
  r.sampling.logit_bias.clear();
  ASSERT_TRUE(h.engine->submit(r, other.sink()).ok());
  ASSERT_TRUE(out.wait_end() && other.wait_end());
  EXPECT_THAT(out.last().error.message(), HasSubstr("is banned"));
  EXPECT_EQ(other.text().size(), 2u);
  EXPECT_TRUE(h.wait_idle());
}

TEST_P(GrammarEngine, AnAnswerGoesOnWithWhatThePromptHasOfIt) {
  std::deque<Collector> outs;  // they outlive the engine
  EngineHarness h(model());
  EngineRequest r = h.request(h.prompt(2, 9), 60, 3);
  r.grammar.compiled = compile(h, schema(kTracker));
  r.grammar.begun = R"({"name": "So)";
  r.continues_text = true;
  Collector& out = outs.emplace_back();
  ASSERT_TRUE(h.engine->submit(r, out.sink()).ok());
  ASSERT_TRUE(out.wait_end());
  const auto value = parse_json(r.grammar.begun + out.text());
  ASSERT_TRUE(value.ok()) << out.text();
}

}  // namespace grammar_engine_test
}  // namespace troupe
