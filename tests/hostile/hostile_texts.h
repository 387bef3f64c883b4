#pragma once

// Texts that make a job slow whose time is not linear: long runs of what is usually short, and what nearly is
// something else for as long as it can be.

#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

// `begin`, then as many of `unit` as fit, then `end`; or what `made` makes.
struct HostileText {
  std::string name;
  std::string begin, unit, end;
  std::string (*made)(size_t bytes) = nullptr;

  std::string text(size_t bytes) const {
    if (made != nullptr) return made(bytes);
    std::string out = begin;
    const size_t around = begin.size() + end.size();
    const size_t count = bytes > around ? (bytes - around) / unit.size() : 0;
    out.reserve(bytes + unit.size());
    for (size_t i = 0; i <= count; ++i) out += unit;
    return out + end;
  }
};

// Every combining class, the highest first, so that each mark comes before all that precede it.
inline std::string marks_in_reverse() {
  return "\u0345\u0361\u0301\u0323\u0321\u0f72\u0e38\u05b0\u0334";
}

// Letters of several scripts, marks, spaces and signs, without a period.
inline std::string random_text(size_t bytes) {
  constexpr std::string_view kParts[] = {
      "a",  "e",  "Qu", " ",        "  ",  "\n",     "\r\n", "7", "\u0301", "\u0323", "宋", "\uac01",
      "'s", "<|", "\\", "👩\u200d🎨", "{\"", "\u00a0", "\t ",  "ﬃ", ".",      "_",      "-",  "\U000E0041"};
  std::mt19937_64 rng(bytes);
  std::string text;
  while (text.size() < bytes) text += kParts[rng() % std::size(kParts)];
  return text;
}

// Its prefixes nearly repeat, which is the worst case of many searches.
inline std::string fibonacci_word(size_t bytes) {
  std::string before = "a", word = "ab";
  while (word.size() < bytes) {
    std::string longer = word + before;
    before = std::exchange(word, std::move(longer));
  }
  return word.substr(0, bytes);
}

// All of them are valid UTF-8.
inline std::vector<HostileText> hostile_texts() {
  return {
      {"one mark", "a", "\u0301", "\u0323"},
      {"two marks by turns", "a", "\u0301\u0323", "b"},
      {"marks of every class in reverse", "a", marks_in_reverse(), ""},
      {"a low mark behind many high ones", "a", "\u0301", "\u0334"},
      {"letters with marks", "", "e\u0323\u0301", ""},
      {"Hangul leads", "", "\u1100", ""},
      {"Hangul lead, many vowels", "\u1100", "\u1161", "\u11a8"},
      {"Hangul jamo", "", "\u1100\u1161\u11a8", ""},
      {"Hangul syllables and tails", "\uac00", "\u11a8", ""},
      {"the longest decomposition", "", "\ufdfa", ""},
      {"compatibility letters", "", "ﬃ①㎒", ""},
      {"capital dotted I", "", "İ", ""},
      {"spaces", "", " ", ""},
      {"spaces before a letter", "", " ", "x"},
      {"spaces around a letter", "x", " ", "\n"},
      {"line breaks", "", "\n", ""},
      {"line breaks before a letter", "", "\n", "x"},
      {"CRLF", "", "\r\n", "x"},
      {"carriage returns", "", "\r", ""},
      {"spaces and line breaks", "", " \n", "x"},
      {"long lines of spaces", "", "        \n", "x"},
      {"tabs", "", "\t", "x"},
      {"other spaces", "", "\u00a0\u3000\u2003", "x"},
      {"line separators", "", "\u2028\u0085", "x"},
      {"words of one letter", "", " a", ""},
      {"digits", "", "7", ""},
      {"digits and points", "-", "1.", "e"},
      {"a large exponent", "1e", "9", ""},
      {"nines in a fraction", "0.", "9", "e-999"},
      {"one letter", "", "a", ""},
      {"one capital", "", "A", ""},
      {"letters by turns", "", "ab", "c"},
      {"cases by turns", "", "aB", ""},
      {"apostrophes", "", "'", "s"},
      {"short forms", "", "'s't'rE", ""},
      {"underscores", "", "_", "x"},
      {"signs", "", "!?", "x"},
      {"slashes", "", "/", "\n"},
      {"Han", "", "宋江", ""},
      {"kana", "", "かナー", ""},
      {"Thai", "", "กำ่", ""},
      {"Devanagari", "", "क्षि", ""},
      {"right to left", "", "שׁלוم", ""},
      {"emoji joined", "👩", "\u200d👩", ""},
      {"flags", "", "🇩🇪", ""},
      {"skin tones and selectors", "", "👍🏽\ufe0f", ""},
      {"tag characters", "🏴", "\U000E0067", ""},
      {"joiners alone", "", "\u200d", ""},
      {"byte order marks", "", "\ufeff", ""},
      {"NUL", "", std::string(1, '\0'), ""},
      {"replacement characters", "", "\ufffd", ""},
      {"noncharacters that mark places", "", "\ufdd0", "\ufdd1"},
      {"private use and unassigned", "", "\U0010fffd\u0378", ""},
      {"a special token, over and over", "", "<|im_end|>", ""},
      {"nearly a special token", "", "<|im_end|", ""},
      {"beginnings of special tokens", "", "<|im_<|", ""},
      {"angle brackets", "", "<", "|im_end|>"},
      {"masks in white space", "", " \n<mask> ", ""},
      {"masks far apart", "", "<mask>                                ", "<mask>"},
      {"spellings of bytes", "", "<0x4", "1>"},
      {"spellings of spaces", "", "▁", "x"},
      {"opening brackets", "", "[", ""},
      {"opening braces", "", "{\"a\":", ""},
      {"closing brackets", "", "]}", ""},
      {"backslashes", "", "\\", ""},
      {"quotes", "", "\"", ""},
      {"escapes", "\"", "\\u0000\\ud800", "\""},
      {"markup", "", "<b>&amp;", ""},
      {"template tags", "", "{{ {% {#", ""},
      {"percent formats", "", "%s%(", ""},
      {"brace formats", "", "{}{0!r:>", ""},
      {"list items", "", "1,", ""},
      {"colons", "", "a:b;", ""},
      {"tool calls", "", "<tool_call>\n{\"name\":", "\n</tool_call>"},
      {"thinking", "", "<think>", "</think>"},
      {"random", "", "", "", random_text},
      {"Fibonacci's word", "", "", "", fibonacci_word},
  };
}

// Bytes that are no UTF-8, or only in part.
inline std::vector<HostileText> hostile_bytes() {
  return {
      {"continuation bytes", "", "\x80", ""},
      {"first bytes of two", "", "\xC3", ""},
      {"first bytes of four", "", "\xF0", ""},
      {"three of four bytes", "", "\xF0\x9F\x99", ""},
      {"overlong forms", "", "\xC0\xAF", ""},
      {"surrogates", "", "\xED\xA0\x80", ""},
      {"beyond Unicode", "", "\xF4\x90\x80\x80", ""},
      {"every other character cut", "", "é\xC3", ""},
      {"0xFF", "", "\xFF", ""},
  };
}

}  // namespace troupe
