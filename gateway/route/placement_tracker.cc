#include "gateway/route/placement_tracker.h"

#include <algorithm>

namespace troupe::route {

namespace {

// Remembered links of a request without a session, the deepest.
constexpr size_t kChainPlacedMax = 64;
// A worker reports what it computed within a step or two. Until then the next request must find it; what has
// not been reported by then was not kept.
constexpr auto kConfirmedWithin = std::chrono::seconds(1);
constexpr size_t kUnconfirmedMax = 65536;

}  // namespace

void PlacementTracker::advance(TimePoint now) {
  while (!unconfirmed_.empty() && unconfirmed_.front().until <= now) forget_oldest();
}

void PlacementTracker::remove_nodes(std::span<const NodeIndex> nodes) {
  const auto is_there = [&](const auto& of) {
    return std::binary_search(nodes.begin(), nodes.end(), of.node);
  };
  std::erase_if(outbox_, is_there);
  std::erase_if(unconfirmed_, is_there);
}

// On a node with a residency feed, a placement bridges the time until the worker reports it.
void PlacementTracker::placed(Placement placement, TimePoint now) {
  if (relies_on_shadow(placement.node)) return remember(placement);
  if (core_.shares_exact) return;  // its owner applies events as they happen
  if (known_.exact->index.tokens(placement.set, placement.node) > 0) placement.set = {};
  remember(placement);
  for (const Hash128& key : {placement.set, placement.session}) {
    if (!key.is_zero()) unconfirmed_.push_back({now + kConfirmedWithin, key, placement.node});
  }
  while (unconfirmed_.size() > kUnconfirmedMax) forget_oldest();
}

void PlacementTracker::forget_oldest() {
  const Unconfirmed& oldest = unconfirmed_.front();
  if (!relies_on_shadow(oldest.node)) known_.shadow.drop(oldest.key, oldest.node);
  unconfirmed_.pop_front();
}

void PlacementTracker::place_chain(const PrefixKey& key, NodeIndex node) {
  std::span<const Anchor> chain = chain_of(key);
  int64_t before = key.prefix_tokens > 0 ? key.prefix_tokens : known_.ratio.tokens(key.prefix_bytes);
  if (chain.size() > kChainPlacedMax) {
    before = anchor_tokens(chain[chain.size() - kChainPlacedMax - 1], known_.ratio);
    chain = chain.last(kChainPlacedMax);
  }
  for (const Anchor& anchor : chain) {
    Placement placed;
    placed.node = node;
    placed.session = anchor.hash;
    const int64_t tokens = anchor_tokens(anchor, known_.ratio);
    placed.session_tokens = static_cast<uint32_t>(tokens);
    // A conversation that the shadow knows by its name is charged and published by that name.
    if (key.session.is_zero() || !relies_on_shadow(node))
      placed.session_charge = static_cast<uint32_t>(std::max<int64_t>(tokens - before, 0));
    before = tokens;
    remember(placed);
    if (key.session.is_zero()) publish(placed);
  }
}

void PlacementTracker::publish(const Placement& placement) {
  if (known_.gateways <= 1 || options_.affinity.mode == Mode::kPlan) return;
  if (outbox_.size() >= options_.memory.outbox_max) {  // nothing drains it: half goes at once, not one by one
    const size_t half = outbox_.size() / 2 + 1;
    outbox_.erase(outbox_.begin(), outbox_.begin() + static_cast<long>(std::min(half, outbox_.size())));
    dropped_ += half;
  }
  outbox_.push_back(placement);
}

std::vector<Placement> PlacementTracker::take() {
  std::vector<Placement> taken;
  taken.swap(outbox_);
  return taken;
}

void PlacementTracker::adopt(std::span<const Placement> placements) {
  for (const Placement& p : placements) {
    if (relies_on_shadow(p.node)) remember(p);
  }
}

// Puts the set after its session: used last, it is forgotten after what needs it. (A gateway that has just
// begun receives all placements from a peer, once, before it has probed the nodes.)
void PlacementTracker::remember(const Placement& p) {
  const ClusterView& view = *known_.view;
  const bool unseen = p.node < view.size() && view.node(p.node).state == NodeState::kUnknown;
  if (!view.routable(p.node) && !unseen) return;
  if (!p.session.is_zero())
    known_.shadow.put({p.session, HolderKind::kSession, p.node, p.session_tokens, p.session_charge});
  if (!p.set.is_zero()) known_.shadow.put({p.set, HolderKind::kSet, p.node, p.set_tokens, p.set_tokens});
}

FeedResult PlacementTracker::residency(NodeIndex node, const ResidencyEvent& event) {
  const bool guessed = relies_on_shadow(node);
  const FeedResult result = known_.exact->apply(node, event);
  if (relies_on_shadow(node)) return result;
  if (guessed) {  // the feed replaces what was guessed
    known_.shadow.drop_node(node);
  } else {
    for (const ResidencyItem& item : event.items) known_.shadow.drop(item.key, node);
  }
  return result;
}

std::vector<Placement> PlacementTracker::all(size_t max) const {
  std::vector<Placement> all;
  std::vector<NodeIndex> nodes;
  for (NodeIndex n = 0; n < known_.view->size(); ++n) {
    if (known_.view->routable(n) && relies_on_shadow(n) && known_.shadow.items_of(n) > 0) nodes.push_back(n);
  }
  for (const NodeIndex n : nodes) {
    size_t left = max / nodes.size();
    known_.shadow.for_each_put(n, [&](const ResidencyIndex::Put& put) {
      if (left == 0) return;
      left -= 1;
      Placement placed;
      placed.node = n;
      const auto tokens = static_cast<uint32_t>(put.tokens);
      if (put.kind == HolderKind::kSet) {
        placed.set = put.key;
        placed.set_tokens = tokens;
      } else {
        placed.session = put.key;
        placed.session_tokens = tokens;
        placed.session_charge = static_cast<uint32_t>(put.charge);
      }
      all.push_back(placed);
    });
  }
  std::reverse(all.begin(), all.end());
  return all;
}

}  // namespace troupe::route
