#pragma once

// Evaluates expressions of one rendering.

#include <string>
#include <string_view>
#include <vector>

#include "worker/text/jinja/ast.h"
#include "worker/text/jinja/frame.h"
#include "worker/text/jinja/runtime.h"

namespace troupe::jinja {

class Evaluator {
 public:
  // `runtime` lives longer.
  explicit Evaluator(Runtime& runtime) : runtime_(runtime) {}

  // Throw JinjaError, with the line.
  Value eval(const Expr& expr, const FramePtr& frame);
  Value eval_name(const std::string& name, const FramePtr& frame);
  Arguments eval_arguments(const Expr& call, const FramePtr& frame);
  // Puts a text that a block has written through filters.
  Value filtered(const Expr& filters, const FramePtr& frame, std::string captured);

 private:
  Value eval_node(const Expr& expr, const FramePtr& frame);
  Value eval_item(const Expr& expr, const FramePtr& frame);
  Value eval_slice(const Value& value, const Expr& slice, const FramePtr& frame);
  Value eval_call(const Expr& expr, const FramePtr& frame);
  Value eval_compare(const Expr& expr, const FramePtr& frame);
  Value eval_concat(const Expr& expr, const FramePtr& frame);
  Value eval_dict(const Expr& expr, const FramePtr& frame);
  Value eval_condition(const Expr& expr, const FramePtr& frame);
  std::vector<Value> eval_all(const std::vector<ExprPtr>& exprs, const FramePtr& frame);

  Runtime& runtime_;
  Value filter_input_;  // value of kFilterInput
};

}  // namespace troupe::jinja
