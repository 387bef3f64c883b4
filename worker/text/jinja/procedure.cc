#include "worker/text/jinja/procedure.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "worker/text/jinja/meter.h"

namespace troupe::jinja {

// Binds as Jinja's own Macro does: leftover arguments go to varargs and kwargs if the body reads those, and
// are an error if it does not.
void bind_arguments(Evaluator& evaluator, const Procedure& procedure, Arguments& arguments,
                    const FramePtr& frame) {
  const std::vector<Parameter>& parameters = *procedure.parameters;
  auto take_named = [&arguments](const std::string& name, Value& value) {
    charge_read(kPartBytes * arguments.named.size() + name.size());
    auto it = std::find_if(arguments.named.begin(), arguments.named.end(),
                           [&](const auto& named) { return named.first == name; });
    if (it == arguments.named.end()) return false;
    value = std::move(it->second);
    arguments.named.erase(it);
    return true;
  };
  bool has_caller = false;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto& [name, fallback] = parameters[i];
    has_caller = has_caller || name == "caller";
    Value value;
    if (i < arguments.positional.size()) {
      value = arguments.positional[i];
    } else if (!take_named(name, value)) {
      value = fallback != nullptr ? evaluator.eval(*fallback, frame)
                                  : Value::undefined("parameter '" + name + "' was not provided");
    }
    frame->set(name, std::move(value));
  }
  if (procedure.extras.caller && !has_caller) {
    Value caller;
    frame->set("caller", take_named("caller", caller) ? caller : Value::undefined("No caller defined"));
  }
  if (procedure.extras.kwargs) {
    Dict rest;
    for (auto& [name, value] : arguments.named) rest.set(Value(name), std::move(value));
    frame->set("kwargs", make_dict(std::move(rest)));
  } else if (!arguments.named.empty()) {
    throw JinjaError(absl::StrCat("macro '", to_absl(clipped(procedure.name)),
                                  "' takes no keyword argument '",
                                  to_absl(clipped(arguments.named.front().first)), "'"));
  }
  const auto known = std::min(arguments.positional.size(), parameters.size());
  std::vector<Value> rest(arguments.positional.begin() + static_cast<ptrdiff_t>(known),
                          arguments.positional.end());
  if (procedure.extras.varargs) {
    frame->set("varargs", make_list(std::move(rest), ListKind::kTuple));
  } else if (!rest.empty()) {
    throw JinjaError(
        absl::StrCat("macro '", procedure.name, "' takes not more than ", parameters.size(), " argument(s)"));
  }
}

}  // namespace troupe::jinja
