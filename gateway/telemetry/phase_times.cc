#include "gateway/telemetry/phase_times.h"

#include <numeric>

namespace troupe {

std::string_view phase_name(Phase phase) {
  switch (phase) {
    case Phase::kAdmit:
      return "admit";
    case Phase::kParse:
      return "parse";
    case Phase::kChoose:
      return "choose";
    case Phase::kSend:
      return "send";
    case Phase::kRelay:
      return "relay";
    case Phase::kSettle:
      return "settle";
  }
  return "settle";
}

Duration PhaseTimes::total() const {
  return std::accumulate(took_.begin(), took_.end(), Duration::zero());
}

}  // namespace troupe
