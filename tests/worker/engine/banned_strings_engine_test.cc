// Strings that an answer must not contain, through the whole engine: every answer is compared with one that
// is computed token by token, whatever else is in the batch, cached, preempted or planned ahead.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <limits>

#include "tests/worker/engine_harness.h"
#include "worker/text/tokenizer/banned_strings.h"
#include "worker/text/unicode.h"

namespace troupe {
namespace banned_strings_engine_test {

using testing::Collector;
using testing::EngineHarness;
using ::testing::HasSubstr;
using ::testing::Not;

std::string lowercase(std::string_view text) {
  std::string lower;
  for (size_t at = 0; at < text.size();) append_lowercase(lower, next_code_point(text, at));
  return lower;
}

TokenId draw(const EngineHarness& h, const EngineRequest& r, const std::vector<TokenId>& answer,
             std::span<const TokenId> banned) {
  std::vector<TokenId> context = r.prompt;
  context.insert(context.end(), answer.begin(), answer.end());
  std::vector<float> logits = h.model.logits_after(context);
  for (const TokenId token : banned) {
    logits[static_cast<size_t>(token)] = -std::numeric_limits<float>::infinity();
  }
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

struct Reference {
  std::vector<TokenId> ids;
  int rewinds = 0;
};

Reference reference(const EngineHarness& h, const EngineRequest& r) {
  BannedStrings strings(h.tokenizer.get(), r.banned_strings);
  Reference made;
  size_t settled = 0;
  while (made.ids.size() < static_cast<size_t>(r.max_new_count)) {
    made.ids.push_back(draw(h, r, made.ids, strings.banned()));
    if (made.ids.back() == EngineHarness::kEos) break;
    const BannedStrings::Verdict verdict = strings.push(made.ids.back());
    settled += verdict.released;
    if (!verdict.rewinds) continue;
    ++made.rewinds;
    made.ids.resize(settled + verdict.kept);
  }
  return made;
}

// The text of some tokens of the answer that would come without it: the first so many in a row, from the one
// at `begin` on, that are ASCII.
std::string part_of_answer(const EngineHarness& h, const EngineRequest& r, size_t begin, size_t count) {
  const std::vector<TokenId> ids = h.model.reference(r.prompt, r.sampling, 200);
  std::string text;
  for (size_t found = 0; found < count; ++begin) {
    const std::string_view bytes = h.tokenizer->token_bytes(ids.at(begin), true);
    const bool is_ascii =
        std::all_of(bytes.begin(), bytes.end(), [](char c) { return c >= ' ' && c <= '~'; });
    found = is_ascii ? found + 1 : 0;
    text = is_ascii ? text + std::string(bytes) : "";
  }
  return text;
}

using EngineBannedStrings = testing::WaitsOrRunsAhead;
INSTANTIATE_TEST_SUITE_P(Runner, EngineBannedStrings, ::testing::Bool(), EngineBannedStrings::name);

TEST_P(EngineBannedStrings, AnswersHaveNoneWhateverElseIsComputed) {
  SchedulerConfig config = EngineHarness::default_config();
  config.block_count = 60;
  config.max_num_batched_tokens = 24;
  EngineHarness::Model wanted = model();
  wanted.emits_eos = true;
  EngineHarness h(config, std::move(wanted));
  std::vector<EngineRequest> requests;
  std::deque<Collector> outs;
  for (int i = 0; i < 60; ++i) {
    EngineRequest& r = requests.emplace_back(
        h.request(h.prompt(i % 4, 20 + i % 9), 4 + i % 30, static_cast<uint64_t>(i % 7)));
    if (i % 3 == 0) r.sampling.repetition_penalty = 1.3f;
    if (i % 4 == 0) r.sampling.frequency_penalty = 0.5f;
    if (i % 5 == 0) r.logprobs = 1;
    if (i % 10 == 3) r.sampling.chain = SamplerChain{.typical_p = 0.8f, .xtc_probability = 0.5f};
    if (i % 10 == 7) r.sampling.history.dry.multiplier = 2;
    if (i % 6 > 0) r.banned_strings = {part_of_answer(h, r, static_cast<size_t>(i % 4), 1 + i % 3)};
    if (i % 6 > 3) r.banned_strings.push_back(lowercase(part_of_answer(h, r, 0, 1)));
    std::erase(r.banned_strings, "");
    ASSERT_TRUE(h.engine->submit(r, outs.emplace_back().sink()).ok());
  }
  int rewinds = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    ASSERT_TRUE(outs[i].wait_end()) << i;
    const Reference expected = reference(h, requests[i]);
    rewinds += expected.rewinds;
    EXPECT_EQ(outs[i].ids(), expected.ids) << i;
    EXPECT_EQ(outs[i].text(), h.decode(expected.ids)) << i;
    EXPECT_EQ(outs[i].last().usage.completion_tokens, static_cast<int64_t>(expected.ids.size())) << i;
    if (requests[i].logprobs) {
      const bool has_stop = expected.ids.back() == EngineHarness::kEos;
      EXPECT_EQ(outs[i].logprobs().size(), expected.ids.size() - has_stop) << i;
    }
    for (const std::string& banned : requests[i].banned_strings) {
      EXPECT_THAT(lowercase(outs[i].text()), Not(HasSubstr(lowercase(banned)))) << i;
    }
  }
  EXPECT_GT(rewinds, 40);
  ASSERT_TRUE(h.wait_idle());
  EXPECT_EQ(h.engine->load().kv_blocks_free, h.engine->load().kv_blocks_total);
}

// However much of it was sent.
void expect_resumed_answers(EngineHarness& h, EngineRequest whole) {
  for (size_t begin = 2; begin < 20; begin += 5) {
    whole.banned_strings.push_back(part_of_answer(h, whole, begin, 2));
  }
  const Reference expected = reference(h, whole);
  ASSERT_GT(expected.rewinds, 0);
  for (size_t sent = 0; sent < expected.ids.size(); ++sent) {
    const auto rest = expected.ids.begin() + static_cast<ptrdiff_t>(sent);
    EngineRequest r = whole;
    r.emitted.assign(expected.ids.begin(), rest);
    r.unsent_logprobs = sent > 2 && sent % 2 == 0 ? 2 : 0;
    if (r.unsent_logprobs > 0) r.logprobs = 0;
    Collector out;
    ASSERT_TRUE(h.engine->submit(r, out.sink()).ok());
    ASSERT_TRUE(out.wait_end());
    EXPECT_EQ(out.ids(), std::vector<TokenId>(rest, expected.ids.end())) << sent;
  }
}

TEST_P(EngineBannedStrings, ResumedAnswerGoesOnAsItWas) {
  EngineHarness h(model());
  EngineRequest request = h.request(h.prompt(2, 30), 24, /*seed=*/5);
  request.sampling.presence_penalty = 0.4f;
  expect_resumed_answers(h, request);
}

// The only event may be one that is held until the answer has its length.
TEST_P(EngineBannedStrings, ScoresOfThePromptComeWithTheFirstEvent) {
  EngineHarness h(model());
  EngineRequest r = h.request(h.prompt(2, 14), 1, /*seed=*/5);
  r.logprobs = 0;
  r.prompt_logprobs = true;
  r.banned_strings = {part_of_answer(h, r, 0, 1) + "zzz"};
  for (const TokenId id : h.model.reference(r.prompt, r.sampling, 1)) {
    std::string bytes(h.tokenizer->token_bytes(id, true)), text;
    take_valid_utf8(bytes, text, /*at_end=*/true);
    r.banned_strings.push_back(text + "zzz");
  }
  Collector out;
  ASSERT_TRUE(h.engine->submit(r, out.sink()).ok());
  ASSERT_TRUE(out.wait_end());
  EXPECT_EQ(out.prompt_logprobs().size(), r.prompt.size());
  EXPECT_EQ(out.ids().size(), 1u);
}

// A stream gets nothing that is taken back later.
TEST_P(EngineBannedStrings, NothingIsSentBeforeItStays) {
  EngineHarness h(model());
  EngineRequest r = h.request(h.prompt(1, 12), 30, /*seed=*/3);
  r.banned_strings = {part_of_answer(h, r, 4, 6)};
  Collector out;
  ASSERT_TRUE(h.engine->submit(r, out.sink()).ok());
  ASSERT_TRUE(out.wait_end());
  const Reference expected = reference(h, r);
  EXPECT_EQ(expected.rewinds, 1);
  EXPECT_EQ(out.ids(), expected.ids);
  EXPECT_EQ(out.last().finish, FinishReason::kLength);
  EXPECT_EQ(out.last().usage.completion_tokens, 30);
}

TEST_P(EngineBannedStrings, AnswerEndsWhereEveryTokenIsBanned) {
  EngineHarness h(model());
  EngineRequest r = h.request(h.prompt(1, 12), 30, /*seed=*/3);
  // Every character that any token has.
  for (const TokenId id : EngineHarness::alphabet(*h.tokenizer, false)) {
    std::string bytes(h.tokenizer->token_bytes(id, true)), valid;
    take_valid_utf8(bytes, valid, /*at_end=*/true);
    if (!valid.empty() && valid.find("\xEF\xBF\xBD") == std::string::npos) r.banned_strings.push_back(valid);
  }
  Collector out;
  ASSERT_TRUE(h.engine->submit(r, out.sink()).ok());
  ASSERT_TRUE(out.wait_end());
  for (const std::string& banned : r.banned_strings) {
    EXPECT_THAT(lowercase(out.text()), Not(HasSubstr(lowercase(banned))));
  }
  ASSERT_TRUE(h.wait_idle());
  EXPECT_EQ(h.engine->load().kv_blocks_free, h.engine->load().kv_blocks_total);
}

}  // namespace banned_strings_engine_test
}  // namespace troupe
