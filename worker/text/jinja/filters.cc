// The table of filters; list_filters.cc has those that work on lists. Names and parameters are Python's.

#include "worker/text/jinja/filters.h"

#include <charconv>
#include <cmath>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "worker/text/jinja/filter_table.h"
#include "worker/text/jinja/function.h"
#include "worker/text/jinja/meter.h"
#include "worker/text/jinja/operators.h"
#include "worker/text/jinja/runtime.h"
#include "worker/text/jinja/text.h"
#include "worker/text/unicode.h"

namespace troupe::jinja {
namespace {

constexpr int64_t kIndentMax = 1000;

// Keeps the markup flag of the input.
Value same_kind(Runtime& runtime, const Value& input, std::string text) {
  return runtime.text(std::move(text), input.is_markup());
}

Value filter_tojson(Runtime& runtime, const Value& input, Arguments& arguments) {
  Bound bound("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = bound.flag(0, false);
  style.sort_keys = bound.flag(3, false);
  Value indent = bound.value(1, Value(None{}));
  if (indent.is_string()) {
    style.indent = indent.text();
  } else if (!indent.is_none()) {
    int64_t width = std::min(std::max<int64_t>(bound.integer(1, 0), 0), kIndentMax);
    style.indent = std::string(static_cast<size_t>(width), ' ');
  }
  if (style.indent.has_value()) style.item_separator = ",";
  if (bound.has(2) && !bound.required(2).is_none()) {
    std::vector<Value> separators = runtime.iterate(bound.required(2));
    if (separators.size() != 2 || !separators[0].is_string() || !separators[1].is_string()) {
      throw JinjaError("tojson(): separators must be two strings");
    }
    style.item_separator = separators[0].text();
    style.key_separator = separators[1].text();
  }
  return runtime.text(dump_json(input, style));
}

Value filter_trim(Runtime& runtime, const Value& input, Arguments& arguments) {
  Bound bound("trim", arguments, {"chars"});
  std::string text = to_text(input);
  std::optional<std::string_view> chars;
  std::string given = bound.has(0) && !bound.required(0).is_none() ? bound.text(0, "") : "";
  if (bound.has(0) && !bound.required(0).is_none()) chars = given;
  return same_kind(runtime, input, std::string(strip(text, chars, StripSide::kBoth)));
}

Value filter_indent(Runtime& runtime, const Value& input, Arguments& arguments) {
  Bound bound("indent", arguments, {"width", "first", "blank"});
  std::string step;
  if (bound.has(0) && bound.required(0).is_string()) {
    step = bound.required(0).text();
  } else {
    step.assign(static_cast<size_t>(std::min(std::max<int64_t>(bound.integer(0, 4), 0), kIndentMax)), ' ');
  }
  require_defined(input);
  if (!input.is_string()) throw JinjaError("indent(): a string is needed, not " + input.type_name());
  std::string text = input.text() + "\n";
  std::string out = bound.flag(1, false) ? step : "";
  bool at_start = true;
  for (std::string_view line : split_lines(text, false)) {
    if (!at_start) out += "\n";
    if (!at_start && (bound.flag(2, false) || !line.empty())) out += step;
    at_start = false;
    out += line;
    runtime.check_text(out.size());
  }
  return same_kind(runtime, input, std::move(out));
}

Value filter_default(Runtime&, const Value& input, Arguments& arguments) {
  Bound bound("default", arguments, {"default_value", "boolean"});
  bool replaced = input.is_undefined() || (bound.flag(1, false) && !input.truthy());
  return replaced ? bound.value(0, Value("")) : input;
}

[[noreturn]] void too_large_integer() {
  throw JinjaError("an integer does not fit into 64 bits");
}

Value integer_of(double number, const Value& fallback) {
  if (std::isnan(number) || std::isinf(number)) return fallback;
  if (std::fabs(number) >= 9.2e18) too_large_integer();
  return Value(static_cast<int64_t>(number));
}

// Parses int(text, base) as Python does; nullopt: no such number.
std::optional<int64_t> read_integer(std::string_view text, int base) {
  text = strip(text, std::nullopt, StripSide::kBoth);
  bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  std::string digits;
  constexpr std::pair<int, std::string_view> kPrefixes[] = {{16, "xX"}, {8, "oO"}, {2, "bB"}};
  for (const auto& [prefix_base, letters] : kPrefixes) {
    bool has_prefix = text.size() > 2 && text[0] == '0' && letters.find(text[1]) != std::string_view::npos;
    if (has_prefix && (base == prefix_base || base == 0)) {
      base = prefix_base;
      text.remove_prefix(text[2] == '_' ? 3 : 2);
    }
  }
  if (base == 0 && text.size() > 1 && text[0] == '0' &&
      text.find_first_not_of("0_") != std::string_view::npos)
    return std::nullopt;
  for (size_t i = 0; i < text.size(); ++i) {
    bool single = text[i] == '_' && i > 0 && i + 1 < text.size() && text[i + 1] != '_';
    if (text[i] == '_' && !single) return std::nullopt;
    if (text[i] != '_') digits += text[i];
  }
  if (negative) digits.insert(0, "-");
  int64_t integer = 0;
  const char* end = digits.data() + digits.size();
  auto result = std::from_chars(digits.data(), end, integer, base == 0 ? 10 : base);
  if (result.ptr != end || result.ec == std::errc::invalid_argument) return std::nullopt;
  if (result.ec == std::errc::result_out_of_range) too_large_integer();
  return integer;
}

Value filter_int(Runtime&, const Value& input, Arguments& arguments) {
  Bound bound("int", arguments, {"default", "base"});
  require_defined(input);
  Value fallback = bound.value(0, Value(0));
  if (input.is_integer_like()) return Value(input.integer());
  if (input.is_float()) {
    if (std::isinf(input.number())) throw JinjaError("cannot convert float infinity to integer");
    return integer_of(input.number(), fallback);
  }
  if (!input.is_string()) return fallback;
  int64_t base = bound.integer(1, 10);
  bool is_base = base == 0 || (base >= 2 && base <= 36);
  std::optional<int64_t> integer =
      is_base ? read_integer(input.text(), static_cast<int>(base)) : std::nullopt;
  if (integer.has_value()) return Value(*integer);
  double number = 0;
  std::string text(strip(input.text(), std::nullopt, StripSide::kBoth));
  return absl::SimpleAtod(text, &number) ? integer_of(number, fallback) : fallback;
}

Value filter_float(Runtime&, const Value& input, Arguments& arguments) {
  Bound bound("float", arguments, {"default"});
  require_defined(input);
  if (input.is_number()) return Value(input.number());
  double number = 0;
  bool readable = input.is_string() &&
                  absl::SimpleAtod(to_absl(strip(input.text(), std::nullopt, StripSide::kBoth)), &number);
  return readable ? Value(number) : bound.value(0, Value(0.0));
}

Value filter_abs(Runtime&, const Value& input, Arguments& arguments) {
  Bound bound("abs", arguments, {});
  require_defined(input);
  if (input.is_float()) return Value(std::fabs(input.number()));
  if (!input.is_integer_like()) throw JinjaError("bad operand type for abs(): '" + input.type_name() + "'");
  return input.integer() < 0 ? negate(input) : Value(input.integer());
}

Value filter_round(Runtime&, const Value& input, Arguments& arguments) {
  Bound bound("round", arguments, {"precision", "method"});
  require_defined(input);
  if (!input.is_number()) throw JinjaError("round(): a number is needed, not " + input.type_name());
  int64_t precision = bound.integer(0, 0);
  std::string method = bound.text(1, "common");
  if (precision < -300 || precision > 300) throw JinjaError("round(): precision is out of range");
  if (method != "common" && method != "ceil" && method != "floor") {
    throw JinjaError("round(): method must be common, ceil or floor");
  }
  double scale = std::pow(10.0, static_cast<double>(precision));
  if (method == "ceil") return Value(std::ceil(input.number() * scale) / scale);
  if (method == "floor") return Value(std::floor(input.number() * scale) / scale);
  // Python's round() keeps integers; other digits come from correctly rounded decimals, half to even.
  if (input.is_integer_like() && precision >= 0) return Value(input.integer());
  if (precision <= 0) return Value(std::nearbyint(input.number() * scale) / scale);
  char buffer[700];
  auto end = std::to_chars(buffer, buffer + sizeof buffer, input.number(), std::chars_format::fixed,
                           static_cast<int>(precision));
  double rounded = input.number();
  std::from_chars(buffer, end.ptr, rounded);
  return Value(rounded);
}

Value filter_replace(Runtime& runtime, const Value& input, Arguments& arguments) {
  Bound bound("replace", arguments, {"old", "new", "count"});
  std::string old_text = to_text(bound.required(0));
  std::string new_text = to_text(bound.required(1));
  Value count = bound.value(2, Value(None{}));
  return same_kind(runtime, input,
                   replace_text(runtime, {to_text(input), old_text, new_text},
                                count.is_none() ? -1 : bound.integer(2, -1)));
}

// Jinja's own str.title(): words begin after blanks, '-', '(', '{', '[' and '<'.
Value filter_title(Runtime& runtime, const Value& input, Arguments& arguments) {
  Bound bound("title", arguments, {});
  std::string text = to_text(input);
  std::string out;
  bool at_start = true;
  for (std::string_view character : characters(text)) {
    size_t pos = 0;
    char32_t c = next_code_point(character, pos);
    bool separator =
        is_python_space(c) ||
        (c < 0x80 && std::string_view("-({[<").find(static_cast<char>(c)) != std::string_view::npos);
    out += at_start ? to_upper(character) : to_lower(character);
    at_start = separator;
  }
  return same_kind(runtime, input, std::move(out));
}

Value filter_safe(Runtime& runtime, const Value& input, Arguments& arguments) {
  Bound bound("safe", arguments, {});
  return runtime.text(to_text(input), true);
}

Value filter_escape(Runtime& runtime, const Value& input, Arguments& arguments) {
  Bound bound("escape", arguments, {});
  return input.is_markup() ? input : runtime.text(escape_html(to_text(input)), true);
}

Value filter_string(Runtime& runtime, const Value& input, Arguments& arguments) {
  Bound bound("string", arguments, {});
  return input.is_string() ? input : runtime.text(to_text(input));
}

Value filter_length(Runtime&, const Value& input, Arguments& arguments) {
  Bound bound("length", arguments, {});
  return Value(length(input));
}

Value filter_wordcount(Runtime&, const Value& input, Arguments& arguments) {
  Bound bound("wordcount", arguments, {});
  int64_t count = 0;
  bool in_word = false;
  std::string text = to_text(input);
  charge_characters(text.size());
  for (size_t pos = 0; pos < text.size();) {
    bool is_word = is_word_char(next_code_point(text, pos));
    count += is_word && !in_word ? 1 : 0;
    in_word = is_word;
  }
  return Value(count);
}

template <std::string (*kConvert)(std::string_view)>
Value filter_case(Runtime& runtime, const Value& input, Arguments& arguments) {
  Bound bound("upper, lower or capitalize", arguments, {});
  return same_kind(runtime, input, kConvert(to_text(input)));
}

Value filter_attr(Runtime& runtime, const Value& input, Arguments& arguments) {
  Bound bound("attr", arguments, {"name"});
  // Only real attributes, never a dict's items, as in Python.
  if (input.dict() == nullptr) return runtime.attribute(input, bound.text(0, ""));
  Value result;
  bool found = find_method(input, bound.text(0, ""), result);
  return found ? result : Value::undefined("the object has no such attribute");
}

}  // namespace

std::string replace_text(Runtime& runtime, const Replacement& replacement, int64_t count) {
  const auto& [text, old_text, new_text] = replacement;
  std::string out;
  size_t done = 0;
  while (count != 0) {
    size_t at = find_text(text, old_text, done);
    if (at == std::string::npos) break;
    if (old_text.empty()) {
      // The empty string matches before every character and at the end.
      size_t next = at;
      if (next < text.size()) next_code_point(text, next);
      out += new_text;
      out.append(text, at, next - at);
      done = next;
      if (at == text.size()) break;
    } else {
      out.append(text, done, at - done);
      out += new_text;
      done = at + old_text.size();
    }
    runtime.check_text(out.size());
    --count;
  }
  return out.append(text, std::min(done, text.size()), std::string::npos);
}

const absl::flat_hash_map<std::string_view, FilterFunction>& text_filters() {
  static const auto* const kTable = new absl::flat_hash_map<std::string_view, FilterFunction>{
      {"abs", filter_abs},
      {"attr", filter_attr},
      {"capitalize", filter_case<capitalize>},
      {"count", filter_length},
      {"d", filter_default},
      {"default", filter_default},
      {"e", filter_escape},
      {"escape", filter_escape},
      {"float", filter_float},
      {"indent", filter_indent},
      {"int", filter_int},
      {"length", filter_length},
      {"lower", filter_case<to_lower>},
      {"replace", filter_replace},
      {"round", filter_round},
      {"safe", filter_safe},
      {"string", filter_string},
      {"title", filter_title},
      {"tojson", filter_tojson},
      {"trim", filter_trim},
      {"upper", filter_case<to_upper>},
      {"wordcount", filter_wordcount},
  };
  return *kTable;
}

namespace {

FilterFunction find_filter(std::string_view name) {
  for (const auto* table : {&text_filters(), &list_filters(), &layout_filters()}) {
    auto it = table->find(name);
    if (it != table->end()) return it->second;
  }
  return nullptr;
}

}  // namespace

bool is_filter(std::string_view name) {
  return find_filter(name) != nullptr;
}

Value apply_filter(Runtime& runtime, std::string_view name, const Value& input, Arguments& arguments) {
  FilterFunction filter = find_filter(name);
  if (filter == nullptr) throw JinjaError(absl::StrCat("no filter is named '", to_absl(clipped(name)), "'"));
  if (input.is_string()) charge_read(input.text().size());
  return filter(runtime, input, arguments);
}

}  // namespace troupe::jinja
