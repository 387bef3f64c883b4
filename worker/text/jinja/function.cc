#include "worker/text/jinja/function.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "worker/text/jinja/meter.h"
#include "worker/text/jinja/text.h"

namespace troupe::jinja {
namespace {

class Function final : public Object {
 public:
  Function(std::string name, FunctionBody body, int depth)
      : name_(std::move(name)), body_(std::move(body)), depth_(checked_depth(depth)) {}
  std::string type_name() const override { return "function"; }
  int depth() const override { return depth_; }
  bool is_callable() const override { return true; }
  Value call(Runtime& runtime, Arguments& arguments) override { return body_(runtime, arguments); }

 private:
  std::string name_;
  FunctionBody body_;
  int depth_;
};

}  // namespace

Value make_function(std::string name, FunctionBody body, int depth) {
  auto function = std::make_shared<Function>(std::move(name), std::move(body), depth);
  return Value(std::static_pointer_cast<Object>(std::move(function)));
}

Bound::Bound(std::string_view function, Arguments& arguments,
             std::initializer_list<std::string_view> parameters)
    : function_(function), parameters_(parameters), values_(parameters.size()) {
  if (arguments.positional.size() > parameters_.size()) {
    throw JinjaError(absl::StrCat(function_, "() takes at most ", parameters_.size(), " argument(s), ",
                                  arguments.positional.size(), " given"));
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    auto it = std::find(parameters_.begin(), parameters_.end(), name);
    if (it == parameters_.end())
      throw JinjaError(absl::StrCat(function_, "() has no parameter '", to_absl(clipped(name)), "'"));
    auto i = static_cast<size_t>(it - parameters_.begin());
    if (values_[i].has_value()) throw JinjaError(absl::StrCat(function_, "() got '", name, "' twice"));
    values_[i] = value;
  }
}

const Value& Bound::required(size_t i) const {
  if (!values_[i].has_value()) {
    throw JinjaError(absl::StrCat(function_, "() misses its argument '", to_absl(parameters_[i]), "'"));
  }
  return *values_[i];
}

int64_t Bound::integer(size_t i, int64_t fallback) const {
  if (!has(i)) return fallback;
  require_defined(*values_[i]);
  if (!values_[i]->is_integer_like()) {
    throw JinjaError(absl::StrCat(function_, "(): '", to_absl(parameters_[i]), "' must be an integer, not ",
                                  values_[i]->type_name()));
  }
  return values_[i]->integer();
}

std::string Bound::text(size_t i, std::string_view fallback) const {
  if (!has(i)) return std::string(fallback);
  require_defined(*values_[i]);
  if (!values_[i]->is_string()) {
    throw JinjaError(absl::StrCat(function_, "(): '", to_absl(parameters_[i]), "' must be a string, not ",
                                  values_[i]->type_name()));
  }
  return to_text(*values_[i]);
}

}  // namespace troupe::jinja
