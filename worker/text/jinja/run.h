#pragma once

// Runs statements of one rendering.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "worker/text/jinja/ast.h"
#include "worker/text/jinja/eval.h"
#include "worker/text/jinja/frame.h"
#include "worker/text/jinja/procedure.h"
#include "worker/text/jinja/runtime.h"

namespace troupe::jinja {

// Renders a template. `context` are its variables; `now` is "YYYY-MM-DD HH:MM:SS", or empty for the system's
// clock. Throws JinjaError.
std::string render(const Block& block, const RuntimeLimits& limits, Dict context, std::string now);

// Lives as long as the rendering: macros point to it, and to the scopes that it keeps for them.
class StatementRunner {
 public:
  // `runtime` lives longer.
  explicit StatementRunner(Runtime& runtime) : runtime_(runtime), evaluator_(runtime) {}
  StatementRunner(const StatementRunner&) = delete;
  StatementRunner& operator=(const StatementRunner&) = delete;

  // Runs a whole template. Throws JinjaError.
  std::string run_template(const Block& block);
  // Runs a macro.
  Value call_procedure(const Procedure& procedure, Arguments& arguments);

 private:
  enum class Flow : uint8_t { kNormal, kBreak, kContinue };

  Flow run(const Block& block, const FramePtr& frame, std::string& out);
  Flow run(const Stmt& stmt, const FramePtr& frame, std::string& out);
  Flow run_if(const Stmt& stmt, const FramePtr& frame, std::string& out);
  void run_for(const Stmt& stmt, const std::vector<Value>& items, const FramePtr& frame, std::string& out,
               int depth);
  std::string run_loop(const Stmt& loop, const Value& iterable, const FramePtr& frame, int depth);
  std::vector<Value> loop_items(const Stmt& stmt, const Value& iterable, const FramePtr& frame);
  void run_call_block(const Stmt& stmt, const FramePtr& frame, std::string& out);
  void run_with(const Stmt& stmt, const FramePtr& frame, std::string& out);
  std::string capture(const Block& body, const FramePtr& frame);
  void write(std::string& out, std::string_view text);
  void assign(const Expr& target, const Value& value, const FramePtr& frame);
  Value make_procedure(const Stmt& stmt, const std::string& name, const FramePtr& frame);

  Runtime& runtime_;
  Evaluator evaluator_;
  size_t output_bytes_ = 0;
  std::vector<FramePtr> kept_frames_;  // scopes that macros point to
};

}  // namespace troupe::jinja
