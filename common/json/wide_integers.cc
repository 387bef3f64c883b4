#include "common/json/wide_integers.h"

#include <algorithm>

namespace troupe {

namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_of_number(char c) {
  return is_digit(c) || std::string_view("+-.eE").find(c) != std::string_view::npos;
}

// An integer without a sign but for a minus, of so many digits that 64 bits may not hold it. (One with a
// needless zero in front is no JSON; it is left for the parser to say so.)
bool is_wide_integer(std::string_view number) {
  const bool is_negative = number.front() == '-';
  const std::string_view digits = number.substr(is_negative ? 1 : 0);
  return digits.size() >= (is_negative ? 19u : 20u) && digits.front() != '0' &&
         std::all_of(digits.begin(), digits.end(), is_digit);
}

void append_number(std::string_view number, WideIntegers how, std::string& out) {
  if (!is_wide_integer(number)) {
    out += number;
  } else if (how == WideIntegers::kAsDoubles) {
    out.append(number).append("e0");
  } else {
    out.append("\"").append(kWideIntegerMark).append(number).append("\"");
  }
}

}  // namespace

std::string with_wide_integers(std::string_view json, WideIntegers how) {
  std::string out;
  bool has_any = false;
  bool in_string = false;
  for (size_t i = 0; i < json.size();) {
    const size_t begin = i;
    if (in_string || !(is_digit(json[i]) || json[i] == '-')) {
      if (in_string && json[i] == '\\' && i + 1 < json.size())
        ++i;
      else if (json[i] == '"')
        in_string = !in_string;
      ++i;
      out += json.substr(begin, i - begin);
      continue;
    }
    while (i < json.size() && is_of_number(json[i])) ++i;
    const std::string_view number = json.substr(begin, i - begin);
    has_any |= is_wide_integer(number);
    append_number(number, how, out);
  }
  return has_any ? out : std::string();
}

std::string_view wide_integer_of(std::string_view text) {
  if (!text.starts_with(kWideIntegerMark)) return {};
  text.remove_prefix(kWideIntegerMark.size());
  return !text.empty() && is_wide_integer(text) ? text : std::string_view();
}

}  // namespace troupe
