// Nodes whose cache begins empty: each gateway has the sets they are to have computed there before their
// requests come, and their share rises, as the live gateway does (gateway/cluster/prefix_migrator.h,
// Fleet::ramp). And what it has computed elsewhere of those that leave (simulator_drain.cc).

#include <algorithm>
#include <utility>

#include "common/settings/option_checks.h"
#include "sim/fleet/simulation.h"
#include "sim/trace/block_names.h"

namespace troupe::sim {

namespace {
constexpr auto kTick = std::chrono::milliseconds(20);  // PrefixMigratorOptions'
}

// The prefix that a gateway would keep the text of.
void Simulation::keep_prefix(const SimRequest& sim_request) {
  const TraceRequest& trace = sim_request.trace;
  if (trace.set == 0 || trace.prefix_tokens <= 0 || handovers_.knows(sim_request.key.set)) return;
  const auto full =
      std::min(static_cast<size_t>(trace.prefix_tokens / trace.block_tokens), trace.blocks.size());
  const auto end = trace.blocks.begin() + static_cast<std::ptrdiff_t>(full);
  handovers_.keep(sim_request.key.set, {{trace.blocks.begin(), end}, trace.prefix_tokens});
}

// A gateway sees a node that has nothing.
void Simulation::begins_empty(SimGateway& gateway, route::NodeIndex node) {
  const bool computes = options_.handover_s > 0 && nodes_report();
  const std::vector<Hash128> known = computes ? handovers_.sets() : std::vector<Hash128>();
  gateway.router().handover().join(node, gateway.router().targets().sets_for(node, kModel, known),
                                   now_ + millis(options_.handover_s * 1e3));
  keep_handing_over();
}

void Simulation::keep_handing_over() {
  if (!std::exchange(handing_over_, true)) post(now_ + kTick, EventKind::kHandover);
}

void Simulation::hand_over() {
  handing_over_ = false;
  bool goes_on = false;
  carry_conversations();
  for (size_t g = 0; g < gateways_.size(); ++g) {
    SimGateway& gateway = *gateways_[g];
    route::Handover& handover = gateway.router().handover();
    handover.advance(now_);
    while (const auto move = handover.next()) compute_ahead(g, *move);
    goes_on = gateway.ramp(now_) || !handover.empty() || goes_on;
  }
  end_leaving();
  if (goes_on) keep_handing_over();
}

void Simulation::compute_ahead(size_t gateway, route::Handover::Move move) {
  route::Router& router = gateways_[gateway]->router();
  const Handovers::Prefix* prefix = handovers_.find(move.set);
  if (prefix != nullptr && move.from != route::kNoNode) {
    const route::NodeIndex to = router.targets().next_home(move.set, kModel, move.from);
    if (to != route::kNoNode) router.handover().set_target(move, to);
  }
  const bool can = prefix != nullptr && move.to != route::kNoNode && router.view().routable(move.to);
  if (!can) return router.handover().done(move);
  SimNode::NewSimRequest sim_request = begin_ahead({gateway, gateway_lives_[gateway], move, prefix->tokens});
  sim_request.prefix_tokens = prefix->tokens;
  sim_request.set = move.set;
  route::PrefixKey key;
  key.set = move.set;
  key.prefix_tokens = key.prompt_tokens = prefix->tokens;
  sim_request.planned = router.at_home(key, kModel, move.to);
  sim_request.blocks.resize(prefix->blocks.size());
  name_blocks(prefix->blocks, sim_request.blocks.data());
  if (!send_ahead(move.to, std::move(sim_request))) router.handover().done(move);
}

SimNode::NewSimRequest Simulation::begin_ahead(const Handovers::Ahead& ahead) {
  SimNode::NewSimRequest sim_request;
  sim_request.id = handovers_.begin(ahead);
  sim_request.prompt_tokens = ahead.tokens;
  sim_request.new_tokens = 1;
  sim_request.background = true;
  return sim_request;
}

// False: the node refuses, or has died unnoticed.
bool Simulation::send_ahead(route::NodeIndex node, SimNode::NewSimRequest sim_request) {
  const auto index = static_cast<int32_t>(node);
  SimNode* const engine = nodes_[node].engine.get();
  const RequestId id = sim_request.id;
  if (engine != nullptr) interrupt(index);
  if (engine == nullptr || !engine->add(std::move(sim_request), now_).ok()) {
    handovers_.end(id);
    return false;
  }
  kick(index);
  return true;
}

void Simulation::computed_ahead(RequestId id) {
  const std::optional<Handovers::Ahead> ahead = handovers_.end(id);
  if (!ahead || gateway_lives_[ahead->gateway] != ahead->gateway_life) return;
  route::Router& router = gateways_[ahead->gateway]->router();
  if (ahead->moved) {
    router.targets().computed(*ahead->moved, ahead->move.to, now_);
    return carried(*ahead);
  }
  router.targets().computed(ahead->move.set, ahead->move.to, ahead->tokens, now_);
  router.handover().done(ahead->move);
}

// It had not computed these yet.
void Simulation::nothing_ahead_at(int32_t index) {
  for (const Handovers::Ahead& ahead : handovers_.end_all_at(static_cast<route::NodeIndex>(index))) {
    if (gateway_lives_[ahead.gateway] != ahead.gateway_life) continue;
    if (ahead.moved) {
      carried(ahead);
    } else {
      gateways_[ahead.gateway]->router().handover().done(ahead.move);
    }
  }
}

}  // namespace troupe::sim
