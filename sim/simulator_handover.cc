// Nodes whose cache begins empty: each gateway has the sets they are to have computed there before their
// requests come, and their share rises, as the live gateway does (gateway/upstream/mover.h, Fleet::ramp).

#include <algorithm>
#include <utility>

#include "sim/block_names.h"
#include "sim/checks.h"
#include "sim/simulation.h"

namespace troupe::sim {

namespace {
constexpr auto kTick = std::chrono::milliseconds(20);  // MoverOptions'
}

// What a gateway would keep the text of.
void Simulation::keep_prefix(const Flight& flight) {
  const TraceRequest& trace = flight.trace;
  if (trace.set == 0 || trace.prefix_tokens <= 0 || handovers_.knows(flight.key.set)) return;
  const auto full =
      std::min(static_cast<size_t>(trace.prefix_tokens / trace.block_tokens), trace.blocks.size());
  const auto end = trace.blocks.begin() + static_cast<std::ptrdiff_t>(full);
  handovers_.keep(flight.key.set, {{trace.blocks.begin(), end}, trace.prefix_tokens});
}

// A gateway sees a node that has nothing.
void Simulation::begins_empty(SimGateway& gateway, int32_t index) {
  gateway.begins_empty(static_cast<route::NodeIndex>(index), now_);
  const bool computes = options_.handover_s > 0 && nodes_tell();
  const std::vector<Hash128> known = computes ? handovers_.sets() : std::vector<Hash128>();
  const auto node = static_cast<route::NodeIndex>(index);
  gateway.router().handover().join(node, gateway.router().sets_for(node, kModel, known),
                                   now_ + millis(options_.handover_s * 1e3));
  if (std::exchange(handing_over_, true)) return;
  post(now_ + kTick, EventKind::kHandover);
}

void Simulation::hand_over() {
  handing_over_ = false;
  for (size_t g = 0; g < gateways_.size(); ++g) {
    SimGateway& gateway = *gateways_[g];
    route::Handover& handover = gateway.router().handover();
    handover.advance(now_);
    while (const auto move = handover.next()) compute_ahead(g, *move);
    handing_over_ = gateway.ramp(now_) || !handover.empty() || handing_over_;
  }
  if (handing_over_) post(now_ + kTick, EventKind::kHandover);
}

void Simulation::compute_ahead(size_t gateway, const route::Handover::Move& move) {
  route::Router& router = gateways_[gateway]->router();
  const Handovers::Prefix* prefix = handovers_.find(move.set);
  const auto index = static_cast<int32_t>(move.to);
  const bool can = prefix != nullptr && move.to != route::kNoNode && router.view().routable(move.to) &&
                   nodes_[static_cast<size_t>(index)].engine != nullptr;
  if (!can) return router.handover().done(move);
  SimNode::NewFlight flight;
  flight.id = handovers_.begin({gateway, gateway_lives_[gateway], move, prefix->tokens});
  flight.prompt_tokens = flight.prefix_tokens = prefix->tokens;
  flight.new_tokens = 1;
  flight.set = move.set;
  route::PrefixKey key;
  key.set = move.set;
  key.prefix_tokens = key.prompt_tokens = prefix->tokens;
  flight.planned = router.at_home(key, kModel, move.to);
  flight.blocks.resize(prefix->blocks.size());
  name_blocks(prefix->blocks, flight.blocks.data());
  interrupt(index);
  const RequestId id = flight.id;
  if (!nodes_[static_cast<size_t>(index)].engine->add(std::move(flight), now_).ok()) {
    handovers_.end(id);
    return router.handover().done(move);
  }
  kick(index);
}

void Simulation::computed_ahead(RequestId id) {
  const std::optional<Handovers::Ahead> ahead = handovers_.end(id);
  if (!ahead || gateway_lives_[ahead->gateway] != ahead->gateway_life) return;
  route::Router& router = gateways_[ahead->gateway]->router();
  router.computed(ahead->move.set, ahead->move.to, ahead->tokens, now_);
  router.handover().done(ahead->move);
}

// It had not computed these yet.
void Simulation::nothing_ahead_at(int32_t index) {
  for (const Handovers::Ahead& ahead : handovers_.end_all_at(static_cast<route::NodeIndex>(index))) {
    if (gateway_lives_[ahead.gateway] == ahead.gateway_life)
      gateways_[ahead.gateway]->router().handover().done(ahead.move);
  }
}

}  // namespace troupe::sim
