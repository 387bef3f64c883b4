#include "sim/fleet/loss_words.h"

namespace troupe::sim {

std::string_view loss_words(const route::Failure& failure) {
  switch (failure.kind) {
    case route::FailureKind::kConnect:
      return "no connection to its node";
    case route::FailureKind::kTransport:
      return "its node died before it answered";
    case route::FailureKind::kBody:
      return "its node died while it answered";
    case route::FailureKind::kSilent:
      return "its node stood still";
    case route::FailureKind::kStatus:
      return failure.http_status == 429 ? "the nodes' own queues were full" : "too long for the nodes";
    case route::FailureKind::kDeadline:
    case route::FailureKind::kLocal:
      break;
  }
  return "no more time";
}

}  // namespace troupe::sim
