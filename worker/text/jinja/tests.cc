// The tests that may follow `is`.

#include <cmath>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "worker/text/jinja/filters.h"
#include "worker/text/jinja/function.h"
#include "worker/text/jinja/meter.h"
#include "worker/text/jinja/operators.h"
#include "worker/text/jinja/runtime.h"
#include "worker/text/jinja/text.h"

namespace troupe::jinja {
namespace {

using Plain = bool (*)(const Value&);
using Against = bool (*)(Runtime&, const Value&, const Value&);

// Whether value % divisor == 0, also for Python's floats.
bool is_multiple(const Value& value, const Value& divisor) {
  for (const Value* number : {&value, &divisor}) {
    require_defined(*number);
    if (!number->is_number()) throw JinjaError("a number is needed, not " + number->type_name());
  }
  if (!divisor.truthy()) throw JinjaError("integer division or modulo by zero");
  if (value.is_float() || divisor.is_float()) return std::fmod(value.number(), divisor.number()) == 0;
  return divisor.integer() == -1 || value.integer() % divisor.integer() == 0;
}

bool is_odd(const Value& value) {
  if (value.is_float()) return std::fabs(std::fmod(value.number(), 2)) == 1;
  return !is_multiple(value, Value(2));
}

bool is_sequence(const Value& value) {
  // True for values with a length and items by index or key.
  bool indexable = value.list() != nullptr && value.list()->kind <= ListKind::kRange;
  return value.is_undefined() || value.is_string() || indexable || value.dict() != nullptr;
}

bool is_iterable(const Value& value) {
  return value.is_undefined() || value.is_string() || value.list() != nullptr || value.dict() != nullptr ||
         value.generator() != nullptr;
}

bool is_upper(const Value& value) {
  std::string text = to_text(value);
  return to_upper(text) == text && to_lower(text) != text;
}

bool is_lower(const Value& value) {
  std::string text = to_text(value);
  return to_lower(text) == text && to_upper(text) != text;
}

// Whether a filter or test has that name. Python looks it up in a dict, so an unhashable value is an error.
bool is_name_of(const Value& value, bool (*is_known)(std::string_view)) {
  if (!is_hashable(value)) throw JinjaError("unhashable type: '" + value.type_name() + "'");
  if (!value.is_string()) return false;
  charge_read(value.text().size());
  return is_known(value.text());
}

const absl::flat_hash_map<std::string_view, Plain>& plain_tests() {
  static const auto* const kTable = new absl::flat_hash_map<std::string_view, Plain>{
      {"boolean", [](const Value& v) { return v.is_bool(); }},
      {"callable", [](const Value& v) { return v.object() != nullptr && v.object()->is_callable(); }},
      {"defined", [](const Value& v) { return !v.is_undefined(); }},
      {"escaped", [](const Value& v) { return v.is_markup(); }},
      {"even", [](const Value& v) { return is_multiple(v, Value(2)); }},
      {"false", [](const Value& v) { return v.is_bool() && v.integer() == 0; }},
      {"filter", [](const Value& v) { return is_name_of(v, is_filter); }},
      {"float", [](const Value& v) { return v.is_float(); }},
      {"integer", [](const Value& v) { return v.is_int() || wide_integer(v) != nullptr; }},
      {"iterable", is_iterable},
      {"lower", is_lower},
      {"mapping", [](const Value& v) { return v.dict() != nullptr; }},
      {"none", [](const Value& v) { return v.is_none(); }},
      {"number", [](const Value& v) { return v.is_number() || wide_integer(v) != nullptr; }},
      {"odd", is_odd},
      {"sequence", is_sequence},
      {"string", [](const Value& v) { return v.is_string(); }},
      {"test", [](const Value& v) { return is_name_of(v, is_test); }},
      {"true", [](const Value& v) { return v.is_bool() && v.integer() != 0; }},
      {"undefined", [](const Value& v) { return v.is_undefined(); }},
      {"upper", is_upper},
  };
  return *kTable;
}

bool same_as(Runtime&, const Value& a, const Value& b) {
  bool singletons =
      (a.is_bool() && b.is_bool()) || (a.is_none() && b.is_none()) || (a.is_int() && b.is_int());
  if (singletons) return equal(a, b);
  if (a.list() != nullptr) return a.list() == b.list();
  if (a.dict() != nullptr) return a.dict() == b.dict();
  if (a.is_string() && b.is_string()) return &a.text() == &b.text();
  return a.space() != nullptr && a.space() == b.space();
}

const absl::flat_hash_map<std::string_view, Against>& against_tests() {
  constexpr Against kEqual = [](Runtime&, const Value& a, const Value& b) { return equal(a, b); };
  constexpr Against kNotEqual = [](Runtime&, const Value& a, const Value& b) { return !equal(a, b); };
  constexpr Against kLess = [](Runtime&, const Value& a, const Value& b) { return less(a, b); };
  constexpr Against kGreater = [](Runtime&, const Value& a, const Value& b) { return less(b, a); };
  constexpr Against kAtMost = [](Runtime&, const Value& a, const Value& b) {
    return less(a, b) || equal(a, b);
  };
  constexpr Against kAtLeast = [](Runtime&, const Value& a, const Value& b) {
    return less(b, a) || equal(a, b);
  };
  constexpr Against kIn = [](Runtime& runtime, const Value& a, const Value& b) {
    return contains(runtime, b, a);
  };
  constexpr Against kDivisible = [](Runtime&, const Value& a, const Value& b) { return is_multiple(a, b); };
  static const auto* const kTable = new absl::flat_hash_map<std::string_view, Against>{
      {"!=", kNotEqual},
      {"<", kLess},
      {"<=", kAtMost},
      {"==", kEqual},
      {">", kGreater},
      {">=", kAtLeast},
      {"divisibleby", kDivisible},
      {"eq", kEqual},
      {"equalto", kEqual},
      {"ge", kAtLeast},
      {"greaterthan", kGreater},
      {"gt", kGreater},
      {"in", kIn},
      {"le", kAtMost},
      {"lessthan", kLess},
      {"lt", kLess},
      {"ne", kNotEqual},
      {"sameas", same_as},
  };
  return *kTable;
}

}  // namespace

bool is_test(std::string_view name) {
  return plain_tests().contains(name) || against_tests().contains(name);
}

bool apply_test(Runtime& runtime, std::string_view name, const Value& input, Arguments& arguments) {
  if (auto it = plain_tests().find(name); it != plain_tests().end()) {
    Bound bound(name, arguments, {});
    return it->second(input);
  }
  auto it = against_tests().find(name);
  if (it == against_tests().end())
    throw JinjaError(absl::StrCat("no test is named '", to_absl(clipped(name)), "'"));
  Bound bound(name, arguments, {"other"});
  return it->second(runtime, input, bound.required(0));
}

}  // namespace troupe::jinja
