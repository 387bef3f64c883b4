// When the end of a thought is forced, token by token.

#include "worker/engine/thinking_budget.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/worker/engine_harness.h"
#include "tests/worker/input/chat_server.h"

namespace troupe {
namespace thinking_budget_test {

using chat_server::bytes_with_line_breaks;
using testing::EngineHarness;

const Tokenizer& with_marks() {
  static const auto* const made = new std::unique_ptr<Tokenizer>(
      bytes_with_line_breaks({"<|im_end|>", "<think>", "</think>", "[THINK]", "[/THINK]"}));
  return **made;
}
// Marks are spelled by tokens of their characters.
const Tokenizer& with_bytes() {
  static const auto* const made = new std::unique_ptr<Tokenizer>(bytes_with_line_breaks({"<|im_end|>"}));
  return **made;
}

struct Case {
  const Tokenizer* tokenizer = &with_marks();
  std::string_view form = "qwen3";
  bool in_thought = true;
  std::string_view tools = {};
};

ThinkingBudget budget_of(int32_t count, const Case& given = {}) {
  ThinkingLimit limit;
  limit.token_count_max = count;
  limit.syntax.thoughts = thought_form(given.form);
  limit.syntax.tools = tool_form(given.tools);
  limit.syntax.in_thought = given.in_thought;
  limit.end = thought_end_tokens(*given.tokenizer, *limit.syntax.thoughts);
  EXPECT_FALSE(limit.end.empty());
  std::vector<TokenId> shown;
  for (TokenId id = 0; id < given.tokenizer->vocab_size(); ++id)
    if (given.tokenizer->is_special(id) && given.tokenizer->token_bytes(id, false) != "<|im_end|>")
      shown.push_back(id);
  limit.shown_special = std::make_shared<const std::vector<TokenId>>(std::move(shown));
  return {given.tokenizer, std::make_shared<const ThinkingLimit>(std::move(limit))};
}

void push(ThinkingBudget& budget, std::string_view text, const Tokenizer& tokenizer = with_marks()) {
  const std::vector<TokenId> tokens = tokenizer.encode(text, /*add_special=*/false).value();
  for (const TokenId token : tokens) {
    EXPECT_FALSE(budget.forced().has_value()) << text;
    budget.push(token);
  }
}

// Takes what is forced, to its end.
std::string forced_text(ThinkingBudget& budget, const Tokenizer& tokenizer = with_marks()) {
  std::string text;
  while (const std::optional<TokenId> token = budget.forced()) {
    text += tokenizer.token_bytes(*token, /*skip_special=*/false);
    budget.push(*token);
    if (text.size() > 64) break;
  }
  return text;
}

TEST(ThinkingBudget, TheEndComesBehindSoManyTokensAndNoneBefore) {
  for (const Tokenizer* const tokenizer : {&with_marks(), &with_bytes()}) {
    for (const int32_t count : {0, 1, 5}) {
      ThinkingBudget budget = budget_of(count, {.tokenizer = tokenizer});
      push(budget, std::string(static_cast<size_t>(count), 'x'), *tokenizer);
      EXPECT_EQ(forced_text(budget, *tokenizer), "</think>") << count;
      push(budget, "said <think> more, and more", *tokenizer);
    }
  }
}

TEST(ThinkingBudget, MarksThatTheModelWritesAreNoTokensOfThoughts) {
  for (const Tokenizer* const tokenizer : {&with_marks(), &with_bytes()}) {
    const Case closed{.tokenizer = tokenizer, .in_thought = false};
    ThinkingBudget opened = budget_of(3, closed);
    push(opened, " <think>abc", *tokenizer);
    EXPECT_EQ(forced_text(opened, *tokenizer), "</think>");
    ThinkingBudget none = budget_of(0, closed);
    push(none, "<think>", *tokenizer);
    EXPECT_EQ(forced_text(none, *tokenizer), "</think>");
    ThinkingBudget silent = budget_of(0, closed);
    push(silent, "No thought: <think>abc", *tokenizer);
    EXPECT_FALSE(silent.may_force_within(1000));
  }
  ThinkingBudget ended = budget_of(9, {.tokenizer = &with_marks()});
  push(ended, "abc</think>said that and more");
  EXPECT_FALSE(ended.may_force_within(1000));
}

TEST(ThinkingBudget, AMarkThatTheModelHasBegunIsGoneOnWith) {
  ThinkingBudget budget = budget_of(6, {.tokenizer = &with_bytes()});
  push(budget, "abc</t", with_bytes());
  EXPECT_EQ(forced_text(budget, with_bytes()), "hink>");
  ThinkingBudget twice = budget_of(5, {.tokenizer = &with_bytes()});
  push(twice, "ab</<", with_bytes());
  EXPECT_EQ(forced_text(twice, with_bytes()), "/think>");
  ThinkingBudget other = budget_of(5, {.tokenizer = &with_bytes()});
  push(other, "</tha", with_bytes());
  EXPECT_EQ(forced_text(other, with_bytes()), "</think>");
}

TEST(ThinkingBudget, AllThoughtsOfAnAnswerHaveOne) {
  ThinkingBudget budget = budget_of(3, {.form = "mistral", .in_thought = false});
  push(budget, "[THINK]ab[/THINK]x[THINK]c");
  EXPECT_EQ(forced_text(budget), "[/THINK]");
  push(budget, "y[THINK]");
  EXPECT_EQ(forced_text(budget), "[/THINK]");
}

TEST(ThinkingBudget, CallsThatEndAThoughtDo) {
  const Case given{.tokenizer = &with_bytes(), .form = "kimi_k2", .tools = "kimi_k2"};
  ThinkingBudget budget = budget_of(200, given);
  push(budget, "I need it.<|tool_calls_section_begin|>", with_bytes());
  EXPECT_FALSE(budget.may_force_within(1000));
}

TEST(ThinkingBudget, SaysHowNearItIs) {
  ThinkingBudget budget = budget_of(5);
  EXPECT_FALSE(budget.may_force_within(4));
  EXPECT_TRUE(budget.may_force_within(5));
  push(budget, "abc");
  EXPECT_FALSE(budget.may_force_within(1));
  EXPECT_TRUE(budget.may_force_within(2));
}

TEST(ThinkingBudget, EndsAreSpelledAsInAText) {
  const auto tokenizer = EngineHarness::load_tokenizer();
  const std::vector<TokenId> end = thought_end_tokens(*tokenizer, *thought_form("qwen3"));
  ASSERT_GT(end.size(), 1u);
  std::string text;
  for (const TokenId token : end) text += tokenizer->token_bytes(token, /*skip_special=*/false);
  EXPECT_EQ(text, "</think>");
  const std::vector<TokenId> whole = tokenizer->encode("and so</think>", /*add_special=*/false).value();
  ASSERT_GE(whole.size(), end.size());
  EXPECT_EQ(std::vector<TokenId>(whole.end() - static_cast<ptrdiff_t>(end.size()), whole.end()), end);
  EXPECT_EQ(thought_end_tokens(with_marks(), *thought_form("qwen3")), std::vector<TokenId>{302});
}

}  // namespace thinking_budget_test
}  // namespace troupe
