#include "worker/text/jinja/format_spec.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "worker/text/jinja/meter.h"
#include "worker/text/jinja/operators.h"
#include "worker/text/jinja/text.h"
#include "worker/text/unicode.h"

namespace troupe::jinja {
namespace {

[[noreturn]] void refuse_type(char type, const Value& value) {
  throw JinjaError(absl::StrCat("format code '", std::string(1, type), "' does not fit an object of type '",
                                value.type_name(), "'"));
}

std::string padded(std::string body, const FormatSpec& spec, char default_align) {
  const auto size = static_cast<int64_t>(count_code_points(body));
  if (size >= spec.width) return body;
  const auto missing = static_cast<size_t>(spec.width - size);
  const auto fill = [&spec](size_t count) {
    std::string out;
    for (size_t i = 0; i < count; ++i) out += spec.fill;
    return out;
  };
  switch (spec.align == '\0' ? default_align : spec.align) {
    case '<':
      return body + fill(missing);
    case '^':
      return fill(missing / 2) + body + fill(missing - missing / 2);
    case '=': {
      size_t digits = !body.empty() && std::string_view("+- ").find(body[0]) != std::string_view::npos;
      if (body.size() > digits + 1 && body[digits] == '0' &&
          std::isalpha(static_cast<unsigned char>(body[digits + 1])))
        digits += 2;
      return body.substr(0, digits) + fill(missing) + body.substr(digits);
    }
    default:
      return fill(missing) + body;
  }
}

std::string with_sign(bool negative, std::string digits, const FormatSpec& spec) {
  if (negative) return "-" + digits;
  return spec.sign == '-' ? digits : spec.sign + digits;
}

// Groups the digits before a point or exponent by thousands.
std::string grouped(const std::string& digits, char separator) {
  if (separator == '\0') return digits;
  const size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
  std::string out;
  for (size_t i = 0; i < whole; ++i) {
    if (i > 0 && (whole - i) % 3 == 0) out += separator;
    out += digits[i];
  }
  return out + digits.substr(whole);
}

std::string float_digits(double value, const FormatSpec& spec) {
  char type = spec.type;
  const bool upper = type == 'E' || type == 'F' || type == 'G';
  if (std::isnan(value)) return upper ? "NAN" : "nan";
  if (std::isinf(value)) return upper ? "INF" : "inf";
  if (type == '\0' && !spec.precision) return float_repr(value);
  const bool percent = type == '%';
  if (percent) value *= 100;
  if (percent) type = 'f';
  const bool plain = type == '\0';
  if (plain || type == 'n') type = 'g';
  const std::string pattern = absl::StrCat("%", spec.alternate ? "#" : "", ".*", std::string(1, type));
  std::string out(512 + static_cast<size_t>(spec.precision.value_or(6)), '\0');
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  const int size = std::snprintf(out.data(), out.size(), pattern.c_str(), spec.precision.value_or(6), value);
#pragma GCC diagnostic pop
  out.resize(static_cast<size_t>(size));
  if (plain && out.find_first_not_of("0123456789") == std::string::npos) out += ".0";
  return percent ? out + "%" : out;
}

std::string integer_digits(uint64_t value, const FormatSpec& spec) {
  const int base = spec.type == 'x' || spec.type == 'X' ? 16
                   : spec.type == 'o'                   ? 8
                   : spec.type == 'b'                   ? 2
                                                        : 10;
  char buffer[72];
  auto end = std::to_chars(buffer, buffer + sizeof buffer, value, base).ptr;
  std::string digits(buffer, end);
  if (spec.type == 'X') digits = to_upper(digits);
  if (spec.alternate && base != 10) digits = absl::StrCat("0", std::string(1, spec.type), digits);
  return digits;
}

uint64_t magnitude(int64_t value) {
  return value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
}

}  // namespace

std::string number_text(const Value& value, const FormatSpec& spec) {
  const bool as_float =
      value.is_float() || std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos;
  if (as_float && spec.type != '\0') {
    if (std::string_view("eEfFgGn%").find(spec.type) == std::string_view::npos) refuse_type(spec.type, value);
  }
  std::string digits;
  bool negative = false;
  if (as_float) {
    negative = std::signbit(value.number()) && !std::isnan(value.number());
    digits = float_digits(std::fabs(value.number()), spec);
  } else {
    negative = value.integer() < 0;
    digits = integer_digits(magnitude(value.integer()), spec);
    // In "%.5d" the precision is the minimum number of digits.
    const auto least = static_cast<size_t>(spec.precision.value_or(0));
    if (digits.size() < least) digits.insert(0, least - digits.size(), '0');
  }
  return padded(with_sign(negative, grouped(digits, spec.group), spec), spec, '>');
}

std::string string_text(std::string_view text, const FormatSpec& spec) {
  charge_read(text.size());
  std::string cut(text);
  if (spec.precision) {
    size_t end = 0;
    for (int i = 0; i < *spec.precision && end < cut.size(); ++i) next_code_point(cut, end);
    cut.resize(end);
  }
  return padded(std::move(cut), spec, '<');
}

std::string character_text(const Value& value, const FormatSpec& spec) {
  std::string out;
  if (value.is_string() && length(value) == 1) {
    out = value.text();
  } else {
    if (!value.is_integer_like()) throw JinjaError("%c requires int or char");
    if (value.integer() < 0 || value.integer() > 0x10FFFF ||
        (value.integer() >= 0xD800 && value.integer() < 0xE000))
      throw JinjaError("%c arg not in range(0x110000)");
    append_utf8(out, static_cast<char32_t>(value.integer()));
  }
  return padded(std::move(out), spec, '>');
}

std::optional<int> read_width(std::string_view text, size_t& pos) {
  const char* begin = text.data() + pos;
  int width = 0;
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), width);
  if (end == begin || (pos < text.size() && text[pos] == '-')) return std::nullopt;
  if (error != std::errc() || width > kFormatWidthMax)
    throw JinjaError(absl::StrCat("a format's width or precision is over ", kFormatWidthMax));
  pos += static_cast<size_t>(end - begin);
  return width;
}

}  // namespace troupe::jinja
