#include "common/json/wide_integers.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <random>

namespace troupe {

namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_of_number(char c) {
  return is_digit(c) || std::string_view("+-.eE").find(c) != std::string_view::npos;
}

// A shorter run of digits is no such integer, whatever its sign.
constexpr size_t kDigitsMin = 19;

// Looks at every nineteenth byte, and around it where that is a digit.
bool has_long_number(std::string_view json) {
  for (size_t i = kDigitsMin - 1; i < json.size(); i += kDigitsMin) {
    if (!is_digit(json[i])) continue;
    size_t begin = i, end = i + 1;
    while (begin > 0 && is_digit(json[begin - 1])) --begin;
    while (end < json.size() && is_digit(json[end])) ++end;
    if (end - begin >= kDigitsMin) return true;
  }
  return false;
}

template <class Integer>
bool holds(std::string_view number) {
  Integer value = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  return error == std::errc() && end == number.data() + number.size();
}

// An integer without a sign but for a minus, which neither 64 bits with a sign nor without one hold. (One
// with a needless zero in front is no JSON; it is left for the parser to say so.)
bool is_wide_integer(std::string_view number) {
  const std::string_view digits = number.substr(number.starts_with('-') ? 1 : 0);
  return digits.size() >= kDigitsMin && digits.front() != '0' &&
         std::all_of(digits.begin(), digits.end(), is_digit) && !holds<int64_t>(number) &&
         !holds<uint64_t>(number);
}

// U+FDD2, a noncharacter, and digits that are drawn anew for each process: no client can spell it.
std::string draw_mark() {
  std::random_device device;
  char hex[33];
  std::snprintf(hex, sizeof hex, "%08x%08x%08x%08x", device(), device(), device(), device());
  return std::string("\xEF\xB7\x92") + hex + ":";
}

// The end of the string that begins at `begin`.
size_t end_of_string(std::string_view json, size_t begin) {
  for (size_t i = begin + 1; i < json.size(); ++i) {
    if (json[i] == '"') return i + 1;
    if (json[i] == '\\') ++i;
  }
  return json.size();
}

// A number stands where a key belongs: it stays the mistake that it is.
bool is_key(std::string_view rest) {
  const size_t at = rest.find_first_not_of(" \t\r\n");
  return at != std::string_view::npos && rest[at] == ':';
}

void append_number(std::string_view number, WideIntegers how, std::string& out) {
  if (how == WideIntegers::kAsDoubles) {
    out.append(number).append("e0");
  } else {
    out.append("\"").append(wide_integer_mark()).append(number).append("\"");
  }
}

}  // namespace

std::string_view wide_integer_mark() {
  static const std::string mark = draw_mark();
  return mark;
}

std::string with_wide_integers(std::string_view json, WideIntegers how) {
  std::string out;
  if (!has_long_number(json)) return out;
  size_t copied = 0;  // bytes of `json` that `out` has
  for (size_t i = 0; i < json.size();) {
    if (json[i] == '"') {
      i = end_of_string(json, i);
      continue;
    }
    if (!is_digit(json[i]) && json[i] != '-') {
      ++i;
      continue;
    }
    const size_t begin = i;
    while (i < json.size() && is_of_number(json[i])) ++i;
    const std::string_view number = json.substr(begin, i - begin);
    if (!is_wide_integer(number) || is_key(json.substr(i))) continue;
    out += json.substr(copied, begin - copied);
    append_number(number, how, out);
    copied = i;
  }
  if (copied > 0) out += json.substr(copied);
  return out;
}

std::string_view wide_integer_of(std::string_view text) {
  const std::string_view mark = wide_integer_mark();
  if (!text.starts_with(mark)) return {};
  text.remove_prefix(mark.size());
  return !text.empty() && is_wide_integer(text) ? text : std::string_view();
}

}  // namespace troupe
