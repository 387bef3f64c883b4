#pragma once

// Python's operators on values. Throw JinjaError with Python's words where the kinds do not fit.

#include <optional>
#include <string_view>

#include "worker/text/jinja/value.h"

namespace troupe::jinja {

// `sign` is one of + - * / // % **
Value binary(Runtime& runtime, std::string_view sign, const Value& left, const Value& right);
Value negate(const Value& value);
// needle in haystack
bool contains(Runtime& runtime, const Value& haystack, const Value& needle);
// value[start:stop:step] of strings (by code points) and lists; none or undefined bounds are left out.
struct SliceBounds {
  std::optional<int64_t> start;
  std::optional<int64_t> stop;
  std::optional<int64_t> step;
};
Value slice(Runtime& runtime, const Value& value, const SliceBounds& bounds);
// len(); an error for what has none.
int64_t length(const Value& value);
// A string's characters as strings.
std::vector<std::string_view> characters(std::string_view text);

}  // namespace troupe::jinja
