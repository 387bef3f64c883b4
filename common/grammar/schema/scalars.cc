#include "common/grammar/schema/scalars.h"

#include <array>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "common/grammar/regex/json_lexemes.h"
#include "common/grammar/regex/parse_regex.h"

namespace troupe::grammar {

namespace {

constexpr uint32_t kDigitsMax = 15;

// The condition on a number's digits behind its sign; kNothing if no number of that sign passes.
RegexId bound_expression(RegexSet& set, const NumberConstraints::Bound& bound, bool is_negative) {
  const RegexId everything = set.complement(RegexSet::kNothing);
  const bool is_outside = bound.value.is_negative != is_negative;
  if (is_outside && !bound.value.is_zero())
    return is_negative == bound.is_upper ? everything : RegexSet::kNothing;
  if (is_outside) return bound.is_upper ? everything : RegexSet::kNothing;  // negative ones, against 0
  using Kind = NumberTest::Kind;
  const bool is_most = bound.is_upper != is_negative;  // of the digits
  const Kind kind = is_most ? (bound.is_exclusive ? Kind::kLessThan : Kind::kAtMost)
                            : (bound.is_exclusive ? Kind::kMoreThan : Kind::kAtLeast);
  return set.number({.kind = kind, .whole = bound.value.whole, .fraction = bound.value.fraction});
}

// Digits with at most `places` of them behind the point: a multiple of whole.fraction.
RegexId multiple_expression(RegexSet& set, const Decimal& multiple) {
  const uint64_t scaled = std::stoull(multiple.whole + multiple.fraction);
  const RegexId digit = set.byte_range('0', '9'), whole = set.repeat(digit, 1, RegexSet::kUnbounded);
  std::vector<RegexId> options;
  uint64_t power = 1;  // 10^(digits that are missing behind the point)
  for (size_t places = multiple.fraction.size() + 1; places-- > 0; power *= 10) {
    const auto divisor = static_cast<uint32_t>(scaled / std::gcd(scaled, power));
    const auto count = static_cast<uint32_t>(places);
    const RegexId form =
        places == 0 ? whole
                    : set.concat(std::array{whole, set.literal("."), set.repeat(digit, count, count)});
    options.push_back(
        set.both({form, set.number({.kind = NumberTest::Kind::kMultiple, .divisor = divisor})}));
  }
  return set.either(std::move(options));
}

// Digits that are no multiple, with no zeros at the end of more places than the multiple has.
RegexId not_multiple_expression(RegexSet& set, const Decimal& multiple) {
  const uint64_t scaled = std::stoull(multiple.whole + multiple.fraction);
  const RegexId digit = set.byte_range('0', '9'), whole = set.repeat(digit, 1, RegexSet::kUnbounded);
  const RegexId point = set.literal(".");
  const auto most = static_cast<uint32_t>(multiple.fraction.size());
  std::vector<RegexId> options = {set.concat(
      std::array{whole, point, set.repeat(digit, most, RegexSet::kUnbounded), set.byte_range('1', '9')})};
  uint64_t power = 1;
  for (uint32_t places = most + 1; places-- > 0; power *= 10) {
    const auto divisor = static_cast<uint32_t>(scaled / std::gcd(scaled, power));
    const RegexId form =
        places == 0 ? whole : set.concat(std::array{whole, point, set.repeat(digit, places, places)});
    const RegexId divides = set.number({.kind = NumberTest::Kind::kMultiple, .divisor = divisor});
    options.push_back(set.both({form, set.complement(divides)}));
  }
  return set.either(std::move(options));
}

// Digits of a number without its sign.
RegexId plain_number(RegexSet& set, uint8_t types, uint32_t whole_digits) {
  const RegexId digit = set.byte_range('0', '9');
  const auto whole = [&](uint32_t digits) {
    return set.either(
        {set.literal("0"), set.concat(set.byte_range('1', '9'), set.repeat(digit, 0, digits - 1))});
  };
  if ((types & kFractionBit) == 0) return whole(whole_digits);
  ByteSet any = ByteSet::range('0', '9');
  any.add('.');
  const RegexId fraction =
      set.concat(std::array{whole(kDigitsMax), set.literal("."), set.repeat(digit, 1, kDigitsMax)});
  return set.either(
      {whole(whole_digits), set.both({fraction, set.repeat(set.bytes(any), 1, kDigitsMax + 1)})});
}

}  // namespace

RegexId number_expression(RegexSet& set, const NumberConstraints& constraints, uint8_t types) {
  const JsonLexemes& lexemes = json_lexemes();
  const bool has_fractions = (types & kFractionBit) != 0;
  if (constraints.is_any()) return has_fractions ? lexemes.number : lexemes.integer;
  uint32_t whole_digits = kDigitsMax;
  for (const auto& bound : constraints.bounds)
    whole_digits =
        std::max(whole_digits, static_cast<uint32_t>(std::min<size_t>(bound.value.whole.size(), 18)));
  std::vector<RegexId> signs;
  for (const bool is_negative : {false, true}) {
    std::vector<RegexId> conditions = {plain_number(set, types, whole_digits)};
    for (const auto& bound : constraints.bounds)
      conditions.push_back(bound_expression(set, bound, is_negative));
    for (const Decimal& multiple : constraints.multiples)
      conditions.push_back(multiple_expression(set, multiple));
    for (const Decimal& multiple : constraints.not_multiples)
      conditions.push_back(not_multiple_expression(set, multiple));
    for (const Decimal& value : constraints.excluded)
      conditions.push_back(set.either({bound_expression(set, {value, false, true}, is_negative),
                                       bound_expression(set, {value, true, true}, is_negative)}));
    // (Minus zero would have to be compared as zero.)
    if (is_negative) conditions.push_back(set.number({.kind = NumberTest::Kind::kMoreThan, .whole = "0"}));
    const RegexId digits = set.both(std::move(conditions));
    signs.push_back(is_negative ? set.concat(set.literal("-"), digits) : digits);
  }
  return set.either(std::move(signs));
}

// Formats that are enforced; one that no standard defines is an annotation.
static std::vector<std::string_view> defined_formats(const StringConstraints& constraints) {
  std::vector<std::string_view> formats = constraints.formats;
  std::erase_if(formats, [](std::string_view format) { return !is_defined_format(format); });
  return formats;
}

// Whether patterns or formats say already that it is written in plain characters.
static bool is_written(const StringConstraints& constraints) {
  return !constraints.patterns.empty() || !defined_formats(constraints).empty();
}

// Characters that pass; `one`: any of them in this encoding, as far as no pattern is about it.
static StatusOr<RegexId> characters(RegexSet& set, const StringConstraints& constraints, RegexId one,
                                    Encoding encoding) {
  const CountRange& length = constraints.length;
  if (length.min > 1'000'000 || (length.max != kNoMax && length.max > 1'000'000'000))
    return invalid_argument("minLength: too long");
  const uint32_t max = length.max == kNoMax ? RegexSet::kUnbounded : static_cast<uint32_t>(length.max);
  if (max < length.min) return RegexSet::kNothing;
  std::vector<RegexId> conditions;
  if (!is_written(constraints) || !length.is_any())
    conditions.push_back(set.repeat(one, static_cast<uint32_t>(length.min), max));
  for (const auto* patterns : {&constraints.patterns, &constraints.not_patterns}) {
    for (const std::string_view pattern : *patterns) {
      auto id = parse_regex(set, pattern, {.encoding = encoding, .searches = true});
      if (!id.ok()) return annotate(id.status(), "pattern");
      conditions.push_back(patterns == &constraints.patterns ? *id : set.complement(*id));
    }
  }
  for (const std::string_view text : constraints.excluded)
    conditions.push_back(set.complement(encode_text(set, text, encoding)));
  for (const std::string_view format : defined_formats(constraints)) {
    const std::string_view regex = format_regex(format);
    if (regex.empty())
      return invalid_argument(absl::StrCat("format: '", to_absl(format), "' cannot be enforced"));
    TROUPE_ASSIGN_OR_RETURN(const RegexId id, parse_regex(set, regex, {.encoding = encoding}));
    conditions.push_back(id);
  }
  return set.both(std::move(conditions));
}

StatusOr<RegexId> string_expression(RegexSet& set, const StringConstraints& constraints) {
  const JsonLexemes& lexemes = json_lexemes();
  const bool is_plain =
      is_written(constraints) || !constraints.not_patterns.empty() || !constraints.excluded.empty();
  if (!is_plain && constraints.length.is_any()) return lexemes.string;
  const RegexId one = is_plain ? lexemes.plain_char : lexemes.text_char;
  TROUPE_ASSIGN_OR_RETURN(const RegexId inner, characters(set, constraints, one, Encoding::kJsonString));
  const RegexId quote = set.literal("\"");
  return set.concat(std::array{quote, inner, quote});
}

StatusOr<RegexId> text_expression(RegexSet& set, const StringConstraints& constraints) {
  return characters(set, constraints, encode(set, CharSet::all(), Encoding::kUtf8), Encoding::kUtf8);
}

bool expression_matches(RegexSet& set, RegexId expression, std::string_view text) {
  for (const char c : text) expression = set.derivative(expression, static_cast<uint8_t>(c));
  return set.nullable(expression);
}

}  // namespace troupe::grammar
