#include "sim/fleet/conservation.h"

#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace troupe::sim {

Status check(const RequestSums& b) {
  if (b.arrived != b.finished + b.lost + b.refused + b.on_their_way) {
    return absl::InternalError(absl::StrCat(b.arrived, " requests arrived, ", b.finished, " were finished, ",
                                            b.lost, " lost, ", b.refused, " refused, and ", b.on_their_way,
                                            " are on their way"));
  }
  if (b.tokens_sent != b.tokens_due) {
    return absl::InternalError(absl::StrCat("the answers that were finished have ", b.tokens_sent,
                                            " tokens, and are due ", b.tokens_due));
  }
  return absl::OkStatus();
}

Status check(const NodeSums& b) {
  if (b.sent == b.held) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(b.sent, " requests are at a node whose scheduler has ", b.held));
}

Status check(const PromptSums& b) {
  if (b.sent == b.cached + b.computed) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("prompts of ", b.sent, " tokens were ", b.cached, " cached and ",
                                          b.computed, " computed at a node"));
}

void conservation_broken(std::string_view what) {
  std::fprintf(stderr, "simulation: conservation broken: %.*s\n", static_cast<int>(what.size()), what.data());
  std::abort();
}

}  // namespace troupe::sim
