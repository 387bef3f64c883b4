#include "sim/fleet/handover_driver.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/settings/option_checks.h"
#include "sim/trace/block_names.h"

namespace troupe::sim {

namespace {
constexpr auto kTick = std::chrono::milliseconds(20);  // PrefixMigratorOptions'
}

HandoverDriver::HandoverDriver(const Parts& parts) : parts_(parts) {
  for (size_t g = 0; g < parts.gateways.size(); ++g) {
    parts.gateways[g].on_begins_empty = [this, g](route::NodeIndex node) { begins_empty(g, node); };
    parts.gateways[g].on_leaving = [this, g](route::NodeIndex node, TimePoint until) {
      begin_leaving(g, node, until);
    };
  }
}

void HandoverDriver::keep_going() {
  if (!std::exchange(going_, true)) parts_.events.post(parts_.events.now() + kTick, EventKind::kHandover);
}

bool HandoverDriver::advance() {
  const TimePoint now = parts_.events.now();
  going_ = false;
  bool goes_on = false;
  carry_conversations();
  for (size_t g = 0; g < parts_.gateways.size(); ++g) {
    SimGateway& gateway = parts_.gateways[g];
    route::Handover& handover = gateway.router().handover();
    handover.advance(now);
    while (const auto move = handover.next()) compute_ahead(g, *move);
    goes_on = gateway.ramp(now) || !handover.empty() || goes_on;
  }
  return goes_on;
}

// A gateway sees a node that has nothing.
void HandoverDriver::begins_empty(size_t g, route::NodeIndex node) {
  route::Router& router = parts_.gateways[g].router();
  router.handover().join(node, router.targets().sets_for(node, kModel, parts_.prefixes.sets()),
                         parts_.events.now() + millis(parts_.options.handover_s * 1e3));
  keep_going();
}

// A gateway has seen a node's notice.
void HandoverDriver::begin_leaving(size_t gateway, route::NodeIndex node, TimePoint until) {
  const TimePoint now = parts_.events.now();
  const TimePoint by = std::min(until, now + millis(parts_.options.handover_s * 1e3));
  std::vector<route::MovedConversation> conversations;
  if (parts_.prefixes.active()) {
    for (const Conversation& c : parts_.fleet[node].engine->conversations())
      conversations.push_back({c.session, c.set, c.token_count, c.prefix_count});
  }
  route::Router& router = parts_.gateways[gateway].router();
  router.handover().leave(node, router.targets().sets_of(node), by);
  auto moves = std::make_unique<route::ConversationHandover>(router.handover(), node, now, by);
  moves->listed(conversations.size(), now);
  leaving_.push_back({gateway, parts_.fleet[node].incarnation, std::move(conversations), std::move(moves)});
}

void HandoverDriver::carry_conversations() {
  const TimePoint now = parts_.events.now();
  for (Leaving& leaving : leaving_) {
    while (const auto next = leaving.moves->next(now)) {
      if (!carry(leaving, leaving.conversations[*next])) leaving.moves->carried(now);
    }
  }
  std::erase_if(leaving_, [](const Leaving& leaving) { return leaving.moves->over(); });
}

// True: it is being computed.
bool HandoverDriver::carry(const Leaving& leaving, const route::MovedConversation& moved) {
  const route::NodeIndex leaves = leaving.moves->node();
  SimGateway& gateway = parts_.gateways[leaving.gateway];
  const route::NodeIndex to = gateway.router().targets().next_home(moved, kModel, leaves);
  const SimNode* const from = parts_.fleet[leaves].engine.get();
  if (to == route::kNoNode || !gateway.router().view().routable(to) || from == nullptr) return false;
  auto conversation = from->conversation(moved.session);
  if (!conversation) return false;  // evicted meanwhile
  Prefill prefill{leaving.gateway, gateway.incarnation(), {}, conversation->token_count, moved};
  prefill.from_incarnation = leaving.incarnation;
  prefill.move.from = leaves;
  prefill.move.to = to;
  SimNode::NewSimRequest request = begin_prefill(prefill);
  request.prefix_tokens = static_cast<int32_t>(moved.set_tokens);
  request.set = moved.set;
  request.session = moved.session;
  request.blocks = std::move(conversation->block_hashes);
  return send_prefill(to, std::move(request));
}

void HandoverDriver::carried(const Prefill& prefill) {
  for (Leaving& leaving : leaving_) {
    if (leaving.gateway == prefill.gateway && leaving.incarnation == prefill.from_incarnation &&
        leaving.moves->node() == prefill.move.from)
      leaving.moves->carried(parts_.events.now());
  }
}

void HandoverDriver::compute_ahead(size_t g, route::Handover::Move move) {
  SimGateway& gateway = parts_.gateways[g];
  route::Router& router = gateway.router();
  const PrefixBlockCache::Prefix* const prefix = parts_.prefixes.find(move.set);
  if (prefix != nullptr && move.from != route::kNoNode) {
    const route::NodeIndex to = router.targets().next_home(move.set, kModel, move.from);
    if (to != route::kNoNode) router.handover().set_target(move, to);
  }
  const bool can = prefix != nullptr && move.to != route::kNoNode && router.view().routable(move.to);
  if (!can) return router.handover().done(move);
  SimNode::NewSimRequest request = begin_prefill({g, gateway.incarnation(), move, prefix->tokens});
  request.prefix_tokens = prefix->tokens;
  request.set = move.set;
  route::PrefixKey key;
  key.set = move.set;
  key.prefix_tokens = key.prompt_tokens = prefix->tokens;
  request.planned = router.at_home(key, kModel, move.to);
  request.blocks.resize(prefix->blocks.size());
  name_blocks(prefix->blocks, request.blocks.data());
  if (!send_prefill(move.to, std::move(request))) router.handover().done(move);
}

SimNode::NewSimRequest HandoverDriver::begin_prefill(const Prefill& prefill) {
  SimNode::NewSimRequest request;
  request.id = prefills_.begin(prefill);
  request.prompt_tokens = prefill.tokens;
  request.new_tokens = 1;
  request.background = true;
  return request;
}

// False: the node refuses, or has died unnoticed.
bool HandoverDriver::send_prefill(route::NodeIndex node, SimNode::NewSimRequest request) {
  SimNode* const engine = parts_.fleet[node].engine.get();
  const RequestId id = request.id;
  if (engine != nullptr) parts_.fleet.interrupt(node);
  if (engine == nullptr || !engine->add(std::move(request), parts_.events.now()).ok()) {
    prefills_.end(id);
    return false;
  }
  parts_.fleet.begin_step(node);
  return true;
}

bool HandoverDriver::forgotten(const Prefill& prefill) const {
  return parts_.gateways[prefill.gateway].incarnation() != prefill.gateway_incarnation;
}

void HandoverDriver::computed(RequestId id) {
  const std::optional<Prefill> prefill = prefills_.end(id);
  if (!prefill || forgotten(*prefill)) return;
  route::Router& router = parts_.gateways[prefill->gateway].router();
  if (prefill->moved) {
    router.targets().computed(*prefill->moved, prefill->move.to, parts_.events.now());
    return carried(*prefill);
  }
  router.targets().computed(prefill->move.set, prefill->move.to, prefill->tokens, parts_.events.now());
  router.handover().done(prefill->move);
}

void HandoverDriver::node_stopped(route::NodeIndex node) {
  for (const Prefill& prefill : prefills_.end_all_at(node)) {
    if (forgotten(prefill)) continue;
    if (prefill.moved) {
      carried(prefill);
    } else {
      parts_.gateways[prefill.gateway].router().handover().done(prefill.move);
    }
  }
}

void HandoverDriver::gateway_restarts(size_t gateway) {
  std::erase_if(leaving_, [gateway](const Leaving& leaving) { return leaving.gateway == gateway; });
}

// A node with nothing left to hand on is asked no more.
bool HandoverDriver::has_left(route::NodeIndex node) {
  bool left = true;
  for (size_t g = 0; g < parts_.gateways.size(); ++g) {
    SimGateway& gateway = parts_.gateways[g];
    const route::Handover& handover = gateway.router().handover();
    if (gateway.leaving(node) && !handover.held(node) && handover.open_sets(node) == 0)
      gateway.handover_done(node, parts_.events.now());
    left = left && !gateway.leaving(node);
  }
  SimNode& engine = *parts_.fleet[node].engine;
  engine.catch_up(parts_.events.now());
  return left && engine.count_of([](RequestId) { return true; }) == 0;
}

}  // namespace troupe::sim
