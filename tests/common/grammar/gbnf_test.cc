#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "common/grammar/front/front_ends.h"
#include "tests/common/grammar/grammar_fixture.h"

namespace troupe::grammar_test {

using ::testing::HasSubstr;

static std::shared_ptr<const CompiledGrammar> gbnf_grammar(std::string_view text) {
  auto rules = rules_of_gbnf(text);
  EXPECT_TRUE(rules.ok()) << rules.status();
  return *CompiledGrammar::make(*std::move(rules), small_vocabulary());
}

static std::string gbnf_error(std::string_view text) {
  const auto rules = rules_of_gbnf(text);
  return rules.ok() ? "accepted" : std::string(rules.status().message());
}

TEST(Gbnf, ReadsRules) {
  const auto grammar = gbnf_grammar(R"(# a list of words
root  ::= "- " item ("\n- " item)*   # each on its line
item  ::= word (" " word){0,2} |
          number
word  ::= [a-z]+
number ::= digit+ ("." digit{2})?
digit ::= [0-9]
)");
  EXPECT_TRUE(matches(grammar, "- a b\n- 12.50\n- 7"));
  EXPECT_FALSE(matches(grammar, "- a b c d"));
  EXPECT_FALSE(matches(grammar, "- 12.5"));
  EXPECT_FALSE(matches(grammar, "a"));
}

TEST(Gbnf, RecursionOfEveryKind) {
  const auto grammar = gbnf_grammar(R"_(root ::= expr
expr ::= expr "+" term | term
term ::= factor "*" term | factor
factor ::= "(" expr ")" | [0-9]+ | ws
ws ::= (" " ws)?
)_");
  EXPECT_TRUE(matches(grammar, "1+2*(3+4)*5"));
  EXPECT_TRUE(matches(grammar, "1+   "));
  EXPECT_FALSE(matches(grammar, "1+(2"));
}

TEST(Gbnf, EscapesAndClasses) {
  const auto grammar = gbnf_grammar("root ::= \"\\x41\\u00e9\\U0001F600\\\"\\\\\" [^\\]a-c\\n] [\\[-] . {2}");
  EXPECT_TRUE(matches(grammar, "Aé😀\"\\d-宋x"));
  EXPECT_FALSE(matches(grammar, "Aé😀\"\\a-宋x"));
}

TEST(Gbnf, ReadsTheJsonGrammarOfItsAuthors) {
  const auto grammar = gbnf_grammar(R"(root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws

object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws

array  ::=
  "[" ws (
            value
    ("," ws value)*
  )? "]" ws

string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4})
  )* "\"" ws

number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
)");
  EXPECT_TRUE(matches(grammar, R"({"a": [1, 2.5, {"b": null}], "c": "x\n"})"));
  EXPECT_FALSE(matches(grammar, "[]"));
  std::mt19937 random(1);
  GrammarMatcher matcher(grammar);
  for (int i = 0; i < 60 && !matcher.has_ended(); ++i) {
    const auto mask = mask_of(matcher, grammar->vocabulary());
    ASSERT_EQ(mask, tried_mask(matcher, grammar->vocabulary()));
    const auto tokens = tokens_in(mask);
    ASSERT_TRUE(matcher.accept(tokens[random() % tokens.size()]).value());
  }
}

TEST(Gbnf, ErrorsSayWhere) {
  EXPECT_THAT(gbnf_error("root ::= a"), HasSubstr("rule 'a' is not defined"));
  EXPECT_THAT(gbnf_error("a ::= \"x\""), HasSubstr("rule 'root' is not defined"));
  EXPECT_THAT(gbnf_error("root ::= \"x"), HasSubstr("does not end"));
  EXPECT_THAT(gbnf_error("root ::= (\"x\""), HasSubstr("')' is missing"));
  EXPECT_THAT(gbnf_error("root = \"x\""), HasSubstr("'::=' is missing at byte 5"));
  EXPECT_THAT(gbnf_error("root ::= \"x\" \\"), HasSubstr("name is missing"));
  EXPECT_THAT(gbnf_error("root ::= \"\\"), HasSubstr("escape does not end"));
  EXPECT_THAT(gbnf_error("root ::= root \"x\""), HasSubstr("matches no text"));
  EXPECT_THAT(gbnf_error("root ::= <think>"), HasSubstr("tokens in a grammar"));
  EXPECT_THAT(gbnf_error("root ::= \"a\"\nroot ::= \"b\""), HasSubstr("defined twice"));
  EXPECT_THAT(gbnf_error("root ::= \"a\"{5,2}"), HasSubstr("out of order"));
  EXPECT_THAT(gbnf_error("root ::= " + std::string(200, '(')), HasSubstr("nested too deeply"));
}

TEST(Gbnf, HostileOnesAreBounded) {
  for (const std::string_view text :
       {"root ::= (root root | \"a\" | \"\")*", "root ::= a{20000}\na ::= b{20000}\nb ::= \"x\" a?",
        "root ::= ((([a-z]{1,20000}){1,20000}){1,20000}){1,20000}", "root ::= \"a\"? root? \"a\"? root?"}) {
    const auto rules = rules_of_gbnf(text);
    if (!rules.ok()) continue;
    const auto grammar = CompiledGrammar::make(*rules, small_vocabulary());
    if (!grammar.ok()) continue;
    GrammarMatcher matcher(*grammar);
    StatusOr<bool> accepted = true;
    for (int i = 0; i < 200 && accepted.ok(); ++i) accepted = matcher.accept('a' + 2);
  }
}

// (One that walks each path through 50 of them does not come back.)
TEST(Gbnf, RulesThatShareOthersCostTheirNumberAndNotTheirPaths) {
  std::string text = "root ::= x r50\nx ::= \"a\" x | \"b\"\nr0 ::= [x]{0,100}\n";
  for (int i = 1; i <= 50; ++i)
    absl::StrAppend(&text, "r", i, " ::= \"a\" r", i - 1, " | \"b\" r", i - 1, "\n");
  auto rules = rules_of_gbnf(text);
  ASSERT_TRUE(rules.ok()) << rules.status().message();
  const auto grammar = *CompiledGrammar::make(*std::move(rules), small_vocabulary());
  GrammarMatcher matcher(grammar);
  for (const char* next : {"b", "a", "b"}) {
    ASSERT_EQ(mask_of(matcher, grammar->vocabulary()), tried_mask(matcher, grammar->vocabulary()));
    ASSERT_TRUE(matcher.accept_text(next).value());
  }
}

TEST(Choice, AllowsItsTextsAlone) {
  const std::vector<std::string> texts = {"the cat", "the", "宋江"};
  auto rules = rules_of_choice(texts);
  ASSERT_TRUE(rules.ok());
  const auto grammar = *CompiledGrammar::make(*std::move(rules), small_vocabulary());
  for (const std::string& text : texts) EXPECT_TRUE(matches(grammar, text));
  EXPECT_FALSE(matches(grammar, "the c"));
  EXPECT_FALSE(rules_of_choice({}).ok());
}

TEST(RegexFrontEnd, MatchesTheWholeAnswer) {
  auto rules = rules_of_regex("\\d{3}-(yes|no)");
  ASSERT_TRUE(rules.ok());
  const auto grammar = *CompiledGrammar::make(*std::move(rules), small_vocabulary());
  EXPECT_TRUE(matches(grammar, "123-no"));
  EXPECT_FALSE(matches(grammar, "123-noo"));
  EXPECT_THAT(rules_of_regex("a(?!b)").status().message(), HasSubstr("look-around"));
}

}  // namespace troupe::grammar_test
