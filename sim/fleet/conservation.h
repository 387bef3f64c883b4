#pragma once

// Conservation checks: sums that hold at any moment of a run, counted in two independent places. A mismatch
// is a defect of the simulator, or of the scheduler that it runs.

#include <cstdint>
#include <string_view>

#include "common/core/status.h"

namespace troupe::sim {

struct RequestSums {
  int64_t arrived = 0, finished = 0, lost = 0, refused = 0;
  int64_t on_their_way = 0;  // counted where they are kept
  // Tokens of the finished answers: the requested number that has room, and the number that nodes reported.
  // However many nodes an answer visits, no token is reported twice, and none is left out.
  int64_t tokens_due = 0, tokens_sent = 0;
};
Status check(const RequestSums& sums);

struct NodeSums {
  int64_t sent = 0;  // requests that reached it and have not ended
  int64_t held = 0;  // by the node's scheduler
};
Status check(const NodeSums& sums);

// Tokens of the prompts that a node has computed to their end: sent, cached according to the scheduler, and
// computed by its steps. (Without requests preempted on the way: for these only the first admission's share
// is reported.)
struct PromptSums {
  int64_t sent = 0, cached = 0, computed = 0;
};
Status check(const PromptSums& sums);

// Ends the program: a simulation with wrong sums has no result.
[[noreturn]] void conservation_broken(std::string_view what);

}  // namespace troupe::sim
