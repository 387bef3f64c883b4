// Methods and filters that lay out or classify text: the rarer ones of strings.

#include <utf8proc.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/core/status.h"
#include "worker/text/jinja/filter_table.h"
#include "worker/text/jinja/filters.h"
#include "worker/text/jinja/format.h"
#include "worker/text/jinja/function.h"
#include "worker/text/jinja/meter.h"
#include "worker/text/jinja/operators.h"
#include "worker/text/jinja/runtime.h"
#include "worker/text/jinja/text.h"
#include "worker/text/unicode.h"

namespace troupe::jinja {
namespace {

Value like(Runtime& runtime, const Value& self, std::string text) {
  return runtime.text(std::move(text), self.is_markup());
}

// Repeats `fill` `count` times, within the template's limits.
std::string repeated(Runtime& runtime, const std::string& fill, int64_t count) {
  if (count > 0) runtime.check_repetition(fill.size(), count);
  std::string out;
  for (int64_t i = 0; i < count; ++i) out += fill;
  return out;
}

std::string centered(Runtime& runtime, const std::string& text, int64_t width, const std::string& fill) {
  const int64_t missing = width - static_cast<int64_t>(count_code_points(text));
  if (missing <= 0) return text;
  const int64_t left = missing / 2 + (missing & width & 1);
  return repeated(runtime, fill, left) + text + repeated(runtime, fill, missing - left);
}

std::string fill_character(const Bound& bound) {
  std::string fill = bound.text(1, " ");
  if (count_code_points(fill) != 1) throw JinjaError("The fill character must be exactly one character long");
  return fill;
}

Value str_center(Runtime& runtime, const Value& self, Arguments& arguments) {
  Bound bound("center", arguments, {"width", "fillchar"});
  bound.required(0);
  return like(runtime, self, centered(runtime, self.text(), bound.integer(0, 0), fill_character(bound)));
}

template <bool kLeft>
Value str_just(Runtime& runtime, const Value& self, Arguments& arguments) {
  Bound bound(kLeft ? "ljust" : "rjust", arguments, {"width", "fillchar"});
  bound.required(0);
  const int64_t missing = bound.integer(0, 0) - length(self);
  std::string fill = repeated(runtime, fill_character(bound), missing);
  return like(runtime, self, kLeft ? self.text() + fill : fill + self.text());
}

Value str_zfill(Runtime& runtime, const Value& self, Arguments& arguments) {
  Bound bound("zfill", arguments, {"width"});
  bound.required(0);
  std::string text = self.text();
  const size_t sign = text.starts_with('+') || text.starts_with('-') ? 1 : 0;
  text.insert(sign, repeated(runtime, "0", bound.integer(0, 0) - length(self)));
  return like(runtime, self, std::move(text));
}

template <bool kFromRight>
Value str_partition(Runtime& runtime, const Value& self, Arguments& arguments) {
  Bound bound("partition", arguments, {"sep"});
  bound.required(0);
  const std::string separator = bound.text(0, "");
  if (separator.empty()) throw JinjaError("empty separator");
  const std::string& text = self.text();
  const size_t at = kFromRight ? find_last_text(text, separator) : find_text(text, separator, 0);
  std::vector<std::string> parts{text, "", ""};
  if (at != std::string::npos) parts = {text.substr(0, at), separator, text.substr(at + separator.size())};
  if (at == std::string::npos && kFromRight) std::swap(parts[0], parts[2]);
  std::vector<Value> values;
  for (std::string& part : parts) values.push_back(like(runtime, self, std::move(part)));
  return make_list(std::move(values), ListKind::kTuple);
}

Value str_expandtabs(Runtime& runtime, const Value& self, Arguments& arguments) {
  Bound bound("expandtabs", arguments, {"tabsize"});
  const int64_t size = bound.integer(0, 8);
  std::string out;
  int64_t column = 0;
  for (std::string_view character : characters(self.text())) {
    if (character != "\t") {
      out += character;
      column = character == "\n" || character == "\r" ? 0 : column + 1;
    } else if (size > 0) {
      const int64_t count = size - column % size;
      out += repeated(runtime, " ", count);
      column += count;
    }
    runtime.check_text(out.size());
  }
  return like(runtime, self, std::move(out));
}

bool is_upper_letter(char32_t c) {
  return utf8proc_isupper(static_cast<utf8proc_int32_t>(c)) != 0;
}
bool is_lower_letter(char32_t c) {
  return utf8proc_islower(static_cast<utf8proc_int32_t>(c)) != 0;
}
bool is_title_letter(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c)) == UTF8PROC_CATEGORY_LT;
}

Value str_swapcase(Runtime& runtime, const Value& self, Arguments& arguments) {
  Bound bound("swapcase", arguments, {});
  std::string out;
  for (std::string_view character : characters(self.text())) {
    size_t pos = 0;
    const char32_t c = next_code_point(character, pos);
    out += is_upper_letter(c)   ? to_lower(character)
           : is_lower_letter(c) ? to_upper(character)
                                : std::string(character);
  }
  return like(runtime, self, std::move(out));
}

Value str_casefold(Runtime& runtime, const Value& self, Arguments& arguments) {
  Bound bound("casefold", arguments, {});
  std::string out;
  for (std::string_view character : characters(self.text())) {
    size_t pos = 0;
    utf8proc_int32_t folded[8];
    int boundary = 0;
    const auto c = static_cast<utf8proc_int32_t>(next_code_point(character, pos));
    const auto count = utf8proc_decompose_char(c, folded, 8, UTF8PROC_CASEFOLD, &boundary);
    for (utf8proc_ssize_t i = 0; i < count; ++i) append_utf8(out, static_cast<char32_t>(folded[i]));
  }
  return like(runtime, self, std::move(out));
}

// Whether some letter has the case, and none the other one.
template <bool kUpper>
Value str_is_case(Runtime&, const Value& self, Arguments& arguments) {
  Bound bound("isupper or islower", arguments, {});
  charge_characters(self.text().size());
  bool any = false;
  for (size_t pos = 0; pos < self.text().size();) {
    const char32_t c = next_code_point(self.text(), pos);
    if ((kUpper ? is_lower_letter(c) : is_upper_letter(c)) || is_title_letter(c)) return Value(false);
    any = any || (kUpper ? is_upper_letter(c) : is_lower_letter(c));
  }
  return Value(any);
}

Value str_istitle(Runtime&, const Value& self, Arguments& arguments) {
  Bound bound("istitle", arguments, {});
  charge_characters(self.text().size());
  bool any = false, after_cased = false;
  for (size_t pos = 0; pos < self.text().size();) {
    const char32_t c = next_code_point(self.text(), pos);
    const bool starts = is_upper_letter(c) || is_title_letter(c);
    if ((starts && after_cased) || (is_lower_letter(c) && !after_cased)) return Value(false);
    after_cased = starts || is_lower_letter(c);
    any = any || after_cased;
  }
  return Value(any);
}

bool is_alphanumeric(char32_t c) {
  return is_letter(c) || is_decimal_digit(c);
}

// Whether every character satisfies kHolds; `kEmpty`: the result for an empty text.
template <bool (*kHolds)(char32_t), bool kEmpty>
Value str_all(Runtime&, const Value& self, Arguments& arguments) {
  Bound bound("a string's is…() method", arguments, {});
  const std::string& text = self.text();
  charge_characters(text.size());
  for (size_t pos = 0; pos < text.size();) {
    if (!kHolds(next_code_point(text, pos))) return Value(false);
  }
  return Value(kEmpty || !text.empty());
}

bool is_ascii(char32_t c) {
  return c < 0x80;
}

Value str_isidentifier(Runtime&, const Value& self, Arguments& arguments) {
  Bound bound("isidentifier", arguments, {});
  const std::string& text = self.text();
  charge_characters(text.size());
  bool first = true;
  for (size_t pos = 0; pos < text.size(); first = false) {
    const char32_t c = next_code_point(text, pos);
    if (!is_letter(c) && c != '_' && (first || !is_word_char(c))) return Value(false);
  }
  return Value(!text.empty());
}

Value str_format(Runtime& runtime, const Value& self, Arguments& arguments) {
  return brace_format(runtime, self, arguments);
}

Value str_format_map(Runtime& runtime, const Value& self, Arguments& arguments) {
  Bound bound("format_map", arguments, {"mapping"});
  if (bound.required(0).dict() == nullptr) throw JinjaError("format_map() takes a mapping");
  Arguments named;
  for (const auto& [key, value] : bound.required(0).dict()->entries) {
    runtime.step();
    if (key.is_string()) named.named.emplace_back(to_text(key), value);
  }
  return brace_format(runtime, self, named);
}

// Formats "%s"|format(…): the arguments are a tuple, or the named ones a mapping.
Value filter_format(Runtime& runtime, const Value& input, Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty())
    throw JinjaError("can't handle positional and keyword arguments at the same time");
  Value format = input.is_string() ? input : runtime.text(to_text(input));
  if (arguments.named.empty())
    return percent_format(runtime, format, make_list(arguments.positional, ListKind::kTuple));
  Dict named;
  for (const auto& [name, value] : arguments.named) named.set(Value(name), value);
  return percent_format(runtime, format, make_dict(std::move(named)));
}

Value filter_center(Runtime& runtime, const Value& input, Arguments& arguments) {
  Bound bound("center", arguments, {"width"});
  return like(runtime, input, centered(runtime, to_text(input), bound.integer(0, 80), " "));
}

Value filter_truncate(Runtime& runtime, const Value& input, Arguments& arguments) {
  Bound bound("truncate", arguments, {"length", "killwords", "end", "leeway"});
  const int64_t most = bound.integer(0, 255);
  const std::string end = bound.text(2, "...");
  const Value leeway = bound.value(3, Value(None{}));
  const int64_t slack = leeway.is_none() ? 5 : bound.integer(3, 5);
  const int64_t kept = most - length(Value(end));
  if (kept < 0) throw JinjaError("truncate(): length must be at least that of end");
  if (slack < 0) throw JinjaError("truncate(): leeway must be at least 0");
  const int64_t size = length(input);
  if (size <= most || size - most <= slack) return input;
  Value cut = slice(runtime, input, {std::nullopt, kept, std::nullopt});
  if (!cut.is_string()) throw JinjaError("truncate(): a string is needed, not " + input.type_name());
  if (bound.flag(1, false)) return like(runtime, input, cut.text() + end);
  return like(runtime, input, cut.text().substr(0, find_last_text(cut.text(), " ")) + end);
}

std::string url_quoted(std::string_view text, bool keep_slash) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       std::string_view("_.-~").find(c) != std::string_view::npos || (keep_slash && c == '/');
    if (plain) {
      out.push_back(c);
    } else {
      absl::StrAppendFormat(&out, "%%%02X", static_cast<unsigned char>(c));
    }
  }
  return out;
}

Value filter_urlencode(Runtime& runtime, const Value& input, Arguments& arguments) {
  Bound bound("urlencode", arguments, {});
  if (input.dict() == nullptr && (input.is_string() || input.list() == nullptr))
    return runtime.text(url_quoted(to_text(input), true));
  std::vector<std::string> pairs;
  const auto add = [&](const Value& key, const Value& value) {
    const auto part = [](const Value& v) {
      std::string quoted = url_quoted(to_text(v), false);
      std::string out;
      for (size_t at = 0; at < quoted.size(); ++at) {
        const bool blank = quoted.compare(at, 3, "%20") == 0;
        out += blank ? '+' : quoted[at];
        if (blank) at += 2;
      }
      return out;
    };
    pairs.push_back(part(key) + "=" + part(value));
    runtime.charge_text(pairs.back().size());
  };
  if (const Dict* dict = input.dict()) {
    for (const auto& [key, value] : dict->entries) add(key, value);
  } else {
    for (const Value& item : runtime.iterate(input)) {
      std::vector<Value> pair = runtime.iterate(item);
      if (pair.size() != 2) throw JinjaError("urlencode(): a list must be one of pairs");
      add(pair[0], pair[1]);
    }
  }
  return runtime.text(join_texts(runtime, pairs, "&"));
}

Value filter_forceescape(Runtime& runtime, const Value& input, Arguments& arguments) {
  Bound bound("forceescape", arguments, {});
  return runtime.text(escape_html(to_text(input)), true);
}

}  // namespace

TextMethod find_layout_method(std::string_view name) {
  constexpr std::pair<std::string_view, TextMethod> kRows[] = {
      {"casefold", str_casefold},
      {"center", str_center},
      {"expandtabs", str_expandtabs},
      {"format", str_format},
      {"format_map", str_format_map},
      {"isalnum", str_all<is_alphanumeric, false>},
      {"isascii", str_all<is_ascii, true>},
      {"isdecimal", str_all<is_decimal_digit, false>},
      {"isidentifier", str_isidentifier},
      {"islower", str_is_case<false>},
      {"isprintable", str_all<is_printable, true>},
      {"istitle", str_istitle},
      {"isupper", str_is_case<true>},
      {"ljust", str_just<true>},
      {"partition", str_partition<false>},
      {"rjust", str_just<false>},
      {"rpartition", str_partition<true>},
      {"swapcase", str_swapcase},
      {"zfill", str_zfill},
  };
  for (const auto& [known, method] : kRows) {
    if (known == name) return method;
  }
  return nullptr;
}

const absl::flat_hash_map<std::string_view, FilterFunction>& layout_filters() {
  static const auto* const kTable = new absl::flat_hash_map<std::string_view, FilterFunction>{
      {"center", filter_center},     {"forceescape", filter_forceescape}, {"format", filter_format},
      {"truncate", filter_truncate}, {"urlencode", filter_urlencode},
  };
  return *kTable;
}

}  // namespace troupe::jinja
