// json.dumps() and Python's float repr, byte for byte: prompts are made of them.

#include <algorithm>
#include <charconv>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "worker/text/jinja/meter.h"
#include "worker/text/jinja/text.h"
#include "worker/text/unicode.h"

namespace troupe::jinja {
namespace {

constexpr size_t kJsonBytesMax = 16u << 20;

class Dumper {
 public:
  explicit Dumper(const JsonStyle& style) : style_(style) {}

  void dump(const Value& value, int level) {
    if (out_.size() > kJsonBytesMax)
      throw JinjaError(absl::StrCat("tojson: more than ", kJsonBytesMax, " bytes"));
    if (value.is_none()) {
      out_ += "null";
    } else if (value.is_bool()) {
      out_ += value.integer() != 0 ? "true" : "false";
    } else if (value.is_int()) {
      absl::StrAppend(&out_, value.integer());
    } else if (value.is_float()) {
      number(value.number());
    } else if (value.is_string()) {
      string(value.text());
    } else if (const List* list = value.list(); list != nullptr && is_json_list(*list)) {
      array(*list, level);
    } else if (const Dict* dict = value.dict()) {
      object(*dict, level);
    } else if (const WideInteger* wide = wide_integer(value)) {
      out_ += wide->digits();
    } else {
      throw JinjaError("Object of type " + value.type_name() + " is not JSON serializable");
    }
  }

  std::string take() { return std::move(out_); }

 private:
  static bool is_json_list(const List& list) {
    return list.kind == ListKind::kList || list.kind == ListKind::kTuple;
  }

  void number(double value) {
    if (std::isnan(value)) {
      out_ += "NaN";
    } else if (std::isinf(value)) {
      out_ += value > 0 ? "Infinity" : "-Infinity";
    } else {
      out_ += float_repr(value);
    }
  }

  void string(std::string_view text) {
    out_.push_back('"');
    for (size_t pos = 0; pos < text.size();) {
      size_t begin = pos;
      char32_t c = next_code_point(text, pos);
      constexpr std::string_view kShort = "\"\\\n\r\t\f\b";
      constexpr std::string_view kLetters = "\"\\nrtfb";
      size_t at = c < 0x80 ? kShort.find(static_cast<char>(c)) : std::string_view::npos;
      if (at != std::string_view::npos) {
        out_.push_back('\\');
        out_.push_back(kLetters[at]);
      } else if (c < 0x20 || (c > 0x7F && style_.ensure_ascii && !is_mark(c))) {
        escape(c);
      } else {
        out_ += text.substr(begin, pos - begin);
      }
    }
    out_.push_back('"');
  }

  void escape(char32_t c) {
    auto unit = [&](uint32_t value) { absl::StrAppendFormat(&out_, "\\u%04x", value); };
    if (c < 0x10000) {
      unit(c);
    } else {
      unit(0xD800 + ((c - 0x10000) >> 10));
      unit(0xDC00 + ((c - 0x10000) & 0x3FF));
    }
  }

  void new_line(int level) {
    if (!style_.indent.has_value()) return;
    out_.push_back('\n');
    for (int i = 0; i < level; ++i) out_ += *style_.indent;
  }

  void array(const List& list, int level) {
    if (list.items.empty()) {
      out_ += "[]";
      return;
    }
    out_.push_back('[');
    for (size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      new_line(level + 1);
      dump(list.items[i], level + 1);
    }
    new_line(level);
    out_.push_back(']');
  }

  void object(const Dict& dict, int level) {
    if (dict.entries.empty()) {
      out_ += "{}";
      return;
    }
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(),
                       [](auto* a, auto* b) { return less(a->first, b->first); });
    }
    out_.push_back('{');
    bool first = true;
    for (const auto* entry : entries) {
      if (!first) out_ += style_.item_separator;
      first = false;
      new_line(level + 1);
      string(key(entry->first));
      out_ += style_.key_separator;
      dump(entry->second, level + 1);
    }
    new_line(level);
    out_.push_back('}');
  }

  static std::string key(const Value& value) {
    if (value.is_string()) return value.text();
    if (value.is_none()) return "null";
    if (value.is_bool()) return value.integer() != 0 ? "true" : "false";
    if (value.is_number()) return repr(value);
    throw JinjaError("keys must be str, int, float, bool or None, not " + value.type_name());
  }

  const JsonStyle& style_;
  std::string out_;
};

}  // namespace

std::string dump_json(const Value& value, const JsonStyle& style) {
  Dumper dumper(style);
  dumper.dump(value, 0);
  std::string text = dumper.take();
  charge_characters(text.size());
  return text;
}

// The shortest digits that read back as the same number, written plain from 1e-4 up to 1e16.
std::string float_repr(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  char buffer[64];
  auto end = std::to_chars(buffer, buffer + sizeof buffer, number, std::chars_format::scientific).ptr;
  std::string_view text(buffer, static_cast<size_t>(end - buffer));
  std::string sign = text.front() == '-' ? "-" : "";
  if (!sign.empty()) text.remove_prefix(1);
  size_t e = text.find('e');
  std::string digits(1, text[0]);
  if (e > 2) digits += text.substr(2, e - 2);
  int exponent = 0;
  std::string_view exponent_text = text.substr(e + 1);
  if (exponent_text.front() == '+') exponent_text.remove_prefix(1);
  std::from_chars(exponent_text.data(), exponent_text.data() + exponent_text.size(), exponent);
  if (exponent < -4 || exponent >= 16) {
    std::string fraction = digits.size() > 1 ? "." + digits.substr(1) : "";
    return absl::StrFormat("%s%c%se%c%02d", sign, digits[0], fraction, exponent < 0 ? '-' : '+',
                           std::abs(exponent));
  }
  if (exponent < 0) return sign + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  auto whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) return sign + digits + std::string(whole - digits.size(), '0') + ".0";
  return sign + digits.substr(0, whole) + "." + digits.substr(whole);
}

}  // namespace troupe::jinja
