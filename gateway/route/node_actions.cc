#include "gateway/route/node_actions.h"

namespace troupe::route {

bool perform(Router& router, const NodeAction& action) {
  switch (action.kind) {
    case NodeAction::Kind::kForget:
      router.forget_node(action.node);
      return true;
    case NodeAction::Kind::kStay:
      router.handover().come_back(action.node);
      return true;
    case NodeAction::Kind::kAdopt:
      router.update_cluster(action.view);
      return true;
    default:
      return false;
  }
}

}  // namespace troupe::route
