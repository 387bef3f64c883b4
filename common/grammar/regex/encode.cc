#include "common/grammar/regex/encode.h"

#include <string>

#include "common/json/json.h"

namespace troupe::grammar {

namespace {

struct Bytes {
  uint8_t bytes[4];
  uint32_t count;
};

Bytes utf8_of(uint32_t c) {
  const auto tail = [](uint32_t bits) { return static_cast<uint8_t>(0x80 | (bits & 0x3F)); };
  if (c < 0x80) return {{static_cast<uint8_t>(c)}, 1};
  if (c < 0x800) return {{static_cast<uint8_t>(0xC0 | c >> 6), tail(c)}, 2};
  if (c < 0x10000) return {{static_cast<uint8_t>(0xE0 | c >> 12), tail(c >> 6), tail(c)}, 3};
  return {{static_cast<uint8_t>(0xF0 | c >> 18), tail(c >> 12), tail(c >> 6), tail(c)}, 4};
}

// Splits a range of characters until each part is a product of ranges of bytes: in one length, with tails
// that are equal or span all of 80 … BF.
void add_range(RegexSet& expressions, uint32_t first, uint32_t last, std::vector<RegexId>& out) {
  for (const uint32_t end : {0x7Fu, 0x7FFu, 0xFFFFu}) {
    if (first <= end && last > end) {
      add_range(expressions, first, end, out);
      add_range(expressions, end + 1, last, out);
      return;
    }
  }
  const uint32_t count = utf8_of(first).count;
  for (uint32_t tail = 1; tail < count; ++tail) {
    const uint32_t mask = (1u << (6 * tail)) - 1;
    if ((first & ~mask) == (last & ~mask)) continue;
    if ((first & mask) != 0) {
      add_range(expressions, first, first | mask, out);
      add_range(expressions, (first | mask) + 1, last, out);
      return;
    }
    if ((last & mask) != mask) {
      add_range(expressions, first, (last & ~mask) - 1, out);
      add_range(expressions, last & ~mask, last, out);
      return;
    }
  }
  const Bytes low = utf8_of(first), high = utf8_of(last);
  RegexId id = RegexSet::kEmpty;
  for (uint32_t i = count; i-- > 0;)
    id = expressions.concat(expressions.byte_range(low.bytes[i], high.bytes[i]), id);
  out.push_back(id);
}

// A character that has to be escaped in a JSON string.
std::string escape_of(uint32_t c) {
  std::string literal;
  append_json_string(literal, std::string(1, static_cast<char>(c)));
  return literal.substr(1, literal.size() - 2);
}

bool needs_escape(uint32_t c) {
  return c < 0x20 || c == '"' || c == '\\';
}

}  // namespace

void append_utf8(std::string& out, uint32_t character) {
  const Bytes bytes = utf8_of(character);
  out.append(bytes.bytes, bytes.bytes + bytes.count);
}

RegexId encode(RegexSet& expressions, const CharSet& chars, Encoding encoding) {
  std::vector<RegexId> options;
  CharSet plain = chars;
  if (encoding == Encoding::kJsonString) {
    for (uint32_t c = 0; c < 0x80; ++c) {
      if (!needs_escape(c)) continue;
      if (chars.has(c)) options.push_back(expressions.literal(escape_of(c)));
      plain = plain.minus(CharSet::of(c));
    }
  }
  for (const CharSet::Range& range : plain.ranges()) add_range(expressions, range.first, range.last, options);
  return expressions.either(std::move(options));
}

RegexId encode_text(RegexSet& expressions, std::string_view text, Encoding encoding) {
  if (encoding == Encoding::kUtf8) return expressions.literal(text);
  std::string literal;
  append_json_string(literal, text);
  return expressions.literal(std::string_view(literal).substr(1, literal.size() - 2));
}

RegexId containing(RegexSet& expressions, std::span<const std::string> parts) {
  const RegexId any = expressions.repeat(expressions.byte_range(0, 255), 0, RegexSet::kUnbounded);
  std::vector<RegexId> literals;
  for (const std::string& part : parts) literals.push_back(expressions.literal(part));
  return expressions.concat(any, expressions.concat(expressions.either(std::move(literals)), any));
}

}  // namespace troupe::grammar
