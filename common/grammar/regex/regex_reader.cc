#include "common/grammar/regex/regex_reader.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace troupe::grammar {

namespace {

CharSet digits() {
  return CharSet::range('0', '9');
}

CharSet word_chars() {
  CharSet set = digits();
  set.add(CharSet::range('a', 'z'));
  set.add(CharSet::range('A', 'Z'));
  set.add(CharSet::of('_'));
  return set;
}

// White space of both ECMAScript and Python, in which validators are written.
CharSet common_space() {
  CharSet set = CharSet::range(0x09, 0x0D);
  for (const uint32_t c : {0x20u, 0xA0u, 0x1680u, 0x2028u, 0x2029u, 0x202Fu, 0x205Fu, 0x3000u})
    set.add(CharSet::of(c));
  set.add(CharSet::range(0x2000, 0x200A));
  return set;
}

// White space of one of them.
CharSet any_space() {
  CharSet set = common_space();
  set.add(CharSet::of(0xFEFF));
  set.add(CharSet::range(0x1C, 0x1F));
  set.add(CharSet::of(0x85));
  return set;
}

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

uint32_t next_character(std::string_view text, size_t& at) {
  const auto lead = static_cast<uint8_t>(text[at++]);
  if (lead < 0x80) return lead;
  const int tails = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
  uint32_t c = lead & (0x3Fu >> tails);
  for (int i = 0; i < tails; ++i) c = c << 6 | (static_cast<uint8_t>(text[at++]) & 0x3F);
  return c;
}

bool RegexReader::take(std::string_view token) {
  if (text_.substr(at_, token.size()) != token) return false;
  at_ += token.size();
  return true;
}

Status RegexReader::error(std::string_view message) const {
  return invalid_argument(absl::StrCat(to_absl(message), " at byte ", at_, " of the regular expression"));
}

uint32_t RegexReader::character() {
  return next_character(text_, at_);
}

StatusOr<CharSet> RegexReader::single() {
  if (take("\\")) return escape(false);
  return CharSet::of(character());
}

StatusOr<uint32_t> RegexReader::hex(size_t count) {
  uint32_t value = 0;
  for (size_t i = 0; i < count; ++i) {
    const int digit = hex_value(peek());
    if (digit < 0) return error("a hexadecimal digit is missing");
    value = value << 4 | static_cast<uint32_t>(digit);
    skip();
  }
  return value;
}

// Behind \u: four digits, two such halves of a pair, or {…}.
StatusOr<uint32_t> RegexReader::unicode_escape() {
  if (take("{")) {
    uint32_t value = 0;
    size_t count = 0;
    for (; !at_end() && peek() != '}'; ++count) {
      TROUPE_ASSIGN_OR_RETURN(const uint32_t digit, hex(1));
      value = value << 4 | digit;
      if (value > CharSet::kLast) return error("no such character");
    }
    if (count == 0 || !take("}")) return error("an escape does not end");
    return value;
  }
  TROUPE_ASSIGN_OR_RETURN(const uint32_t high, hex(4));
  if (high < 0xD800 || high > 0xDBFF || !take("\\u")) return high;
  TROUPE_ASSIGN_OR_RETURN(const uint32_t low, hex(4));
  if (low < 0xDC00 || low > 0xDFFF) return error("half a surrogate pair");
  return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
}

StatusOr<CharSet> RegexReader::escape(bool in_class) {
  if (at_end()) return error("an escape does not end");
  const uint32_t c = character();
  switch (c) {
    case 'd':
      return digits();
    case 'D':
      return digits().complement();
    case 'w':
      return word_chars();
    case 'W':
      return word_chars().complement();
    case 's':
      return is_negated_ ? any_space() : common_space();
    case 'S':
      return (is_negated_ ? common_space() : any_space()).complement();
    case 't':
      return CharSet::of('\t');
    case 'n':
      return CharSet::of('\n');
    case 'r':
      return CharSet::of('\r');
    case 'f':
      return CharSet::of('\f');
    case 'v':
      return CharSet::of('\v');
    case '0':
      return CharSet::of(0);
    case 'b':
      if (in_class) return CharSet::of('\b');
      return error("word boundaries (\\b) are not supported");
    case 'B':
      return error("word boundaries (\\B) are not supported");
    case 'p':
    case 'P':
      return error("classes by Unicode property (\\p) are not supported");
    case 'c': {
      const char letter = peek();
      if (!((letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z')))
        return error("\\c needs a letter");
      skip();
      return CharSet::of(static_cast<uint32_t>(letter) & 31);
    }
    case 'x': {
      TROUPE_ASSIGN_OR_RETURN(const uint32_t value, hex(2));
      return CharSet::of(value);
    }
    case 'u': {
      TROUPE_ASSIGN_OR_RETURN(const uint32_t value, unicode_escape());
      return CharSet::of(value);
    }
    default:
      break;
  }
  if (c >= '1' && c <= '9') return error("backreferences are not supported");
  if (word_chars().has(c) && c != '_') return error("unknown escape");
  return CharSet::of(c);
}

StatusOr<CharSet> RegexReader::class_item() {
  if (at_end()) return error("a class does not end");
  if (take("\\")) return escape(true);
  return CharSet::of(character());
}

StatusOr<CharSet> RegexReader::char_class(bool ignores_case) {
  is_negated_ = take("^");
  const auto value_of = [](const CharSet& set) { return set.ranges()[0].first; };
  const auto is_one = [&](const CharSet& set) {
    return set.ranges().size() == 1 && set.ranges()[0].first == set.ranges()[0].last;
  };
  CharSet set;
  while (!take("]")) {
    TROUPE_ASSIGN_OR_RETURN(CharSet item, class_item());
    const bool is_range = peek() == '-' && text_.substr(at_, 2) != "-]";
    if (is_range && is_one(item)) {
      skip();
      TROUPE_ASSIGN_OR_RETURN(const CharSet last, class_item());
      if (!is_one(last)) return error("a range does not end in a character");
      if (value_of(last) < value_of(item)) return error("a range's ends are out of order");
      item = CharSet::range(value_of(item), value_of(last));
    }
    set.add(item);
  }
  if (ignores_case) set = set.with_both_cases();
  return std::exchange(is_negated_, false) ? set.complement() : set;
}

bool RegexReader::number(uint32_t& out) {
  uint64_t value = 0;
  size_t count = 0;
  for (; peek() >= '0' && peek() <= '9'; ++count) {
    value = std::min<uint64_t>(value * 10 + static_cast<uint64_t>(peek() - '0'), UINT32_MAX - 1);
    skip();
  }
  out = static_cast<uint32_t>(value);
  return count > 0;
}

bool RegexReader::counts(uint32_t& min, uint32_t& max) {
  const size_t begin = at_;
  if (take("{") && number(min)) {
    max = min;
    if (take(",") && !number(max)) max = UINT32_MAX;
    if (take("}")) return true;
  }
  at_ = begin;
  return false;
}

}  // namespace troupe::grammar
