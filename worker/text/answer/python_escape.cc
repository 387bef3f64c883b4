#include "worker/text/answer/python_escape.h"

#include <string_view>

#include "worker/text/unicode.h"

namespace troupe {

bool PythonEscape::push(char byte, std::string& text) {
  if (digits_left_ > 0) return push_digit(byte, text);
  constexpr std::string_view kNames = "nrtbfav0\\'\"";
  constexpr std::string_view kBytes("\n\r\t\b\f\a\v\0\\'\"", 11);
  if (const size_t at = kNames.find(byte); at != std::string_view::npos) {
    text = kBytes[at];
  } else if (byte == 'x' || byte == 'u' || byte == 'U') {
    digits_left_ = byte == 'x' ? 2 : (byte == 'u' ? 4 : 8);
    code_ = 0;
    return false;
  } else {
    text = byte == '\n' ? "" : std::string("\\") + byte;
  }
  return true;
}

bool PythonEscape::push_digit(char byte, std::string& text) {
  constexpr std::string_view kDigits = "0123456789abcdefABCDEF";
  const size_t digit = kDigits.find(byte);
  const bool is_digit = digit != std::string_view::npos;
  if (is_digit) code_ = code_ << 4 | static_cast<uint32_t>(digit < 16 ? digit : digit - 6);
  if (is_digit && --digits_left_ > 0) return false;
  digits_left_ = 0;
  text.clear();
  const bool is_character = is_digit && code_ <= 0x10FFFF && (code_ < 0xD800 || code_ > 0xDFFF);
  append_utf8(text, is_character ? code_ : 0xFFFD);
  if (!is_digit) text += byte;
  return true;
}

}  // namespace troupe
