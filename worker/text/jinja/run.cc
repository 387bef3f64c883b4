#include "worker/text/jinja/run.h"

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "worker/text/jinja/depth.h"
#include "worker/text/jinja/loop.h"
#include "worker/text/jinja/text.h"

namespace troupe::jinja {
namespace {

class Macro final : public Object {
 public:
  Macro(StatementRunner& runner, Procedure procedure) : runner_(runner), procedure_(std::move(procedure)) {}
  std::string type_name() const override { return "Macro"; }
  bool is_callable() const override { return true; }
  Value call(Runtime&, Arguments& arguments) override {
    return runner_.call_procedure(procedure_, arguments);
  }
  bool attribute(Runtime& runtime, std::string_view name, Value& result) override {
    const auto& [own_name, parameters, extras, body, frame] = procedure_;
    if (name == "name") {
      result = Value(own_name);
    } else if (name == "catch_varargs" || name == "catch_kwargs" || name == "caller") {
      result = Value(name == "caller"         ? extras.caller
                     : name == "catch_kwargs" ? extras.kwargs
                                              : extras.varargs);
    } else if (name == "arguments") {
      std::vector<Value> names;
      runtime.step(static_cast<int64_t>(parameters->size()));
      for (const Parameter& parameter : *parameters) names.emplace_back(parameter.name);
      result = make_list(std::move(names), ListKind::kTuple);
    } else {
      return false;
    }
    return true;
  }

 private:
  StatementRunner& runner_;
  Procedure procedure_;
};

}  // namespace

void StatementRunner::write(std::string& out, std::string_view text) {
  output_bytes_ += text.size();
  // Captured output is counted twice, when captured and when written; hence the factor.
  if (out.size() + text.size() > runtime_.limits().output_bytes_max ||
      output_bytes_ > 8 * runtime_.limits().output_bytes_max) {
    throw JinjaError(absl::StrCat("more than ", runtime_.limits().output_bytes_max, " bytes of output"));
  }
  out += text;
}

StatementRunner::Flow StatementRunner::run(const Block& block, const FramePtr& frame, std::string& out) {
  Runtime::Depth depth(runtime_);
  for (const Stmt& stmt : block) {
    runtime_.step();
    try {
      Flow flow = run(stmt, frame, out);
      if (flow != Flow::kNormal) return flow;
    } catch (JinjaError& error) {
      if (error.line == 0) error.line = stmt.line;
      throw;
    }
  }
  return Flow::kNormal;
}

StatementRunner::Flow StatementRunner::run(const Stmt& stmt, const FramePtr& frame, std::string& out) {
  switch (stmt.type) {
    case StmtType::kText:
      write(out, stmt.text);
      break;
    case StmtType::kOutput:
      write(out, to_text(evaluator_.eval(*stmt.expr, frame)));
      break;
    case StmtType::kIf:
      return run_if(stmt, frame, out);
    case StmtType::kFor:
      run_for(stmt, loop_items(stmt, evaluator_.eval(*stmt.expr, frame), frame), frame, out, 0);
      break;
    case StmtType::kSet:
      assign(*stmt.target, evaluator_.eval(*stmt.expr, frame), frame);
      break;
    case StmtType::kSetBlock: {
      std::string captured = capture(stmt.body, frame);
      assign(*stmt.target,
             stmt.expr ? evaluator_.filtered(*stmt.expr, frame, std::move(captured))
                       : runtime_.text(std::move(captured)),
             frame);
      break;
    }
    case StmtType::kMacro:
      frame->set(stmt.name, make_procedure(stmt, stmt.name, frame));
      break;
    case StmtType::kCallBlock:
      run_call_block(stmt, frame, out);
      break;
    case StmtType::kFilterBlock:
      write(out, to_text(evaluator_.filtered(*stmt.expr, frame, capture(stmt.body, frame))));
      break;
    case StmtType::kWith:
      run_with(stmt, frame, out);
      break;
    case StmtType::kScope:
      run(stmt.body, std::make_shared<Frame>(frame), out);
      break;
    case StmtType::kBreak:
      return Flow::kBreak;
    case StmtType::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNormal;
}

StatementRunner::Flow StatementRunner::run_if(const Stmt& stmt, const FramePtr& frame, std::string& out) {
  for (const Branch& branch : stmt.branches) {
    if (branch.condition == nullptr || evaluator_.eval(*branch.condition, frame).truthy())
      return run(branch.body, frame, out);
  }
  return Flow::kNormal;
}

std::vector<Value> StatementRunner::loop_items(const Stmt& stmt, const Value& iterable,
                                               const FramePtr& frame) {
  std::vector<Value> items = runtime_.iterate(iterable);
  if (stmt.filter == nullptr) return items;
  std::vector<Value> kept;
  for (Value& item : items) {
    auto scope = std::make_shared<Frame>(frame);
    assign(*stmt.target, item, scope);
    if (evaluator_.eval(*stmt.filter, scope).truthy()) kept.push_back(std::move(item));
  }
  return kept;
}

void StatementRunner::run_for(const Stmt& stmt, const std::vector<Value>& items, const FramePtr& frame,
                              std::string& out, int depth) {
  auto loop = std::make_shared<Loop>(items, depth);
  // The template may keep the loop, but not its items.
  struct End {
    Loop& loop;
    ~End() { loop.end(); }
  } end{*loop};
  if (stmt.recursive) {
    const auto run_again = [this, &stmt](const Value& iterable, const FramePtr& scope, int inner_depth) {
      return run_loop(stmt, iterable, scope, inner_depth);
    };
    loop->make_recursive(run_again, frame);
  }
  for (size_t i = 0; i < items.size(); ++i) {
    runtime_.step();
    loop->set_index(i);
    auto scope = std::make_shared<Frame>(frame);
    assign(*stmt.target, items[i], scope);
    scope->set("loop", Value(std::static_pointer_cast<Object>(loop)));
    if (run(stmt.body, scope, out) == Flow::kBreak) break;
  }
  if (items.empty()) run(stmt.else_body, std::make_shared<Frame>(frame), out);
}

std::string StatementRunner::run_loop(const Stmt& loop, const Value& iterable, const FramePtr& frame,
                                      int depth) {
  Runtime::Depth guard(runtime_);
  std::string out;
  run_for(loop, loop_items(loop, iterable, frame), frame, out, depth);
  return out;
}

std::string StatementRunner::capture(const Block& body, const FramePtr& frame) {
  std::string out;
  run(body, std::make_shared<Frame>(frame), out);
  return out;
}

Value StatementRunner::make_procedure(const Stmt& stmt, const std::string& name, const FramePtr& frame) {
  // A macro points to its scope and the scope holds the macro: owning pointers would never be freed.
  if (kept_frames_.empty() || kept_frames_.back() != frame) kept_frames_.push_back(frame);
  Procedure procedure{name, &stmt.parameters, stmt.extras, &stmt.body, frame.get()};
  return Value(std::static_pointer_cast<Object>(std::make_shared<Macro>(*this, std::move(procedure))));
}

Value StatementRunner::call_procedure(const Procedure& procedure, Arguments& arguments) {
  // The scope is inside the frame that defined the macro, which kept_frames_ holds.
  auto frame = std::make_shared<Frame>(FramePtr(FramePtr(), procedure.frame));
  bind_arguments(evaluator_, procedure, arguments, frame);
  std::string out;
  run(*procedure.body, frame, out);
  return runtime_.text(std::move(out));
}

void StatementRunner::run_call_block(const Stmt& stmt, const FramePtr& frame, std::string& out) {
  const Expr& call_expr = *stmt.expr;
  Value callee = evaluator_.eval(*call_expr.items[0], frame);
  Arguments arguments = evaluator_.eval_arguments(call_expr, frame);
  arguments.named.emplace_back("caller", make_procedure(stmt, "caller", frame));
  write(out, to_text(runtime_.call(callee, arguments)));
}

void StatementRunner::run_with(const Stmt& stmt, const FramePtr& frame, std::string& out) {
  auto scope = std::make_shared<Frame>(frame);
  // All values are evaluated in the outer scope.
  for (const auto& [target, expr] : stmt.assignments) assign(*target, evaluator_.eval(*expr, frame), scope);
  run(stmt.body, scope, out);
}

void StatementRunner::assign(const Expr& target, const Value& value, const FramePtr& frame) {
  if (target.type == ExprType::kName) {
    frame->set(target.name, value);
    return;
  }
  if (target.type == ExprType::kAttribute) {
    Namespace* space = evaluator_.eval_name(target.items[0]->name, frame).space();
    if (space == nullptr) throw JinjaError("cannot assign attribute on non-namespace object");
    check_namespace_field(target.name);
    space->fields.set(Value(target.name), value);
    return;
  }
  std::vector<Value> values = runtime_.iterate(value);
  if (value.is_undefined() || values.size() != target.items.size()) {
    throw JinjaError(absl::StrCat("cannot unpack ", values.size(), " value(s) into ", target.items.size()));
  }
  for (size_t i = 0; i < values.size(); ++i) assign(*target.items[i], values[i], frame);
}

std::string StatementRunner::run_template(const Block& block) {
  MeterScope scope(runtime_.meter());
  auto frame = std::make_shared<Frame>(nullptr);
  std::string out;
  run(block, frame, out);
  return out;
}

std::string render(const Block& block, const RuntimeLimits& limits, Dict context, std::string now) {
  Runtime runtime(limits, std::move(context), std::move(now));
  return StatementRunner(runtime).run_template(block);
}

}  // namespace troupe::jinja
