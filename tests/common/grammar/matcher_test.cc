#include <thread>

#include "absl/strings/str_cat.h"
#include "common/grammar/front/front_ends.h"
#include "tests/common/grammar/grammar_fixture.h"

namespace troupe::grammar_test {

// Lists of lists of words and numbers: recursive on both sides, with an empty rule.
//   value = "[" list "]" | "[]" | [a-c]+ | number      list = value | list "," value      tail = | tail-right
static Rules sample_rules() {
  RuleBuilder builder{{}};
  RegexSet& set = builder.expressions();
  const auto text = [&](std::string_view t) { return Symbol::expression(set.literal(t)); };
  const RuleId value = builder.add_rule(), list = builder.add_rule(), right = builder.add_rule();
  const Symbol word = Symbol::expression(set.repeat(set.byte_range('a', 'c'), 1, RegexSet::kUnbounded));
  builder.add(value, {text("["), Symbol::rule(list), text("]")});
  builder.add(value, {text("<"), Symbol::rule(right), text(">")});
  builder.add(value, {word});
  builder.add(value, {Symbol::expression(json_lexemes().number)});
  builder.add(value, {Symbol::expression(json_lexemes().string)});
  builder.add(list, {Symbol::rule(value)});
  builder.add(list, {Symbol::rule(list), text(","), Symbol::rule(value)});
  builder.add(right, {});
  builder.add(right, {Symbol::rule(value), Symbol::rule(right)});
  auto rules = builder.build(Symbol::rule(value));
  EXPECT_TRUE(rules.ok()) << rules.status();
  return *std::move(rules);
}

static std::shared_ptr<const CompiledGrammar> sample_grammar(const GrammarRuntime::Options& options = {}) {
  auto grammar = CompiledGrammar::make(sample_rules(), small_vocabulary(), options);
  EXPECT_TRUE(grammar.ok()) << grammar.status();
  return *grammar;
}

TEST(GrammarMatcher, AcceptsTheLanguage) {
  const auto grammar = sample_grammar();
  for (const std::string_view text :
       {"abc", "[a]", "[a,[1.5,\"x\"],-1e+5]", "<>", "<a[b]\"c\">", "\"\\u00e9\""})
    EXPECT_TRUE(matches(grammar, text)) << text;
  for (const std::string_view text : {"", "[", "[]", "[a", "[a,]", "abd", "<a,b>", "01", "\"", "[a]]"})
    EXPECT_FALSE(matches(grammar, text)) << text;
}

TEST(GrammarMatcher, MasksAreWhatTryingEveryTokenGives) {
  const auto grammar = sample_grammar();
  std::mt19937 random(7);
  for (int round = 0; round < 12; ++round) {
    GrammarMatcher matcher(grammar);
    for (int i = 0; i < 25 && !matcher.has_ended(); ++i) {
      const std::vector<bool> mask = mask_of(matcher, grammar->vocabulary());
      ASSERT_EQ(mask, tried_mask(matcher, grammar->vocabulary()));
      const auto tokens = tokens_in(mask);
      ASSERT_FALSE(tokens.empty());
      ASSERT_TRUE(matcher.accept(tokens[random() % tokens.size()]).value());
    }
  }
}

// Words of every length, some of them with the lexeme's end in them, and enough of them for slices.
static std::shared_ptr<const Vocabulary> long_vocabulary() {
  std::vector<std::string> words = {"\"", "\",", "\"}", "ab\",\n", "\\n", "宋江", "É", "_-", "Ab c"};
  for (size_t size = 2; size <= 70; ++size) {
    words.push_back(std::string(size, 'a'));
    words.push_back(std::string(size, ' '));
    words.push_back(std::string(size - 1, 'b') + "\"");
    words.push_back(std::string(size / 2, 'c') + "\", " + std::string(size / 2, ' '));
    if (size % 3 == 0)
      for (std::string text; text.size() < size; words.push_back(text)) text += "é";
  }
  for (uint32_t i = 0; i < 5000; ++i)
    words.push_back(" w" + std::to_string(i * 7919) + (i % 3 == 0 ? "\"" : "z"));
  return make_vocabulary(words);
}

TEST(GrammarMatcher, MasksOfBoundedTextsAreWhatTryingEveryTokenGives) {
  const auto vocabulary = long_vocabulary();
  std::string many = R"({"type":"object","properties":{)";  // members enough that they are walked as one
  for (uint32_t i = 0; i < 30; ++i)
    absl::StrAppend(&many, i == 0 ? "" : ",", "\"", std::string(1 + i % 7, 'a'), i,
                    "\":{\"type\":", i % 2 == 0 ? R"("string")" : R"("integer")", "}");
  many += "}}";
  for (const std::string_view schema :
       {R"({"type":"string","maxLength":40})", R"({"type":"string","minLength":20,"maxLength":100})",
        R"({"type":"string","pattern":"^[a-z ]+$"})", R"({"type":"string","pattern":"^[a-zé ]{3,50}$"})",
        R"({"type":"string","pattern":"^(a{17}|a{18,34}|b[^c]{0,70})*$","minLength":3})",
        R"({"type":"array","items":{"type":"string","maxLength":18},"maxItems":3})", many.c_str()}) {
    auto rules = rules_of_json_schema(schema, {});
    ASSERT_TRUE(rules.ok()) << rules.status();
    const auto grammar = *CompiledGrammar::make(*std::move(rules), vocabulary);
    // A word that grows up to its bound: behind it the tokens that are too long are refused.
    GrammarMatcher growing(grammar);
    growing.accept_text(schema.find("array") == std::string_view::npos ? "\"" : "[\"").IgnoreError();
    for (int i = 0; i < 22 && growing.accept_text("aa").value(); ++i)
      ASSERT_EQ(mask_of(growing, *vocabulary), tried_mask(growing, *vocabulary)) << schema << " behind " << i;
    std::mt19937 random(7);
    for (int round = 0; round < 4; ++round) {
      GrammarMatcher matcher(grammar);
      for (int i = 0; i < 8 && !matcher.has_ended(); ++i) {
        const std::vector<bool> mask = mask_of(matcher, *vocabulary);
        ASSERT_EQ(mask, tried_mask(matcher, *vocabulary)) << schema << " step " << i << " of " << round;
        const auto tokens = tokens_in(mask);
        ASSERT_FALSE(tokens.empty());
        ASSERT_TRUE(matcher.accept(tokens[random() % tokens.size()]).value());
      }
    }
  }
}

TEST(GrammarMatcher, KeepsMasksThatAreTheSameMadeAnew) {
  const auto keeping = sample_grammar();
  GrammarRuntime::Options options;
  options.masks.keeps = false;
  const auto plain = sample_grammar(options);
  std::mt19937 random(11);
  for (int round = 0; round < 10; ++round) {
    GrammarMatcher a(keeping), b(plain);
    for (int i = 0; i < 40 && !a.has_ended(); ++i) {
      const std::vector<bool> mask = mask_of(a, keeping->vocabulary());
      ASSERT_EQ(mask, mask_of(b, plain->vocabulary()));
      const auto tokens = tokens_in(mask);
      const int32_t token = tokens[random() % tokens.size()];
      ASSERT_TRUE(a.accept(token).value());
      ASSERT_TRUE(b.accept(token).value());
    }
  }
}

TEST(GrammarMatcher, RollsBackExactly) {
  const auto grammar = sample_grammar();
  std::mt19937 random(3);
  for (int round = 0; round < 20; ++round) {
    GrammarMatcher matcher(grammar);
    std::vector<std::vector<bool>> masks;
    for (int i = 0; i < 60; ++i) {
      masks.resize(matcher.step_count());
      masks.push_back(mask_of(matcher, grammar->vocabulary()));
      const auto tokens = tokens_in(masks.back());
      if (tokens.empty() || random() % 4 == 0) {
        matcher.rollback(random() % (matcher.step_count() + 1));
        ASSERT_EQ(mask_of(matcher, grammar->vocabulary()), masks[matcher.step_count()]);
        continue;
      }
      ASSERT_TRUE(matcher.accept(tokens[random() % tokens.size()]).value());
    }
  }
}

TEST(GrammarMatcher, RefusesWithoutAChange) {
  const auto grammar = sample_grammar();
  GrammarMatcher matcher(grammar);
  EXPECT_FALSE(matcher.accept(kEnd).value()) << "nothing is complete yet";
  EXPECT_FALSE(matcher.accept(1).value()) << "a special token";
  EXPECT_FALSE(matcher.accept(-1).value());
  EXPECT_FALSE(matcher.accept(1 << 20).value());
  EXPECT_FALSE(matcher.accept('x' + 2).value());
  EXPECT_EQ(matcher.step_count(), 0u);
  EXPECT_TRUE(matcher.accept('a' + 2).value());
  EXPECT_TRUE(matcher.is_accepting());
  EXPECT_FALSE(matcher.is_finished());
  EXPECT_TRUE(matcher.accept(kEnd).value());
  EXPECT_TRUE(matcher.has_ended());
  EXPECT_FALSE(matcher.accept('a' + 2).value());
  matcher.rollback(1);
  EXPECT_TRUE(matcher.accept('b' + 2).value());
}

TEST(GrammarMatcher, ForcesWhatMustFollow) {
  RuleBuilder builder{{}};
  RegexSet& set = builder.expressions();
  const RegexId choice = set.either({set.literal("the cat sat"), set.literal("the cap")});
  auto rules = builder.build(Symbol::expression(choice));
  ASSERT_TRUE(rules.ok());
  const auto grammar = *CompiledGrammar::make(*std::move(rules), small_vocabulary());
  GrammarMatcher matcher(grammar);
  EXPECT_EQ(*matcher.forced_bytes(100), "the ca");
  EXPECT_EQ(*matcher.forced_bytes(3), "the");
  ASSERT_TRUE(matcher.accept_text("the cat").value());
  EXPECT_EQ(*matcher.forced_bytes(100), " sat");
  ASSERT_TRUE(matcher.accept_text(" sat").value());
  EXPECT_TRUE(matcher.is_finished());
  EXPECT_EQ(*matcher.forced_bytes(100), "");
}

TEST(GrammarMatcher, LongListsReturnToTheirStates) {
  for (const std::string_view open : {"[", "<"}) {  // recursion on the left, on the right
    const auto grammar = sample_grammar();
    GrammarMatcher matcher(grammar);
    ASSERT_TRUE(matcher.accept_text(open).value());
    for (int i = 0; i < 20'000; ++i)
      ASSERT_TRUE(matcher.accept_text(open == "[" ? "\"a\"," : "\"a\"").value()) << i;
    ASSERT_TRUE(matcher.accept_text(open == "[" ? "b]" : ">").value());
    EXPECT_TRUE(matcher.is_accepting());
  }
}

TEST(GrammarMatcher, GoesOnInANewRuntimeWhenOneIsFull) {
  GrammarRuntime::Options options;
  options.parser.memory_bytes_max = 600'000;
  const auto grammar = sample_grammar(options);
  std::mt19937 random(5);
  GrammarMatcher first(grammar);
  ASSERT_TRUE(first.accept_text("[a,").value());
  const auto mask = mask_of(first, grammar->vocabulary());
  for (int round = 0; round < 30; ++round) {
    GrammarMatcher matcher(grammar);
    for (int i = 0; i < 40 && !matcher.has_ended(); ++i) {
      const auto tokens = tokens_in(mask_of(matcher, grammar->vocabulary()));
      ASSERT_TRUE(matcher.accept(tokens[random() % tokens.size()]).value());
    }
    ASSERT_EQ(mask_of(first, grammar->vocabulary()), mask);
  }
  GrammarMatcher deep(grammar);
  StatusOr<bool> accepted = true;
  for (int i = 0; i < 100'000 && accepted.ok(); ++i) accepted = deep.accept_text("[");
  EXPECT_EQ(accepted.status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(GrammarThreads, ShareAGrammar) {
  const auto grammar = sample_grammar();
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 3; ++t) {
    threads.emplace_back([&grammar, t] {
      std::mt19937 random(t);
      for (int round = 0; round < 5; ++round) {
        GrammarMatcher matcher(grammar);
        random_answer(matcher, grammar->vocabulary(), random, 10, 200);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace troupe::grammar_test
