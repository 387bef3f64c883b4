#pragma once

// A macro, or the body of a {% call %}, and how arguments become its variables.

#include <string>
#include <vector>

#include "worker/text/jinja/ast.h"
#include "worker/text/jinja/eval.h"
#include "worker/text/jinja/frame.h"

namespace troupe::jinja {

// Runs `body` with `parameters` bound, in a scope inside `frame`, which lives as long as the rendering.
struct Procedure {
  std::string name;
  const std::vector<Parameter>* parameters;
  MacroExtras extras;
  const Block* body;
  Frame* frame;
};

// Sets the procedure's variables in `frame`, the scope of its body. `arguments` are used up. Throws
// JinjaError.
void bind_arguments(Evaluator& evaluator, const Procedure& procedure, Arguments& arguments,
                    const FramePtr& frame);

}  // namespace troupe::jinja
