#include "worker/text/jinja/operators.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "worker/text/jinja/format.h"
#include "worker/text/jinja/meter.h"
#include "worker/text/jinja/runtime.h"
#include "worker/text/jinja/text.h"
#include "worker/text/unicode.h"

namespace troupe::jinja {
namespace {

// A string cut into its characters takes this many times its memory.
constexpr size_t kCharacterListFactor = 16;

[[noreturn]] void refuse(std::string_view sign, const Value& left, const Value& right) {
  throw JinjaError(absl::StrCat("unsupported operand type(s) for ", to_absl(sign), ": '", left.type_name(),
                                "' and '", right.type_name(), "'"));
}

[[noreturn]] void overflow() {
  throw JinjaError("an integer does not fit into 64 bits");
}

int64_t floor_divide(int64_t a, int64_t b) {
  if (b == 0) throw JinjaError("integer division or modulo by zero");
  if (b == -1 && a == INT64_MIN) overflow();
  int64_t quotient = a / b;
  return quotient - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

int64_t modulo(int64_t a, int64_t b) {
  if (b == 0) throw JinjaError("integer division or modulo by zero");
  if (b == -1) return 0;
  int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

Value power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) throw JinjaError("0.0 cannot be raised to a negative power");
    return Value(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) overflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) overflow();
  }
  return Value(result);
}

Value integers(std::string_view sign, int64_t a, int64_t b) {
  int64_t result = 0;
  if (sign == "+") {
    if (__builtin_add_overflow(a, b, &result)) overflow();
  } else if (sign == "-") {
    if (__builtin_sub_overflow(a, b, &result)) overflow();
  } else if (sign == "*") {
    if (__builtin_mul_overflow(a, b, &result)) overflow();
  } else if (sign == "//") {
    result = floor_divide(a, b);
  } else if (sign == "%") {
    result = modulo(a, b);
  } else if (sign == "**") {
    return power(a, b);
  } else {
    if (b == 0) throw JinjaError("division by zero");
    return Value(static_cast<double>(a) / static_cast<double>(b));
  }
  return Value(result);
}

Value floats(std::string_view sign, double a, double b) {
  if (sign == "+") return Value(a + b);
  if (sign == "-") return Value(a - b);
  if (sign == "*") return Value(a * b);
  if (sign == "**") {
    if (a == 0 && b < 0) throw JinjaError("0.0 cannot be raised to a negative power");
    double result = std::pow(a, b);
    if (std::isnan(result) && !std::isnan(a) && !std::isnan(b))
      throw JinjaError("complex numbers are not supported");
    if (std::isinf(result) && std::isfinite(a) && std::isfinite(b))
      throw JinjaError("numerical result out of range");
    return Value(result);
  }
  if (b == 0) throw JinjaError("float division by zero");
  if (sign == "/") return Value(a / b);
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  if (sign == "%") return Value(rest);
  return Value(std::round((a - rest) / b));
}

Value repeat_text(Runtime& runtime, const Value& text, int64_t count) {
  count = std::max<int64_t>(count, 0);
  size_t size = text.text().size();
  runtime.check_repetition(size, count);
  std::string result;
  result.reserve(size * static_cast<size_t>(count));
  for (int64_t i = 0; i < count && size > 0; ++i) result += text.text();
  return runtime.text(std::move(result), text.is_markup());
}

Value repeat_list(Runtime& runtime, const List& list, int64_t count) {
  std::vector<Value> items;
  for (int64_t i = 0; i < count && !list.items.empty(); ++i) {
    runtime.step(static_cast<int64_t>(list.items.size()));
    items.insert(items.end(), list.items.begin(), list.items.end());
  }
  return make_list(std::move(items), list.kind);
}

bool is_repeatable(const List* list) {
  return list != nullptr && (list->kind == ListKind::kList || list->kind == ListKind::kTuple);
}

Value add_texts(Runtime& runtime, const Value& left, const Value& right) {
  bool markup = left.is_markup() || right.is_markup();
  auto part = [&](const Value& value) {
    return markup && !value.is_markup() ? escape_html(value.text()) : value.text();
  };
  if (!markup) return runtime.text(absl::StrCat(left.text(), right.text()));
  return runtime.text(part(left) + part(right), true);
}

Value add_lists(Runtime& runtime, const List& left, const List& right) {
  runtime.step(static_cast<int64_t>(left.items.size() + right.items.size()));
  std::vector<Value> items = left.items;
  items.insert(items.end(), right.items.begin(), right.items.end());
  return make_list(std::move(items), left.kind);
}

// Python's slice.indices(): begin and end for a sequence of `size`.
struct SliceRange {
  int64_t start = 0;
  int64_t stop = 0;
  int64_t step = 1;
};

SliceRange resolve(const SliceBounds& bounds, int64_t size) {
  SliceRange range;
  range.step = bounds.step.value_or(1);
  if (range.step == 0) throw JinjaError("slice step cannot be zero");
  bool forward = range.step > 0;
  int64_t low = forward ? 0 : -1;
  int64_t high = forward ? size : size - 1;
  auto clamp = [&](int64_t index) { return std::clamp(index < 0 ? index + size : index, low, high); };
  range.start = bounds.start.has_value() ? clamp(*bounds.start) : (forward ? low : high);
  range.stop = bounds.stop.has_value() ? clamp(*bounds.stop) : (forward ? high : low);
  // A step beyond the size takes one item whatever its value; clamped, indices cannot overflow.
  range.step = std::clamp(range.step, -size - 1, size + 1);
  return range;
}

// Returns the code points from start to stop, without cutting the text into characters.
std::string_view code_points(std::string_view text, int64_t start, int64_t stop) {
  size_t begin = 0;
  int64_t index = 0;
  for (; index < start && begin < text.size(); ++index) next_code_point(text, begin);
  size_t end = begin;
  for (; index < stop && end < text.size(); ++index) next_code_point(text, end);
  charge_characters(end);
  return text.substr(begin, end - begin);
}

template <typename Item, typename Take>
void walk(const std::vector<Item>& items, const SliceRange& range, Take take) {
  for (int64_t i = range.start; range.step > 0 ? i < range.stop : i > range.stop; i += range.step) {
    take(items[static_cast<size_t>(i)]);
  }
}

}  // namespace

Value binary(Runtime& runtime, std::string_view sign, const Value& left, const Value& right) {
  if (sign == "%" && left.is_string()) return percent_format(runtime, left, right);
  require_defined(left);
  require_defined(right);
  if (left.is_number() && right.is_number()) {
    bool whole = left.is_integer_like() && right.is_integer_like();
    return whole ? integers(sign, left.integer(), right.integer())
                 : floats(sign, left.number(), right.number());
  }
  if (sign == "+") {
    if (left.is_string() && right.is_string()) return add_texts(runtime, left, right);
    bool lists =
        is_repeatable(left.list()) && is_repeatable(right.list()) && left.list()->kind == right.list()->kind;
    if (lists) return add_lists(runtime, *left.list(), *right.list());
  }
  if (sign == "*") {
    const Value& sequence = left.is_integer_like() ? right : left;
    const Value& count = left.is_integer_like() ? left : right;
    if (count.is_integer_like() && sequence.is_string())
      return repeat_text(runtime, sequence, count.integer());
    if (count.is_integer_like() && is_repeatable(sequence.list())) {
      return repeat_list(runtime, *sequence.list(), count.integer());
    }
  }
  refuse(sign, left, right);
}

Value negate(const Value& value) {
  require_defined(value);
  if (value.is_float()) return Value(-value.number());
  if (!value.is_integer_like()) throw JinjaError("bad operand type for unary -: '" + value.type_name() + "'");
  if (value.integer() == INT64_MIN) overflow();
  return Value(-value.integer());
}

bool contains(Runtime& runtime, const Value& haystack, const Value& needle) {
  if (haystack.is_string()) {
    if (!needle.is_string()) {
      throw JinjaError("'in <string>' requires string as left operand, not " + needle.type_name());
    }
    return find_text(haystack.text(), needle.text(), 0) != std::string::npos;
  }
  if (const Dict* dict = haystack.dict()) return dict->find(needle) != nullptr;
  if (const List* list = haystack.list()) {
    return std::any_of(list->items.begin(), list->items.end(),
                       [&](const Value& item) { return equal(item, needle); });
  }
  std::vector<Value> items = runtime.iterate(haystack);
  return std::any_of(items.begin(), items.end(), [&](const Value& item) { return equal(item, needle); });
}

std::vector<std::string_view> characters(std::string_view text) {
  charge_characters(kCharacterListFactor * text.size());
  std::vector<std::string_view> result;
  for (size_t pos = 0; pos < text.size();) {
    size_t begin = pos;
    next_code_point(text, pos);
    result.push_back(text.substr(begin, pos - begin));
  }
  return result;
}

Value slice(Runtime& runtime, const Value& value, const SliceBounds& bounds) {
  require_defined(value);
  if (value.is_string()) {
    SliceRange range = resolve(bounds, length(value));
    if (range.step == 1)
      return runtime.text(std::string(code_points(value.text(), range.start, range.stop)), value.is_markup());
    std::vector<std::string_view> chars = characters(value.text());
    std::string result;
    walk(chars, range, [&](std::string_view c) { result += c; });
    return runtime.text(std::move(result), value.is_markup());
  }
  const List* list = value.list();
  bool sliceable = list != nullptr && list->kind <= ListKind::kRange;
  if (!sliceable) throw JinjaError("'" + value.type_name() + "' object cannot be sliced");
  std::vector<Value> items;
  walk(list->items, resolve(bounds, static_cast<int64_t>(list->items.size())),
       [&](const Value& v) { items.push_back(v); });
  runtime.step(static_cast<int64_t>(items.size()));
  return make_list(std::move(items), list->kind);
}

int64_t length(const Value& value) {
  if (value.is_undefined()) return 0;
  if (value.is_string()) {
    charge_read(value.text().size());
    return static_cast<int64_t>(count_code_points(value.text()));
  }
  if (const List* list = value.list()) return static_cast<int64_t>(list->items.size());
  if (const Dict* dict = value.dict()) return static_cast<int64_t>(dict->entries.size());
  throw JinjaError("object of type '" + value.type_name() + "' has no len()");
}

}  // namespace troupe::jinja
