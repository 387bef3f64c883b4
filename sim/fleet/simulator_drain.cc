// Nodes that are asked to go, as the live gateway and worker do it (gateway/cluster/prefix_migrator.h):
// conversations first, then the sets, one by one, each computed where its requests go from then on. The node
// answers what it has, and is gone.

#include <algorithm>
#include <utility>

#include "common/settings/option_checks.h"
#include "sim/fleet/simulation.h"

namespace troupe::sim {

// A gateway has seen a node's notice.
void Simulation::begin_leaving(size_t gateway, route::NodeIndex node, TimePoint until) {
  const TimePoint by = std::min(until, now_ + millis(options_.handover_s * 1e3));
  std::vector<route::MovedConversation> conversations;
  if (keeps_prefixes_) {
    for (const Conversation& c : nodes_[node].engine->conversations())
      conversations.push_back({c.session, c.set, c.token_count, c.prefix_count});
  }
  route::Router& router = gateways_[gateway]->router();
  router.handover().leave(node, router.targets().sets_of(node), by);
  auto moves = std::make_unique<route::ConversationHandover>(router.handover(), node, now_, by);
  moves->listed(conversations.size(), now_);
  leaving_.push_back({gateway, nodes_[node].life, std::move(conversations), std::move(moves)});
}

void Simulation::carry_conversations() {
  for (Handovers::Leaving& leaving : leaving_) {
    while (const auto next = leaving.moves->next(now_)) {
      if (!carry(leaving, leaving.conversations[*next])) leaving.moves->carried(now_);
    }
  }
  std::erase_if(leaving_, [](const Handovers::Leaving& leaving) { return leaving.moves->over(); });
}

// True: it is being computed.
bool Simulation::carry(const Handovers::Leaving& leaving, const route::MovedConversation& moved) {
  const route::NodeIndex leaves = leaving.moves->node();
  route::Router& router = gateways_[leaving.gateway]->router();
  const route::NodeIndex to = router.targets().next_home(moved, kModel, leaves);
  const SimNode* const from = nodes_[leaves].engine.get();
  if (to == route::kNoNode || !router.view().routable(to) || from == nullptr) return false;
  auto conversation = from->conversation(moved.session);
  if (!conversation) return false;  // evicted meanwhile
  Handovers::Ahead ahead{
      leaving.gateway, gateway_lives_[leaving.gateway], {}, conversation->token_count, moved};
  ahead.from_life = leaving.life;
  ahead.move.from = leaves;
  ahead.move.to = to;
  SimNode::NewSimRequest sim_request = begin_ahead(ahead);
  sim_request.prefix_tokens = static_cast<int32_t>(moved.set_tokens);
  sim_request.set = moved.set;
  sim_request.session = moved.session;
  sim_request.blocks = std::move(conversation->block_hashes);
  return send_ahead(to, std::move(sim_request));
}

void Simulation::carried(const Handovers::Ahead& ahead) {
  for (Handovers::Leaving& leaving : leaving_) {
    if (leaving.gateway == ahead.gateway && leaving.life == ahead.from_life &&
        leaving.moves->node() == ahead.move.from)
      leaving.moves->carried(now_);
  }
}

// A node with nothing left to hand on is asked no more; it is gone once no request needs it.
void Simulation::end_leaving() {
  for (size_t n = 0; n < nodes_.size(); ++n) {
    if (!nodes_[n].drains) continue;
    const auto node = static_cast<route::NodeIndex>(n);
    bool left = true;
    for (auto& gateway : gateways_) {
      const route::Handover& handover = gateway->router().handover();
      if (gateway->leaving(node) && !handover.held(node) && handover.open_sets(node) == 0)
        gateway->handover_done(node, now_);
      left = left && !gateway->leaving(node);
    }
    nodes_[n].engine->catch_up(now_);
    if (left && nodes_[n].engine->count_of([](RequestId) { return true; }) == 0)
      kill(static_cast<int32_t>(n));
  }
}

}  // namespace troupe::sim
