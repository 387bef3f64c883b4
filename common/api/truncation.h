#pragma once

// `truncation` of a chat: how its history is cut where it has outgrown the model's window.

#include <cstdint>
#include <optional>

namespace troupe {

// The oldest messages are left out in steps: of `drop` of the history's room each, so that the turns between
// two cuts find everything before them cached (worker/input/history_cuts.h).
struct Truncation {
  std::optional<int64_t> max_prompt_tokens;  // >= 1; none: what the window has beside the answer
  double drop = 0.5;                         // (0, 1]
  int64_t keep_messages = 0;                 // leading messages that stay, beside the system's; >= 0
};

}  // namespace troupe
