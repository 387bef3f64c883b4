#pragma once

// C++ functions as template values, and the binding of arguments to their parameters.

#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "worker/text/jinja/value.h"

namespace troupe::jinja {

using FunctionBody = std::function<Value(Runtime&, Arguments&)>;
// `depth`: nesting depth of the containers that the body captured.
Value make_function(std::string name, FunctionBody body, int depth = 0);

// Arguments by parameter name, in the order of a Python signature. Errors name the function.
class Bound {
 public:
  Bound(std::string_view function, Arguments& arguments, std::initializer_list<std::string_view> parameters);
  bool has(size_t i) const { return values_[i].has_value(); }
  // Returns a mandatory argument.
  const Value& required(size_t i) const;
  Value value(size_t i, Value fallback) const { return has(i) ? *values_[i] : fallback; }
  bool flag(size_t i, bool fallback) const { return has(i) ? values_[i]->truthy() : fallback; }
  int64_t integer(size_t i, int64_t fallback) const;
  std::string text(size_t i, std::string_view fallback) const;

 private:
  std::string function_;
  std::vector<std::string_view> parameters_;
  std::vector<std::optional<Value>> values_;
};

}  // namespace troupe::jinja
