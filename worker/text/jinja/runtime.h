#pragma once

// One rendering: variables, limits, and the walk over the tree. Created for one render() and destroyed after
// it, so that the template's leftovers (namespaces that hold each other, macros that hold scopes) live
// exactly as long.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "worker/text/jinja/ast.h"
#include "worker/text/jinja/meter.h"
#include "worker/text/jinja/value.h"

namespace troupe::jinja {

struct RuntimeLimits {
  int64_t steps_max = 0;
  size_t output_bytes_max = 0;
};

// Variables of one scope; others are looked up in the parent.
struct Frame {
  explicit Frame(std::shared_ptr<Frame> parent_frame) : parent(std::move(parent_frame)) {}
  void set(std::string_view name, Value value);
  // Adds to `passed`, if given, the number of variables visited.
  const Value* find(std::string_view name, int64_t* passed = nullptr) const;

  std::shared_ptr<Frame> parent;
  std::vector<std::pair<std::string, Value>> variables;
};
using FramePtr = std::shared_ptr<Frame>;

class Runtime {
 public:
  // `context` are the template's variables; `now` is "YYYY-MM-DD HH:MM:SS", or empty for the system's clock.
  Runtime(const RuntimeLimits& limits, Dict context, std::string now);

  // Throws JinjaError.
  std::string render(const Block& block);

  // Charges work other than reading text to this render's meter.
  void step(int64_t count = 1) { meter_.step(count); }
  // Charges a text that is kept: limits its size and the total.
  void charge_text(size_t bytes);
  // Throw if one text, or `count` times `size` bytes of it, would exceed an output's limit.
  void check_text(size_t bytes) const;
  void check_repetition(size_t size, int64_t count) const;
  // Makes a string of the template, charged.
  Value text(std::string bytes, bool markup = false);

  // Returns the items of a for loop, charged as steps. An error if the value is not iterable.
  std::vector<Value> iterate(const Value& value);
  Value call(const Value& callee, Arguments& arguments);
  Value attribute(const Value& value, std::string_view name);
  Value item(const Value& value, const Value& key);
  // Resolves "a.b.0" by item() for every part, as filters with attribute= do.
  Value path(const Value& value, const Value& attribute);

  Value make_namespace(Dict fields);
  const std::string& now() const { return now_; }
  const RuntimeLimits& limits() const { return limits_; }

  // For macros: runs `body` with `parameters` bound, in a scope inside `frame`.
  struct Procedure {
    std::string name;
    const std::vector<Parameter>* parameters;
    MacroExtras extras;
    const Block* body;
    Frame* frame;
  };
  void bind_arguments(const Procedure& procedure, Arguments& arguments, const FramePtr& frame);
  Value call_procedure(const Procedure& procedure, Arguments& arguments);
  // Runs loop(…) in a recursive loop.
  std::string run_loop(const Stmt& loop, const Value& iterable, const FramePtr& frame, int depth);

 private:
  enum class Flow : uint8_t { kNormal, kBreak, kContinue };
  class Depth;

  Flow run(const Block& block, const FramePtr& frame, std::string& out);
  Flow run(const Stmt& stmt, const FramePtr& frame, std::string& out);
  Flow run_if(const Stmt& stmt, const FramePtr& frame, std::string& out);
  void run_for(const Stmt& stmt, const std::vector<Value>& items, const FramePtr& frame, std::string& out,
               int depth);
  std::vector<Value> loop_items(const Stmt& stmt, const Value& iterable, const FramePtr& frame);
  void run_call_block(const Stmt& stmt, const FramePtr& frame, std::string& out);
  void run_with(const Stmt& stmt, const FramePtr& frame, std::string& out);
  std::string capture(const Block& body, const FramePtr& frame);
  Value filtered(const Expr& filters, const FramePtr& frame, std::string captured);
  void write(std::string& out, std::string_view text);
  void assign(const Expr& target, const Value& value, const FramePtr& frame);
  Value make_procedure(const Stmt& stmt, const std::string& name, const FramePtr& frame);

  Value eval(const Expr& expr, const FramePtr& frame);
  Value eval_node(const Expr& expr, const FramePtr& frame);
  Value eval_name(const std::string& name, const FramePtr& frame);
  Value eval_item(const Expr& expr, const FramePtr& frame);
  Value eval_slice(const Value& value, const Expr& slice, const FramePtr& frame);
  Value eval_call(const Expr& expr, const FramePtr& frame);
  Value eval_compare(const Expr& expr, const FramePtr& frame);
  Value eval_concat(const Expr& expr, const FramePtr& frame);
  Value eval_dict(const Expr& expr, const FramePtr& frame);
  Value eval_condition(const Expr& expr, const FramePtr& frame);
  std::vector<Value> eval_all(const std::vector<ExprPtr>& exprs, const FramePtr& frame);
  Arguments eval_arguments(const Expr& call, const FramePtr& frame);

  RuntimeLimits limits_;
  Dict context_;
  std::string now_;
  Meter meter_;
  size_t output_bytes_ = 0;
  int depth_ = 0;
  Value filter_input_;  // value of kFilterInput
  std::vector<std::unique_ptr<Namespace>> namespaces_;
  std::vector<FramePtr> kept_frames_;  // scopes that macros point to
};

}  // namespace troupe::jinja
