#include "common/json/json.h"

#include <array>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>

#include "absl/strings/str_cat.h"
#include "common/core/regular_file.h"
#include "common/json/dom.h"
#include "common/json/wide_integers.h"

namespace troupe {

namespace {

bj::value to_value(dom::element element) {
  switch (element.type()) {
    case dom::element_type::OBJECT: {
      const dom::object fields = element.get_object().value_unsafe();
      bj::object out;
      out.reserve(fields.size());
      for (const auto field : fields) out.emplace(field.key, to_value(field.value));
      return out;
    }
    case dom::element_type::ARRAY: {
      const dom::array items = element.get_array().value_unsafe();
      bj::array out;
      out.reserve(items.size());
      for (const dom::element item : items) out.push_back(to_value(item));
      return out;
    }
    case dom::element_type::STRING: {
      const std::string_view text = element.get_string().value_unsafe();
      return bj::string(text.data(), text.size());
    }
    case dom::element_type::INT64:
      return element.get_int64().value_unsafe();
    case dom::element_type::UINT64:
      return element.get_uint64().value_unsafe();
    case dom::element_type::DOUBLE:
      return element.get_double().value_unsafe();
    case dom::element_type::BOOL:
      return element.get_bool().value_unsafe();
    case dom::element_type::NULL_VALUE:
      break;
  }
  return nullptr;
}

// Escape class of each byte in a JSON string: 0 none, 'u' a \u escape, 'L' the first byte of a line separator
// or of something else, else the letter after the backslash.
constexpr std::array<char, 256> make_escapes() {
  std::array<char, 256> table{};
  for (int c = 0; c < 0x20; ++c) table[c] = 'u';
  table['\b'] = 'b';
  table['\f'] = 'f';
  table['\n'] = 'n';
  table['\r'] = 'r';
  table['\t'] = 't';
  table['"'] = '"';
  table['\\'] = '\\';
  table[0xC2] = table[0xE2] = 'L';
  return table;
}
constexpr std::array<char, 256> kEscapes = make_escapes();

// The line separators beyond ASCII, U+0085, U+2028 and U+2029, that `text` begins with, escaped; empty: none.
// JSON need not escape them, but clients that read an event stream line by line cut lines there.
std::string_view escaped_separator(std::string_view text) {
  if (text.starts_with("\xC2\x85")) return "\\u0085";
  if (text.starts_with("\xE2\x80\xA8")) return "\\u2028";
  if (text.starts_with("\xE2\x80\xA9")) return "\\u2029";
  return {};
}

}  // namespace

StatusOr<bj::value> parse_json(std::string_view text, const JsonLimits& limits) {
  if (text.size() <= kSmallJsonBytes && limits.depth_max == JsonLimits{}.depth_max) {
    TROUPE_ASSIGN_OR_RETURN(const dom::element root, small_json().parse(text, limits.bytes_max));
    return to_value(root);
  }
  StrictJson json(limits.depth_max);
  TROUPE_ASSIGN_OR_RETURN(const dom::element root, json.parse(text, limits.bytes_max));
  return to_value(root);
}

StatusOr<bj::value> read_json_file(const std::string& path, const JsonLimits& limits) {
  TROUPE_ASSIGN_OR_RETURN(std::string text, read_regular_file(path, limits.bytes_max));
  if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
  auto value = parse_json(text, limits);
  if (value.ok()) return value;
  if (const std::string spelled = with_wide_integers(text, WideIntegers::kAsDoubles); !spelled.empty()) {
    if (auto widened = parse_json(spelled, limits); widened.ok()) return widened;
  }
  return annotate(value.status(), path);
}

std::string to_json(const bj::value& value) {
  return bj::serialize(value);
}

void append_json_string(std::string& out, std::string_view text) {
  static constexpr char kDigits[] = "0123456789abcdef";
  out += '"';
  size_t run_start = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const char escape = kEscapes[byte];
    if (escape == 0) continue;
    if (escape == 'L') {
      const std::string_view escaped = escaped_separator(text.substr(i));
      if (escaped.empty()) continue;
      out.append(text.data() + run_start, i - run_start);
      out += escaped;
      i += byte == 0xC2 ? 1 : 2;
      run_start = i + 1;
      continue;
    }
    out.append(text.data() + run_start, i - run_start);
    run_start = i + 1;
    out += '\\';
    out += escape;
    if (escape == 'u') {
      out += "00";
      out += kDigits[byte >> 4];
      out += kDigits[byte & 15];
    }
  }
  out.append(text.data() + run_start, text.size() - run_start);
  out += '"';
}

bool is_valid_utf8(std::string_view text) {
  return simdjson::validate_utf8(text.data(), text.size());
}

}  // namespace troupe
