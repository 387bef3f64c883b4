#include "worker/text/jinja/format.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "worker/text/jinja/format_spec.h"
#include "worker/text/jinja/meter.h"
#include "worker/text/jinja/runtime.h"
#include "worker/text/jinja/text.h"
#include "worker/text/unicode.h"

namespace troupe::jinja {
namespace {

// Formats "%…" % right, one conversion after another.
class Percent {
 public:
  Percent(Runtime& runtime, const Value& format, const Value& right)
      : runtime_(runtime), format_(format), right_(right) {
    const List* tuple = right.list();
    if (tuple != nullptr && tuple->kind == ListKind::kTuple) {
      values_ = tuple->items;
    } else {
      values_ = {right};
      is_mapping_ = right.dict() != nullptr;
    }
  }

  Value run() {
    const std::string& text = format_.text();
    std::string out;
    for (size_t pos = 0; pos < text.size();) {
      const size_t at = std::min(text.find('%', pos), text.size());
      out.append(text, pos, at - pos);
      pos = at;
      if (pos < text.size()) out += conversion(text, pos);
      runtime_.check_text(out.size());
    }
    // A value with items by key or index counts as a mapping, which need not be used.
    const bool indexed = right_.list() != nullptr &&
                         (right_.list()->kind == ListKind::kList || right_.list()->kind == ListKind::kRange);
    const bool may_be_left = is_mapping_ || indexed || right_.is_undefined();
    if (used_ < values_.size() && !may_be_left)
      throw JinjaError("not all arguments converted during string formatting");
    return runtime_.text(std::move(out), format_.is_markup());
  }

 private:
  const Value& next() {
    if (used_ >= values_.size()) throw JinjaError("not enough arguments for format string");
    runtime_.step();
    return values_[used_++];
  }

  int star() {
    const Value& value = next();
    if (!value.is_integer_like()) throw JinjaError("* wants int");
    if (value.integer() < -kFormatWidthMax || value.integer() > kFormatWidthMax)
      throw JinjaError(absl::StrCat("a format's width or precision is over ", kFormatWidthMax));
    return static_cast<int>(value.integer());
  }

  std::string conversion(const std::string& text, size_t& pos) {
    ++pos;
    // With anything between the two signs, Python reads the second as an unknown conversion.
    if (pos < text.size() && text[pos] == '%') {
      ++pos;
      return "%";
    }
    std::optional<Value> named;
    if (pos < text.size() && text[pos] == '(') named = mapped(text, pos);
    FormatSpec spec;
    bool left = false, zero = false;
    for (; pos < text.size() && std::string_view("-+ #0").find(text[pos]) != std::string_view::npos; ++pos) {
      left = left || text[pos] == '-';
      zero = zero || text[pos] == '0';
      spec.alternate = spec.alternate || text[pos] == '#';
      if (text[pos] == '+' || (text[pos] == ' ' && spec.sign == '-')) spec.sign = text[pos];
    }
    if (pos < text.size() && text[pos] == '*') {
      ++pos;
      spec.width = star();
      left = left || spec.width < 0;
      spec.width = std::abs(spec.width);
    } else {
      spec.width = read_width(text, pos).value_or(0);
    }
    if (pos < text.size() && text[pos] == '.') {
      ++pos;
      const bool is_star = pos < text.size() && text[pos] == '*';
      if (is_star) ++pos;
      spec.precision = std::max(is_star ? star() : read_width(text, pos).value_or(0), 0);
    }
    if (pos < text.size() && std::string_view("hlL").find(text[pos]) != std::string_view::npos) ++pos;
    if (pos >= text.size()) throw JinjaError("incomplete format");
    spec.type = text[pos++];
    spec.align = left ? '<' : '>';
    if (zero && !left) {
      spec.fill = "0";
      spec.align = '=';
    }
    return converted(named ? *named : next(), spec);
  }

  Value mapped(const std::string& text, size_t& pos) {
    if (!is_mapping_) throw JinjaError("format requires a mapping");
    int depth = 1;
    const size_t begin = ++pos;
    for (; pos < text.size() && depth > 0; ++pos) depth += text[pos] == '(' ? 1 : text[pos] == ')' ? -1 : 0;
    if (depth > 0) throw JinjaError("incomplete format key");
    const Value* found = right_.dict()->find(std::string_view(text).substr(begin, pos - 1 - begin));
    if (found == nullptr)
      throw JinjaError("KeyError: '" +
                       std::string(clipped(std::string_view(text).substr(begin, pos - 1 - begin))) + "'");
    runtime_.step();
    return *found;
  }

  std::string converted(const Value& value, FormatSpec spec) {
    const bool is_text = spec.type == 's' || spec.type == 'r' || spec.type == 'a';
    if (is_text) {
      spec.fill = " ";
      if (spec.align == '=') spec.align = '>';
      if (spec.type == 's' && format_.is_markup() && !value.is_markup())
        return string_text(escape_html(to_text(value)), spec);
      return string_text(spec.type == 's' ? to_text(value) : repr(value), spec);
    }
    if (spec.type == 'c') {
      spec.fill = " ";
      if (spec.align == '=') spec.align = '>';
      return character_text(value, spec);
    }
    if (std::string_view("diuoxXeEfFgG").find(spec.type) == std::string_view::npos)
      throw JinjaError(absl::StrCat("unsupported format character '", std::string(1, spec.type), "'"));
    require_defined(value);
    if (!value.is_number())
      throw JinjaError(absl::StrCat("%", std::string(1, spec.type),
                                    " format: a real number is required, not ", value.type_name()));
    if (spec.type == 'i' || spec.type == 'u') spec.type = 'd';
    if (std::string_view("doxX").find(spec.type) == std::string_view::npos || !value.is_float())
      return number_text(value, spec);
    const bool fits = std::fabs(value.number()) < 9.2e18;
    if (spec.type != 'd' || !fits)
      throw JinjaError(
          absl::StrCat("%", std::string(1, spec.type), " format: an integer is required, not float"));
    return number_text(Value(static_cast<int64_t>(value.number())), spec);
  }

  Runtime& runtime_;
  const Value& format_;
  const Value& right_;
  std::vector<Value> values_;
  size_t used_ = 0;
  bool is_mapping_ = false;
};

// Formats "{…}".format(…): Python's string.Formatter.
class Braces {
 public:
  Braces(Runtime& runtime, const Arguments& arguments) : runtime_(runtime), arguments_(arguments) {}

  std::string run(std::string_view text, int depth) {
    if (depth == 0) throw JinjaError("Max string recursion exceeded");
    std::string out;
    for (size_t pos = 0; pos < text.size();) {
      const char c = text[pos];
      if ((c == '{' || c == '}') && pos + 1 < text.size() && text[pos + 1] == c) {
        out += c;
        pos += 2;
      } else if (c == '}') {
        throw JinjaError("Single '}' encountered in format string");
      } else if (c == '{') {
        out += field(take_field(text, pos), depth);
      } else {
        out += c;
        ++pos;
      }
      runtime_.check_text(out.size());
    }
    return out;
  }

 private:
  // Takes the field at `pos`, without its braces.
  static std::string_view take_field(std::string_view text, size_t& pos) {
    const size_t begin = ++pos;
    int depth = 1;
    for (; pos < text.size(); ++pos) {
      depth += text[pos] == '{' ? 1 : text[pos] == '}' ? -1 : 0;
      if (depth == 0) return text.substr(begin, pos++ - begin);
    }
    throw JinjaError(begin == text.size() ? "Single '{' encountered in format string"
                                          : "expected '}' before end of string");
  }

  std::string field(std::string_view text, int depth) {
    runtime_.step();
    // A '[' protects its content.
    size_t name_end = 0;
    bool in_brackets = false;
    for (; name_end < text.size(); ++name_end) {
      const char c = text[name_end];
      if (c == '[') in_brackets = true;
      if (c == ']') in_brackets = false;
      if (!in_brackets && (c == '!' || c == ':')) break;
      if (c == '{' && !in_brackets) throw JinjaError("unexpected '{' in field name");
    }
    Value value = lookup(text.substr(0, name_end));
    std::string_view rest = text.substr(name_end);
    if (rest.starts_with('!')) {
      if (rest.size() < 2) throw JinjaError("end of string while looking for conversion specifier");
      if (rest.size() > 2 && rest[2] != ':') throw JinjaError("expected ':' after conversion specifier");
      if (rest[1] != 's' && rest[1] != 'r') throw JinjaError("only !s and !r are supported as conversions");
      value = Value(rest[1] == 's' ? to_text(value) : repr(value));
      rest.remove_prefix(2);
    }
    if (rest.starts_with(':')) rest.remove_prefix(1);
    return formatted(value, run(rest, depth - 1));
  }

  Value lookup(std::string_view path) {
    const size_t first_end = std::min(path.find_first_of(".["), path.size());
    Value value = argument(std::string(path.substr(0, first_end)));
    for (size_t pos = first_end; pos < path.size();) {
      if (path[pos] == '.') {
        const size_t end = std::min(path.find_first_of(".[", pos + 1), path.size());
        if (end == pos + 1) throw JinjaError("Empty attribute in format string");
        value = runtime_.attribute(value, path.substr(pos + 1, end - pos - 1));
        pos = end;
      } else if (path[pos] == '[') {
        const size_t end = path.find(']', pos);
        if (end == std::string_view::npos) throw JinjaError("Missing ']' in format string");
        if (end == pos + 1) throw JinjaError("Empty attribute in format string");
        const std::string key(path.substr(pos + 1, end - pos - 1));
        value =
            runtime_.item(value, is_index(key) ? Value(static_cast<int64_t>(std::stoi(key))) : Value(key));
        pos = end + 1;
      } else {
        throw JinjaError("Only '.' or '[' may follow ']' in format field specifier");
      }
    }
    return value;
  }

  static bool is_index(const std::string& text) {
    return !text.empty() && text.size() < 10 && text.find_first_not_of("0123456789") == std::string::npos;
  }

  const Value& argument(const std::string& name) {
    if (name.empty() || is_index(name)) {
      const bool is_automatic = name.empty();
      if (numbering_ && *numbering_ != is_automatic)
        throw JinjaError("cannot switch between manual and automatic field numbering");
      numbering_ = is_automatic;
      const size_t index = is_automatic ? next_++ : static_cast<size_t>(std::stoi(name));
      if (index >= arguments_.positional.size())
        throw JinjaError("Replacement index out of range for positional args tuple");
      return arguments_.positional[index];
    }
    charge_read(kPartBytes * arguments_.named.size() + name.size());
    for (const auto& [key, value] : arguments_.named) {
      if (key == name) return value;
    }
    throw JinjaError("KeyError: '" + std::string(clipped(name)) + "'");
  }

  static FormatSpec parse_spec(std::string_view text, const Value& value) {
    FormatSpec spec;
    constexpr std::string_view kAligns = "<>=^";
    size_t pos = 0;
    size_t fill_end = 0;
    if (!text.empty()) next_code_point(text, fill_end);
    if (fill_end < text.size() && kAligns.find(text[fill_end]) != std::string_view::npos) {
      spec.fill = text.substr(0, fill_end);
      spec.align = text[fill_end];
      pos = fill_end + 1;
    } else if (!text.empty() && kAligns.find(text[0]) != std::string_view::npos) {
      spec.align = text[pos++];
    }
    const auto skip = [&](std::string_view any) {
      return pos < text.size() && any.find(text[pos]) != std::string_view::npos ? text[pos++] : '\0';
    };
    const char sign = skip("+- ");
    if (sign != '\0') spec.sign = sign;
    spec.alternate = skip("#") != '\0';
    const bool zero = skip("0") != '\0';
    if (zero && spec.align == '\0') {
      spec.fill = "0";
      if (value.is_number()) spec.align = '=';
    }
    spec.width = read_width(text, pos).value_or(0);
    spec.group = skip(",_");
    if (skip(".") != '\0') {
      spec.precision = read_width(text, pos);
      if (!spec.precision) throw JinjaError("Format specifier missing precision");
    }
    if (pos < text.size()) spec.type = text[pos++];
    if (pos < text.size()) throw JinjaError("Invalid format specifier '" + std::string(clipped(text)) + "'");
    if (value.is_string() && (sign != '\0' || spec.align == '=' || spec.group != '\0' || spec.alternate))
      throw JinjaError("a sign, '=', '#' or a grouping is not allowed in a string's format specifier");
    return spec;
  }

  static std::string formatted(const Value& value, std::string_view text) {
    if (text.empty()) return to_text(value);
    if (!value.is_string() && !value.is_number())
      throw JinjaError("unsupported format string passed to " + value.type_name() + ".__format__");
    const FormatSpec spec = parse_spec(text, value);
    const auto is_type = [&spec](std::string_view types) {
      return types.find(spec.type) != std::string_view::npos;
    };
    if (value.is_string() && (spec.type == '\0' || spec.type == 's')) return string_text(value.text(), spec);
    const bool fits =
        value.is_number() && (spec.type == '\0' || is_type(value.is_float() ? "eEfFgGn%" : "bcdoxXneEfFgG%"));
    if (!fits) {
      throw JinjaError(absl::StrCat("Unknown format code '", std::string(1, spec.type),
                                    "' for object of type '", value.type_name(), "'"));
    }
    const bool whole = value.is_integer_like() && (spec.type == '\0' || is_type("bcdoxXn"));
    if (whole && spec.precision) throw JinjaError("Precision not allowed in integer format specifier");
    return spec.type == 'c' ? character_text(value, spec) : number_text(value, spec);
  }

  Runtime& runtime_;
  const Arguments& arguments_;
  size_t next_ = 0;
  std::optional<bool> numbering_;  // true: fields are counted, false: they name their numbers
};

}  // namespace

Value percent_format(Runtime& runtime, const Value& format, const Value& right) {
  charge_read(format.text().size());
  return Percent(runtime, format, right).run();
}

Value brace_format(Runtime& runtime, const Value& format, const Arguments& arguments) {
  constexpr int kNestedMax = 3;  // the text, a field's specification, and nothing in that
  return runtime.text(Braces(runtime, arguments).run(format.text(), kNestedMax), format.is_markup());
}

}  // namespace troupe::jinja
