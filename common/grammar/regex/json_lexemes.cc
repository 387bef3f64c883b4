#include "common/grammar/regex/json_lexemes.h"

#include <array>

#include "common/grammar/regex/encode.h"

namespace troupe::grammar {

namespace {

// \uXXXX of a character of the basic plane, or of both halves of a pair.
RegexId unicode_escape(RegexSet& set) {
  ByteSet hex = ByteSet::range('0', '9');
  hex.add_all(ByteSet::range('a', 'f'));
  hex.add_all(ByteSet::range('A', 'F'));
  ByteSet not_d = hex, d, low = ByteSet::range('0', '7'), eight_to_b = ByteSet::range('8', '9'), c_to_f;
  for (const char c : {'d', 'D'}) {
    not_d.words[1] &= ~(uint64_t{1} << (c & 63));
    d.add(static_cast<uint8_t>(c));
  }
  for (const char c : {'a', 'b', 'A', 'B'}) eight_to_b.add(static_cast<uint8_t>(c));
  for (const char c : {'c', 'd', 'e', 'f', 'C', 'D', 'E', 'F'}) c_to_f.add(static_cast<uint8_t>(c));
  const RegexId digit = set.bytes(hex), u = set.literal("u"), two = set.repeat(digit, 2, 2);
  const RegexId plain = set.concat(
      set.either({set.concat(set.bytes(not_d), digit), set.concat(set.bytes(d), set.bytes(low))}), two);
  const RegexId high = set.concat(std::array{set.bytes(d), set.bytes(eight_to_b), two});
  const RegexId second = set.concat(std::array{set.literal("\\u"), set.bytes(d), set.bytes(c_to_f), two});
  return set.concat(u, set.either({plain, set.concat(high, second)}));
}

// Makes every derivative, so that all of them lie below base_size. (What is known of derivatives is dropped:
// it would be copied with every grammar.)
void derive_all(RegexSet& set) {
  std::array<uint8_t, 256> classes{};
  std::vector<uint8_t> samples(set.byte_classes(classes));
  for (uint32_t b = 0; b < 256; ++b) samples[classes[b]] = static_cast<uint8_t>(b);
  for (RegexId id = 0; id < set.size(); ++id)
    for (const uint8_t sample : samples) set.derivative(id, sample);
  set.forget_derivatives();
}

JsonLexemes make() {
  JsonLexemes lexemes;
  RegexSet& set = lexemes.expressions;
  const CharSet special = [] {
    CharSet chars = CharSet::range(0, 0x1F);
    chars.add(CharSet::of('"'));
    chars.add(CharSet::of('\\'));
    return chars;
  }();
  ByteSet escapes;
  for (const char c : std::string_view("\"\\/bfnrt")) escapes.add(static_cast<uint8_t>(c));
  const RegexId escape = set.concat(set.literal("\\"), set.either({set.bytes(escapes), unicode_escape(set)}));
  lexemes.text_char = set.either({encode(set, special.complement(), Encoding::kUtf8), escape});
  lexemes.plain_char = encode(set, CharSet::all(), Encoding::kJsonString);
  const RegexId quote = set.literal("\"");
  lexemes.string =
      set.concat(std::array{quote, set.repeat(lexemes.text_char, 0, RegexSet::kUnbounded), quote});
  lexemes.name =
      set.concat(std::array{quote, set.repeat(lexemes.plain_char, 0, RegexSet::kUnbounded), quote});
  const RegexId digit = set.byte_range('0', '9'), minus = set.optional(set.literal("-"));
  const RegexId whole =
      set.either({set.literal("0"), set.concat(set.byte_range('1', '9'), set.repeat(digit, 0, 17))});
  lexemes.integer = set.concat(minus, whole);
  const RegexId fraction = set.optional(set.concat(set.literal("."), set.repeat(digit, 1, 18)));
  ByteSet e, sign;
  for (const char c : {'e', 'E'}) e.add(static_cast<uint8_t>(c));
  for (const char c : {'+', '-'}) sign.add(static_cast<uint8_t>(c));
  const RegexId exponent = set.optional(
      set.concat(std::array{set.bytes(e), set.optional(set.bytes(sign)), set.repeat(digit, 1, 2)}));
  lexemes.number = set.concat(std::array{minus, whole, fraction, exponent});
  lexemes.boolean = set.either({set.literal("true"), set.literal("false")});
  lexemes.null = set.literal("null");
  ByteSet spaces;
  for (const char c : {' ', '\t', '\n'}) spaces.add(static_cast<uint8_t>(c));
  lexemes.space = set.repeat(set.bytes(spaces), 0, kSpaceMax);
  derive_all(set);
  lexemes.base_size = static_cast<RegexId>(set.size());
  return lexemes;
}

}  // namespace

const JsonLexemes& json_lexemes() {
  static const JsonLexemes lexemes = make();
  return lexemes;
}

}  // namespace troupe::grammar
