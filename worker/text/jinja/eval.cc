#include "worker/text/jinja/eval.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "worker/text/jinja/depth.h"
#include "worker/text/jinja/filters.h"
#include "worker/text/jinja/meter.h"
#include "worker/text/jinja/operators.h"
#include "worker/text/jinja/text.h"

namespace troupe::jinja {
namespace {

std::optional<int64_t> slice_bound(const Value& value) {
  if (value.is_none()) return std::nullopt;
  require_defined(value);
  if (!value.is_integer_like()) throw JinjaError("slice indices must be integers or none");
  return value.integer();
}

// f(**mapping)
void add_named(const Value& mapping, Arguments& arguments) {
  require_defined(mapping);
  if (mapping.dict() == nullptr)
    throw JinjaError("argument after ** must be a mapping, not " + mapping.type_name());
  for (const auto& [key, value] : mapping.dict()->entries) {
    if (!key.is_string()) throw JinjaError("keywords must be strings");
    charge_read(kPartBytes * (arguments.named.size() + 1) + key.text().size());
    auto same = [&name = key.text()](const auto& named) { return named.first == name; };
    if (std::any_of(arguments.named.begin(), arguments.named.end(), same))
      throw JinjaError("got multiple values for keyword argument '" + std::string(clipped(key.text())) + "'");
    arguments.named.emplace_back(key.text(), value);
  }
}

bool compare(Runtime& runtime, const std::string& name, const Value& left, const Value& right) {
  if (name == "==") return equal(left, right);
  if (name == "!=") return !equal(left, right);
  if (name == "in") return contains(runtime, right, left);
  if (name == "not in") return !contains(runtime, right, left);
  if (name == "<") return less(left, right);
  if (name == ">") return less(right, left);
  if (name == "<=") return less(left, right) || equal(left, right);
  return less(right, left) || equal(left, right);
}

}  // namespace

Value Evaluator::eval(const Expr& expr, const FramePtr& frame) {
  Runtime::Depth depth(runtime_);
  runtime_.step();
  try {
    return eval_node(expr, frame);
  } catch (JinjaError& error) {
    if (error.line == 0) error.line = expr.line;
    throw;
  }
}

Value Evaluator::eval_node(const Expr& expr, const FramePtr& frame) {
  switch (expr.type) {
    case ExprType::kConst:
      return expr.value;
    case ExprType::kName:
      return eval_name(expr.name, frame);
    case ExprType::kList:
      return make_list(eval_all(expr.items, frame));
    case ExprType::kTuple:
      return make_list(eval_all(expr.items, frame), ListKind::kTuple);
    case ExprType::kDict:
      return eval_dict(expr, frame);
    case ExprType::kAttribute:
      return runtime_.attribute(eval(*expr.items[0], frame), expr.name);
    case ExprType::kItem:
      return eval_item(expr, frame);
    case ExprType::kSlice:
      throw JinjaError("a slice can only stand alone in []");
    case ExprType::kCall:
    case ExprType::kFilter:
    case ExprType::kTest:
      return eval_call(expr, frame);
    case ExprType::kNot:
      return Value(!eval(*expr.items[0], frame).truthy());
    case ExprType::kNegate:
      return negate(eval(*expr.items[0], frame));
    case ExprType::kPlus: {
      Value value = eval(*expr.items[0], frame);
      return negate(negate(value));
    }
    case ExprType::kBinary: {
      Value left = eval(*expr.items[0], frame);
      return binary(runtime_, expr.name, left, eval(*expr.items[1], frame));
    }
    case ExprType::kConcat:
      return eval_concat(expr, frame);
    case ExprType::kCompare:
      return eval_compare(expr, frame);
    case ExprType::kAnd: {
      Value left = eval(*expr.items[0], frame);
      return left.truthy() ? eval(*expr.items[1], frame) : left;
    }
    case ExprType::kOr: {
      Value left = eval(*expr.items[0], frame);
      return left.truthy() ? left : eval(*expr.items[1], frame);
    }
    case ExprType::kCondition:
      return eval_condition(expr, frame);
    case ExprType::kFilterInput:
      return filter_input_;
  }
  return Value();
}

Value Evaluator::eval_name(const std::string& name, const FramePtr& frame) {
  int64_t passed = 0;
  const Value* found = frame->find(name, &passed);
  // A scope may have thousands of variables, which a template may read in a loop, so the search is charged.
  if (passed > 32) runtime_.step(passed / 32);
  if (found != nullptr) return *found;
  if (const Value* value = runtime_.variable(name)) return *value;
  Value result;
  if (find_global(name, result)) return result;
  return Value::undefined("'" + std::string(clipped(name)) + "' is undefined");
}

std::vector<Value> Evaluator::eval_all(const std::vector<ExprPtr>& exprs, const FramePtr& frame) {
  std::vector<Value> values;
  values.reserve(exprs.size());
  for (const ExprPtr& expr : exprs) values.push_back(eval(*expr, frame));
  return values;
}

Value Evaluator::eval_dict(const Expr& expr, const FramePtr& frame) {
  Dict dict;
  for (size_t i = 0; i + 1 < expr.items.size(); i += 2) {
    Value key = eval(*expr.items[i], frame);
    dict.set(key, eval(*expr.items[i + 1], frame));
  }
  return make_dict(std::move(dict));
}

Value Evaluator::eval_item(const Expr& expr, const FramePtr& frame) {
  Value value = eval(*expr.items[0], frame);
  const Expr& index = *expr.items[1];
  if (index.type == ExprType::kSlice) return eval_slice(value, index, frame);
  return runtime_.item(value, eval(index, frame));
}

Value Evaluator::eval_slice(const Value& value, const Expr& expr, const FramePtr& frame) {
  std::optional<int64_t> bounds[3];
  for (size_t i = 0; i < 3; ++i) {
    if (expr.items[i] != nullptr) bounds[i] = slice_bound(eval(*expr.items[i], frame));
  }
  return slice(runtime_, value, {bounds[0], bounds[1], bounds[2]});
}

Value Evaluator::filtered(const Expr& filters, const FramePtr& frame, std::string captured) {
  Value outer = std::exchange(filter_input_, runtime_.text(std::move(captured)));
  Value result = eval(filters, frame);
  filter_input_ = std::move(outer);
  return result;
}

Arguments Evaluator::eval_arguments(const Expr& call, const FramePtr& frame) {
  Arguments arguments;
  arguments.positional = eval_all(call.positional, frame);
  for (const auto& [name, expr] : call.named) {
    for (const auto& [other, value] : arguments.named) {
      if (other == name) throw JinjaError("keyword argument repeated: " + name);
    }
    arguments.named.emplace_back(name, eval(*expr, frame));
  }
  if (call.star != nullptr) {
    Value more = eval(*call.star, frame);
    for (Value& value : runtime_.iterate(more)) arguments.positional.push_back(std::move(value));
  }
  if (call.double_star != nullptr) add_named(eval(*call.double_star, frame), arguments);
  return arguments;
}

Value Evaluator::eval_call(const Expr& expr, const FramePtr& frame) {
  Value subject = eval(*expr.items[0], frame);
  Arguments arguments = eval_arguments(expr, frame);
  if (expr.type == ExprType::kCall) return runtime_.call(subject, arguments);
  if (expr.type == ExprType::kTest) return Value(apply_test(runtime_, expr.name, subject, arguments));
  return apply_filter(runtime_, expr.name, subject, arguments);
}

Value Evaluator::eval_compare(const Expr& expr, const FramePtr& frame) {
  Value left = eval(*expr.items[0], frame);
  for (size_t i = 0; i < expr.names.size(); ++i) {
    Value right = eval(*expr.items[i + 1], frame);
    if (!compare(runtime_, expr.names[i], left, right)) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Value Evaluator::eval_concat(const Expr& expr, const FramePtr& frame) {
  std::string out;
  for (const ExprPtr& part : expr.items) {
    out += to_text(eval(*part, frame));
    runtime_.check_text(out.size());
  }
  return runtime_.text(std::move(out));
}

Value Evaluator::eval_condition(const Expr& expr, const FramePtr& frame) {
  if (eval(*expr.items[1], frame).truthy()) return eval(*expr.items[0], frame);
  if (expr.items[2] != nullptr) return eval(*expr.items[2], frame);
  return Value::undefined("the inline if was false and has no else");
}

}  // namespace troupe::jinja
