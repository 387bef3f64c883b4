#include "common/grammar/schema/decimal.h"

#include <charconv>

namespace troupe::grammar {

namespace {

std::string double_text(double value, std::chars_format format) {
  char buffer[512];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value, format).ptr;
  return std::string(buffer, end);
}

}  // namespace

std::optional<Decimal> decimal_of(const bj::value& value) {
  std::string text;
  if (value.is_int64()) {
    text = std::to_string(value.as_int64());
  } else if (value.is_uint64()) {
    text = std::to_string(value.as_uint64());
  } else if (value.is_double()) {
    text = double_text(value.as_double(), std::chars_format::fixed);
  } else {
    return {};
  }
  Decimal decimal;
  if (text[0] == '-') {
    decimal.is_negative = true;
    text.erase(0, 1);
  }
  const size_t point = std::min(text.find('.'), text.size());
  decimal.whole = text.substr(0, point);
  decimal.fraction = text.substr(std::min(point + 1, text.size()));
  while (decimal.fraction.ends_with('0')) decimal.fraction.pop_back();
  if (decimal.is_zero()) decimal.is_negative = false;
  return decimal;
}

std::string number_text(const bj::value& value) {
  if (value.is_int64()) return std::to_string(value.as_int64());
  if (value.is_uint64()) return std::to_string(value.as_uint64());
  std::string text;
  char buffer[64];
  text.assign(buffer, std::to_chars(buffer, buffer + sizeof(buffer), value.as_double()).ptr);
  return text;
}

}  // namespace troupe::grammar
