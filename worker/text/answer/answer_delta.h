#pragma once

// A parsed piece of an answer: what its text is, by what the client gets it as.

#include <string>
#include <vector>

#include "common/api/tool_call.h"

namespace troupe {

struct AnswerDelta {
  std::string reasoning, content;
  std::vector<ToolCall> calls;  // pieces, at most one of each call

  bool empty() const { return reasoning.empty() && content.empty() && calls.empty(); }
};

}  // namespace troupe
