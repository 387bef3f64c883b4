#pragma once

// What adds up at any moment of a run, counted in two places that do not know of each other. What does not is
// a defect of the simulator, or of the scheduler that it runs.

#include <cstdint>
#include <string_view>

#include "common/core/status.h"

namespace troupe::sim {

struct RequestBooks {
  int64_t arrived = 0, finished = 0, lost = 0;
  int64_t on_their_way = 0;  // counted where they are kept
  // Tokens of the answers that were finished: as many as were asked for and have room, and what nodes told
  // of. However many nodes an answer visits, none is told twice, and none is left out.
  int64_t tokens_due = 0, tokens_told = 0;
};
Status check(const RequestBooks& books);

struct NodeBooks {
  int64_t sent = 0;  // requests that reached it and have not ended
  int64_t held = 0;  // by its scheduler
};
Status check(const NodeBooks& books);

// Tokens of the prompts that a node has computed to their end: what was sent, what the scheduler told to be
// cached, and what its steps were told to compute. (Without those that gave way on the way: of these only the
// first admission's share is told.)
struct PromptBooks {
  int64_t sent = 0, cached = 0, computed = 0;
};
Status check(const PromptBooks& books);

// Ends the program: a simulation that does not add up has no result.
[[noreturn]] void conservation_broken(std::string_view what);

}  // namespace troupe::sim
