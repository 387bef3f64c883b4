#include "gateway/route/handover_targets.h"

#include <absl/container/flat_hash_set.h>

#include <algorithm>

namespace troupe::route {

namespace {

// Sets beyond these have no noticeable share of the work.
constexpr size_t kSetsMovedMax = 1024;
// Share of a node's KV for sets computed ahead; conversations come with the first requests.
constexpr double kAheadShare = 0.5;

// A set held by this share of the nodes comes to be sent to every node; where memory is roomy that is
// everything, and a node that begins empty would be asked for all of it at once. Simulated restarts of eight
// nodes, one after the other: the 3 s behind each lacked 4.5 points of hits without this and 3.0 with it; 2.6
// if one holder were enough, but then large fleets computed sets that no request asked for there.
constexpr double kCommonShare = 1.0 / 3;

void keep_hottest(const SetStats& stats, std::vector<Hash128>& sets) {
  std::erase_if(sets, [&stats](const Hash128& set) { return stats.share(set) <= 0; });
  std::sort(sets.begin(), sets.end(), [&stats](const Hash128& a, const Hash128& b) {
    const double heat_a = stats.share(a), heat_b = stats.share(b);
    return heat_a != heat_b ? heat_a > heat_b : a < b;
  });
  if (sets.size() > kSetsMovedMax) sets.resize(kSetsMovedMax);
}

// The set's rendezvous choice, with the weight that every node has once it is warm.
bool is_first(const Hash128& set, NodeIndex node, const ClusterView& view, std::span<const NodeIndex> among) {
  const auto draw = [&](NodeIndex n) { return rendezvous_draw(set.lo, view.node(n).hash.lo); };
  return std::all_of(among.begin(), among.end(), [&](NodeIndex n) { return draw(n) <= draw(node); });
}

}  // namespace

std::vector<Hash128> HandoverTargets::sets_of(NodeIndex node) const {
  absl::flat_hash_set<Hash128> found;
  const auto note = [&found](const Hash128& key, HolderKind kind, int64_t) {
    if (kind == HolderKind::kSet) found.insert(key);
  };
  known_.exact->index.for_each_of(node, note);
  known_.shadow.for_each_of(node, note);
  for (const auto& [set, homes] : known_.table->sets()) {
    if (homes.contains(node)) found.insert(set);
  }
  std::vector<Hash128> sets(found.begin(), found.end());
  keep_hottest(known_.sets, sets);
  return sets;
}

std::vector<Hash128> HandoverTargets::sets_for(NodeIndex node, std::string_view model,
                                               std::span<const Hash128> sets) const {
  const auto homes = known_.view->homes_for(model);
  if (!std::binary_search(homes.begin(), homes.end(), node)) return {};
  std::vector<Hash128> wanted;
  for (const Hash128& set : sets) {
    const auto exact = known_.exact->index.holders(set);
    const auto shadow = known_.shadow.holders(set);
    if (ResidencyIndex::find(exact, node) != nullptr || ResidencyIndex::find(shadow, node) != nullptr)
      continue;
    const Homes* planned = known_.table->find(set, model);
    const bool home = planned != nullptr && planned->contains(node);
    if (home || spreads(set, std::max(exact.size(), shadow.size()), homes.size()) ||
        (!table_decides() && is_first(set, node, *known_.view, homes))) {
      wanted.push_back(set);
    }
  }
  keep_hottest(known_.sets, wanted);
  const int64_t reported = known_.loads.at(node).report.kv_tokens_total;
  const int64_t kv = reported > 0 ? reported : options_.memory.node_kv_tokens_guess;
  double room = kAheadShare * static_cast<double>(kv);
  const auto full = std::find_if(wanted.begin(), wanted.end(), [&](const Hash128& set) {
    room -= static_cast<double>(known_.sets.tokens(set));
    return room < 0;
  });
  wanted.erase(full, wanted.end());
  return wanted;
}

bool HandoverTargets::takes_over(NodeIndex node, std::span<const NodeIndex> homes, NodeIndex from) const {
  return node != from && std::binary_search(homes.begin(), homes.end(), node) &&
         !known_.handover.leaving(node);
}

// Nodes that hold all of the set, except perhaps its last block.
std::vector<NodeIndex> HandoverTargets::others_with(const Hash128& set, std::string_view model,
                                                    NodeIndex from) const {
  const auto homes = known_.view->homes_for(model);
  const int64_t tokens = known_.sets.tokens(set);
  std::vector<NodeIndex> nodes;
  for (const auto& holders : {known_.exact->index.holders(set), known_.shadow.holders(set)}) {
    for (const Holder& h : holders) {
      if (takes_over(h.node, homes, from) && h.tokens + known_.loads.block_tokens(h.node) > tokens)
        nodes.push_back(h.node);
    }
  }
  return nodes;
}

// With that many holders, requests for the set come to be sent to one more node, if only when those are busy.
bool HandoverTargets::spreads(const Hash128& set, size_t holders, size_t nodes) const {
  if (table_decides()) return false;
  const auto held = static_cast<double>(holders), all = static_cast<double>(nodes);
  return known_.sets.share(set) * all * options_.affinity.hot_factor > held || held >= kCommonShare * all;
}

NodeIndex HandoverTargets::next_home(const Hash128& set, std::string_view model, NodeIndex from) const {
  const std::vector<NodeIndex> known_there = others_with(set, model, from);
  const auto homes = known_.view->homes_for(model);
  if (!known_there.empty() && !spreads(set, known_there.size(), homes.size())) return kNoNode;
  const auto fit = [&](NodeIndex node) {
    return takes_over(node, homes, from) &&
           std::find(known_there.begin(), known_there.end(), node) == known_there.end();
  };
  if (const Homes* planned = known_.table->find(set, model); planned != nullptr) {
    const auto found = std::find_if(planned->nodes().begin(), planned->nodes().end(), fit);
    if (found != planned->nodes().end()) return *found;
  }
  std::vector<NodeIndex> others;
  std::copy_if(homes.begin(), homes.end(), std::back_inserter(others), fit);
  return rendezvous_best(set, *known_.view, others);
}

NodeIndex HandoverTargets::next_home(const MovedConversation& conversation, std::string_view model,
                                     NodeIndex from) const {
  // The conversation may have continued there since.
  for (const auto& holders :
       {known_.exact->index.holders(conversation.session), known_.shadow.holders(conversation.session)}) {
    const auto has_it = [&](const Holder& h) { return h.node != from && h.tokens >= conversation.tokens; };
    if (std::any_of(holders.begin(), holders.end(), has_it)) return kNoNode;
  }
  std::vector<NodeIndex> among = others_with(conversation.set, model, from);
  const Homes* planned = known_.table->find(conversation.set, model);
  if (table_decides() && planned != nullptr) {
    std::erase_if(among, [planned](NodeIndex node) { return !planned->contains(node); });
  }
  if (among.empty())
    return next_home(conversation.set.is_zero() ? conversation.session : conversation.set, model, from);
  return rendezvous_best(conversation.session, *known_.view, among);
}

void HandoverTargets::computed(const Hash128& set, NodeIndex node, int64_t tokens, TimePoint now) {
  known_.sets.learn_tokens(set, tokens);
  Placement placed;
  placed.node = node;
  placed.set = set;
  placed.set_tokens = static_cast<uint32_t>(std::max<int64_t>(tokens, 0));
  placements_.placed(placed, now);
}

void HandoverTargets::computed(const MovedConversation& conversation, NodeIndex node, TimePoint now) {
  Placement placed;
  placed.node = node;
  placed.set = conversation.set;
  placed.session = conversation.session;
  placed.set_tokens = static_cast<uint32_t>(std::max<int64_t>(conversation.set_tokens, 0));
  placed.session_tokens = static_cast<uint32_t>(std::max<int64_t>(conversation.tokens, 0));
  placed.session_charge =
      static_cast<uint32_t>(std::max<int64_t>(conversation.tokens - conversation.set_tokens, 0));
  placements_.placed(placed, now);
  if (placements_.relies_on_shadow(node)) placements_.publish(placed);
}

}  // namespace troupe::route
