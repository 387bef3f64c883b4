#pragma once

// Python's format specifications, as far as "%…" and "{:…}" share them. Private to jinja_*format*.cc.

#include <optional>
#include <string>
#include <string_view>

#include "worker/text/jinja/value.h"

namespace troupe::jinja {

inline constexpr int kFormatWidthMax = 10'000;  // of one field; also its precision

// How one value is to be written, whichever way it was asked for.
struct FormatSpec {
  std::string fill = " ";
  char align = '\0';  // < > ^ = ; '\0': as the kind of value has it
  char sign = '-';    // + or blank: also before what is not negative
  bool alternate = false;
  char group = '\0';  // , or _ between thousands
  int width = 0;
  std::optional<int> precision;
  char type = '\0';
};

// REQUIRES: a number. In an integer the precision is a least number of digits.
std::string number_text(const Value& value, const FormatSpec& spec);
// The precision cuts; to the left unless aligned.
std::string string_text(std::string_view text, const FormatSpec& spec);
// %c: a code point, or a text of one.
std::string character_text(const Value& value, const FormatSpec& spec);
// Reads decimal digits at `pos` and steps over them; nullopt: there are none. Throws over kFormatWidthMax.
std::optional<int> read_width(std::string_view text, size_t& pos);

}  // namespace troupe::jinja
