#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/grammar/regex/automaton.h"
#include "common/grammar/regex/json_lexemes.h"
#include "common/grammar/regex/parse_regex.h"

namespace troupe::grammar_test {

using namespace troupe::grammar;
using ::testing::HasSubstr;

static bool reads(const RegexSet& expressions, RegexId expression, std::string_view text) {
  Automaton automaton(expressions, {});
  StateId state = automaton.start(expression);
  for (const char c : text) state = automaton.next(state, static_cast<uint8_t>(c));
  return automaton.accepting(state) && !automaton.exhausted();
}

static bool regex_matches(std::string_view regex, std::string_view text, const RegexOptions& options = {}) {
  RegexSet expressions;
  const auto id = parse_regex(expressions, regex, options);
  EXPECT_TRUE(id.ok()) << regex << ": " << id.status();
  return id.ok() && reads(expressions, *id, text);
}

static std::string regex_error(std::string_view regex) {
  RegexSet expressions;
  const auto id = parse_regex(expressions, regex, {});
  return id.ok() ? "accepted" : std::string(id.status().message());
}

TEST(Regex, MatchesWholeTexts) {
  EXPECT_TRUE(regex_matches("abc", "abc"));
  EXPECT_FALSE(regex_matches("abc", "abcd"));
  EXPECT_FALSE(regex_matches("abc", "ab"));
  EXPECT_TRUE(regex_matches("a|bc|", ""));
  EXPECT_TRUE(regex_matches("(a|bc)*d", "abcad"));
  EXPECT_TRUE(regex_matches("^(?:yes|no)$", "no"));
  EXPECT_FALSE(regex_matches("^(?:yes|no)$", "maybe"));
}

TEST(Regex, CountsRepetitions) {
  EXPECT_FALSE(regex_matches("a{2,3}", "a"));
  EXPECT_TRUE(regex_matches("a{2,3}", "aa"));
  EXPECT_TRUE(regex_matches("a{2,3}?", "aaa"));
  EXPECT_FALSE(regex_matches("a{2,3}", "aaaa"));
  EXPECT_TRUE(regex_matches("(a?){3}", ""));
  EXPECT_TRUE(regex_matches("(a|ab){2}", "aba"));
  EXPECT_TRUE(regex_matches("a{2,}", std::string(50, 'a')));
  EXPECT_TRUE(regex_matches("a{,x}", "a{,x}")) << "no count: text";
}

TEST(Regex, ClassesHoldWholeCharacters) {
  EXPECT_TRUE(regex_matches(".", "宋"));
  EXPECT_FALSE(regex_matches(".", "\xE5\xAE")) << "half a character";
  EXPECT_FALSE(regex_matches(".", "\xED\xA0\x80")) << "a surrogate";
  EXPECT_FALSE(regex_matches(".", "\n"));
  EXPECT_TRUE(regex_matches("[^a]", "😀"));
  EXPECT_FALSE(regex_matches("[^a]", "a"));
  EXPECT_TRUE(regex_matches("[à-ü]+", "éö"));
  EXPECT_FALSE(regex_matches("[à-ü]+", "e"));
  EXPECT_TRUE(regex_matches("[\\d\\-x]+", "1-x"));
  EXPECT_TRUE(regex_matches("[a-]+", "a-"));
  EXPECT_TRUE(regex_matches("\\u00e9\\x41\\u{1F600}\\uD83D\\uDE00", "éA😀😀"));
  EXPECT_TRUE(regex_matches("\\w\\W\\s\\S", "_! x"));
  // ECMAScript and Python do not agree on U+FEFF and U+001C: neither \\s nor \\S has them.
  for (const char* odd : {"\xEF\xBB\xBF", "\x1C"}) {
    for (const char* regex : {"\\s", "\\S", "[\\s]", "[^\\s]", "[\\S]", "[^\\S]"})
      EXPECT_FALSE(regex_matches(regex, odd)) << regex;
    EXPECT_TRUE(regex_matches("[^a]", odd));
  }
  EXPECT_TRUE(regex_matches("[^\\s]\\s[^\\S]", "a \xE3\x80\x80"));
}

TEST(Regex, EveryCharacterIsInItsClassAlone) {
  for (const uint32_t c : {0x7Fu, 0x80u, 0x7FFu, 0x800u, 0xD7FFu, 0xE000u, 0xFFFFu, 0x10000u, 0x10FFFFu}) {
    RegexSet expressions;
    const RegexId others = encode(expressions, CharSet::of(c).complement(), Encoding::kUtf8);
    const RegexId itself = encode(expressions, CharSet::of(c), Encoding::kUtf8);
    EXPECT_EQ(expressions.both({others, itself}) == RegexSet::kNothing ||
                  Automaton(expressions, {}).start(expressions.both({others, itself})) == Automaton::kDead,
              true);
    const RegexId all = encode(expressions, CharSet::all(), Encoding::kUtf8);
    const RegexId united = expressions.either({others, itself});
    const RegexId differs = expressions.either({expressions.both({all, expressions.complement(united)}),
                                                expressions.both({united, expressions.complement(all)})});
    EXPECT_EQ(Automaton(expressions, {}).start(differs), Automaton::kDead) << std::hex << c;
  }
}

TEST(Regex, IgnoresCaseWhereToldTo) {
  EXPECT_TRUE(regex_matches("(?i)Ab[x-z]", "aBY"));
  EXPECT_FALSE(regex_matches("(?i)[^a]", "A"));
  EXPECT_FALSE(regex_matches("ab", "AB"));
}

TEST(Regex, SearchesAsPatternsDo) {
  const RegexOptions search{.searches = true};
  EXPECT_TRUE(regex_matches("b", "abc", search));
  EXPECT_FALSE(regex_matches("^b", "abc", search));
  EXPECT_TRUE(regex_matches("^a|c$", "xxc", search));
  EXPECT_TRUE(regex_matches("^a|c$", "axx", search));
  EXPECT_FALSE(regex_matches("^a|c$", "xax", search));
  EXPECT_TRUE(regex_matches("(^$|^x-)", "", search));
  EXPECT_TRUE(regex_matches("(^$|^x-)", "x-y", search));
  EXPECT_FALSE(regex_matches("(^$|^x-)", "y", search));
  EXPECT_TRUE(regex_matches("(^|,)a(,|$)", "b,a", search));
  EXPECT_FALSE(regex_matches("(^|,)a(,|$)", "ba", search));
}

TEST(Regex, NamesWhatItDoesNotSupport) {
  EXPECT_THAT(regex_error("a(?=b)"), HasSubstr("look-around is not supported at byte 4"));
  EXPECT_THAT(regex_error("(a)\\1"), HasSubstr("backreferences"));
  EXPECT_THAT(regex_error("\\bword"), HasSubstr("word boundaries"));
  EXPECT_THAT(regex_error("\\p{L}"), HasSubstr("Unicode property"));
  EXPECT_THAT(regex_error("a^b"), HasSubstr("^ or $ inside"));
  EXPECT_THAT(regex_error("(a"), HasSubstr("does not end"));
  EXPECT_THAT(regex_error("a)"), HasSubstr("unmatched"));
  EXPECT_THAT(regex_error("[a"), HasSubstr("does not end"));
  EXPECT_THAT(regex_error("a{3,2}"), HasSubstr("out of order"));
  EXPECT_THAT(regex_error("*a"), HasSubstr("nothing to repeat"));
  EXPECT_THAT(regex_error("a++"), HasSubstr("quantifier"));
  EXPECT_THAT(regex_error(std::string(100, '(') + std::string(100, ')')), HasSubstr("nested too deeply"));
}

TEST(Regex, OfAJsonStringSpeaksOfItsValue) {
  const RegexOptions json{.encoding = Encoding::kJsonString, .searches = true};
  EXPECT_TRUE(regex_matches("^a\"b$", "a\\\"b", json));
  EXPECT_FALSE(regex_matches("^a\"b$", "a\"b", json));
  EXPECT_TRUE(regex_matches("^\\n.$", "\\n宋", json));
  EXPECT_FALSE(regex_matches("^.$", "\\u0041", json)) << "the spelling of A is A";
  EXPECT_TRUE(regex_matches("^[^x]$", "\\u0001", json));
}

TEST(Regex, IntersectsAndComplements) {
  RegexSet expressions;
  const RegexId letters = *parse_regex(expressions, "[a-c]{1,3}", {});
  const RegexId words = expressions.either({expressions.literal("ab"), expressions.literal("c")});
  const RegexId others = expressions.both({letters, expressions.complement(words)});
  EXPECT_TRUE(reads(expressions, others, "abc"));
  EXPECT_TRUE(reads(expressions, others, "a"));
  EXPECT_FALSE(reads(expressions, others, "ab"));
  EXPECT_FALSE(reads(expressions, others, "c"));
  const RegexId none = expressions.both({letters, *parse_regex(expressions, "[0-9]+", {})});
  EXPECT_EQ(Automaton(expressions, {}).start(none), Automaton::kDead);
}

TEST(Regex, ComparesDecimals) {
  const auto holds = [](NumberTest::Kind kind, const char* whole, const char* fraction,
                        std::string_view text) {
    RegexSet expressions;
    const RegexId test = expressions.number({.kind = kind, .whole = whole, .fraction = fraction});
    return reads(expressions, test, text);
  };
  using Kind = NumberTest::Kind;
  for (const auto& [text, order] : std::vector<std::pair<std::string_view, int>>{{"12.5", 0},
                                                                                 {"12.50", 0},
                                                                                 {"12.49", -1},
                                                                                 {"12.501", 1},
                                                                                 {"12", -1},
                                                                                 {"13", 1},
                                                                                 {"9.9", -1},
                                                                                 {"100", 1}}) {
    EXPECT_EQ(holds(Kind::kAtLeast, "12", "5", text), order >= 0) << text;
    EXPECT_EQ(holds(Kind::kMoreThan, "12", "5", text), order > 0) << text;
    EXPECT_EQ(holds(Kind::kAtMost, "12", "5", text), order <= 0) << text;
    EXPECT_EQ(holds(Kind::kLessThan, "12", "5", text), order < 0) << text;
  }
  RegexSet expressions;
  const RegexId sevens = expressions.number({.kind = Kind::kMultiple, .divisor = 7});
  for (int i = 0; i < 200; ++i) EXPECT_EQ(reads(expressions, sevens, std::to_string(i)), i % 7 == 0) << i;
}

TEST(Regex, JsonStringsHaveWholeSurrogatePairs) {
  const JsonLexemes& lexemes = json_lexemes();
  const auto is_string = [&](std::string_view text) {
    return reads(lexemes.expressions, lexemes.string, text);
  };
  EXPECT_TRUE(is_string(R"("a\u00e9\uD83D\uDE00 é\/")"));
  EXPECT_FALSE(is_string(R"("\uD83D")"));
  EXPECT_FALSE(is_string(R"("\uDE00")"));
  EXPECT_FALSE(is_string("\"\n\""));
  EXPECT_FALSE(is_string("\"\xE5\xAE\""));
  EXPECT_LT(lexemes.base_size, 2000u);
}

TEST(Regex, HostileExpressionsEnd) {
  for (const std::string_view regex : {"((((((((a{1,1000}){1,1000}){1,1000}){1,1000}){1,1000})))))",
                                       "(a*)*(a*)*b", "((a|b)*a(a|b){200})", "(x?){1000}(y?){1000}"}) {
    RegexSet expressions;
    const auto id = parse_regex(expressions, regex, {});
    if (!id.ok() || expressions.exhausted()) continue;
    Automaton automaton(expressions, {.table_bytes_max = 1u << 20});
    StateId state = automaton.start(*id);
    for (int i = 0; i < 3000; ++i) state = automaton.next(state, i % 3 == 0 ? 'b' : 'a');
    EXPECT_LE(automaton.memory_bytes(), 80u << 20);
  }
}

}  // namespace troupe::grammar_test
