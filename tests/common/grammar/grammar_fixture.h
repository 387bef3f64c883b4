#pragma once

// Small vocabularies and ways to look at a grammar's answers, for tests of common/grammar.

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "common/grammar/grammar.h"
#include "common/grammar/regex/json_lexemes.h"

namespace troupe::grammar_test {

using namespace troupe::grammar;

inline constexpr int32_t kEnd = 0;

// Every byte, then `words`; token 0 ends an answer, token 1 is a special one.
inline std::shared_ptr<const Vocabulary> make_vocabulary(const std::vector<std::string>& words) {
  std::vector<std::string> texts = {"", ""};
  for (int b = 0; b < 256; ++b) texts.push_back(std::string(1, static_cast<char>(b)));
  texts.insert(texts.end(), words.begin(), words.end());
  auto vocabulary = Vocabulary::make(std::move(texts), {kEnd});
  EXPECT_TRUE(vocabulary.ok()) << vocabulary.status();
  return *vocabulary;
}

// Tokens as a tokenizer's merges leave them: across lexemes, inside characters, several with one text.
inline std::shared_ptr<const Vocabulary> small_vocabulary() {
  static const auto vocabulary = make_vocabulary(
      {"{\"",  "\":",  "\": ",     "\",",      "\",\"",  "\"}",   "\"}]",   "},{",  "[{",       "]}",
       "}}",   "[]",   "{}",       "[[",       "true",   "false", "null",   "tr",   "ue",       "fal",
       "00",   "123",  "1.",       ".5",       "e+",     "-1",    "12",     "2,",   "a",        "ab",
       "abc",  "name", "na",       "me\":",    "value",  "val",   " the",   "the ", " ",        "  ",
       "\n",   "\n  ", "\\n",      "\\u",      "\\\"",   "00e9",  "\xC3",   "\xA9", "\xE5\xAE", "\x8B",
       "宋江", "é\"",  "\xF0\x9F", "\x98\x80", "x\",",   "\\",    "\", \"", " \"",  ": ",       ", ",
       ": \"", "\"a",  "a\"",      "\"a\"",    "\"b\":", "b",     "\"c",    "id",   "\"id\"",   ",\n"});
  return vocabulary;
}

inline std::vector<bool> mask_of(GrammarMatcher& matcher, const Vocabulary& vocabulary) {
  std::vector<uint32_t> bits(vocabulary.mask_words(), ~0u);
  EXPECT_TRUE(matcher.fill_mask(bits).ok());
  std::vector<bool> mask;
  for (size_t id = 0; id < vocabulary.size(); ++id) mask.push_back((bits[id / 32] >> (id % 32) & 1) != 0);
  return mask;
}

// The same, by trying every token.
inline std::vector<bool> tried_mask(const GrammarMatcher& matcher, const Vocabulary& vocabulary) {
  std::vector<bool> mask;
  for (size_t id = 0; id < vocabulary.size(); ++id) {
    GrammarMatcher copy = matcher;
    mask.push_back(copy.accept(static_cast<int32_t>(id)).value_or(false));
  }
  return mask;
}

inline std::vector<int32_t> tokens_in(const std::vector<bool>& mask) {
  std::vector<int32_t> tokens;
  for (size_t id = 0; id < mask.size(); ++id)
    if (mask[id]) tokens.push_back(static_cast<int32_t>(id));
  return tokens;
}

// A complete answer of random tokens; empty if it does not end within `tokens_max`. Ends are drawn as soon as
// they may be once the answer is `length` tokens long.
inline std::string random_answer(GrammarMatcher& matcher, const Vocabulary& vocabulary, std::mt19937& random,
                                 size_t length, size_t tokens_max) {
  std::string text;
  for (size_t i = 0; i < tokens_max; ++i) {
    const std::vector<bool> mask = mask_of(matcher, vocabulary);
    const std::vector<int32_t> tokens = tokens_in(mask);
    EXPECT_FALSE(tokens.empty()) << "nothing may follow " << text;
    if (tokens.empty()) return {};
    int32_t token = tokens[random() % tokens.size()];
    if (mask[kEnd] && i >= length) token = kEnd;
    EXPECT_TRUE(matcher.accept(token).value_or(false)) << text;
    if (token == kEnd) return text;
    text += vocabulary.text(token);
  }
  return {};
}

// Whether the grammar has `text` as an answer.
inline bool matches(const std::shared_ptr<const CompiledGrammar>& grammar, std::string_view text) {
  GrammarMatcher matcher(grammar);
  for (const char c : text)
    if (!matcher.accept(static_cast<int32_t>(static_cast<uint8_t>(c)) + 2).value_or(false)) return false;
  return matcher.is_accepting();
}

}  // namespace troupe::grammar_test
