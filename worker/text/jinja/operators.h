#pragma once

// Python's operators on values. They throw JinjaError with Python's message if the kinds do not fit.

#include <optional>
#include <string_view>

#include "worker/text/jinja/value.h"

namespace troupe::jinja {

// `sign` is one of + - * / // % **
Value binary(Runtime& runtime, std::string_view sign, const Value& left, const Value& right);
Value negate(const Value& value);
// Evaluates needle in haystack.
bool contains(Runtime& runtime, const Value& haystack, const Value& needle);
// Evaluates value[start:stop:step] of strings (by code points) and lists; none or undefined bounds
// are left out.
struct SliceBounds {
  std::optional<int64_t> start;
  std::optional<int64_t> stop;
  std::optional<int64_t> step;
};
Value slice(Runtime& runtime, const Value& value, const SliceBounds& bounds);
// Implements len(); an error for values without a length.
int64_t length(const Value& value);
// Returns a string's characters as strings.
std::vector<std::string_view> characters(std::string_view text);

}  // namespace troupe::jinja
