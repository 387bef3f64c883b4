#pragma once

// Python's format specifications, the part shared by "%…" and "{:…}". Private to format*.cc.

#include <optional>
#include <string>
#include <string_view>

#include "worker/text/jinja/value.h"

namespace troupe::jinja {

inline constexpr int kFormatWidthMax = 10'000;  // limits a field's width and precision

// The format of one value, in either syntax.
struct FormatSpec {
  std::string fill = " ";
  char align = '\0';  // < > ^ = ; '\0': the default of the value's kind
  char sign = '-';    // + or blank: also shown for non-negative numbers
  bool alternate = false;
  char group = '\0';  // , or _ between thousands
  int width = 0;
  std::optional<int> precision;
  char type = '\0';
};

// REQUIRES: a number. For an integer the precision is the minimum number of digits.
std::string number_text(const Value& value, const FormatSpec& spec);
// The precision truncates; left-aligned by default.
std::string string_text(std::string_view text, const FormatSpec& spec);
// Formats %c: a code point, or a text of one.
std::string character_text(const Value& value, const FormatSpec& spec);
// Reads decimal digits at `pos` and steps over them; nullopt: none there. Throws over kFormatWidthMax.
std::optional<int> read_width(std::string_view text, size_t& pos);

}  // namespace troupe::jinja
