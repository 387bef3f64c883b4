#pragma once

// Converts values to text: Python's str() and repr(), json.dumps(), and the string operations of templates.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "worker/text/jinja/value.h"

namespace troupe::jinja {

// All of these charge the meter (meter.h) for the text they read.

// Position of the first `needle` at or after `from`, or of the last; npos: none. Linear in
// both, unlike std::string's.
size_t find_text(std::string_view text, std::string_view needle, size_t from);
size_t find_last_text(std::string_view text, std::string_view needle);
// Python's str.isprintable() of one character.
bool is_printable(char32_t c);

// Characters that mark places of a text until it has been rendered (tokenizer/cut_text.h, chat_messages.h):
// where Python would escape them they stay.
inline bool is_mark(char32_t c) {
  return c >= 0xFDD0 && c <= 0xFDD3;
}

// Throws the reason if the value is undefined.
void require_defined(const Value& value);

// Python's str(); undefined is "". An error beyond `bytes_max`.
std::string to_text(const Value& value);
std::string repr(const Value& value);
std::string float_repr(double number);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // one level of it
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
// Python's json.dumps(); an error for values JSON lacks.
std::string dump_json(const Value& value, const JsonStyle& style);

// Python's str.isspace() for one character.
bool is_python_space(char32_t code_point);
std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string capitalize(std::string_view text);
// Python's str.title(): a capital wherever a letter follows a character without case.
std::string title(std::string_view text);
// Python's str.strip(chars); without `chars`: white space.
enum class StripSide : uint8_t { kBoth, kLeft, kRight };
std::string_view strip(std::string_view text, std::optional<std::string_view> chars, StripSide side);
// str.splitlines()
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);
std::string escape_html(std::string_view text);

}  // namespace troupe::jinja
