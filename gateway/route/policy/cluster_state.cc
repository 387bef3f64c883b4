#include "gateway/route/policy/cluster_state.h"

#include <algorithm>

namespace troupe::route {
namespace {

// Bounds of a chain's look-up in nodes and in depths: beyond them a deeper prefix was found already.
constexpr size_t kChainHoldersMax = 16;
constexpr size_t kChainLevelsMax = 16;
constexpr size_t kAncestorsMax = 16;
// Tolerated error of a set's length estimated from bytes; one counted in tokens tolerates a block.
constexpr double kGuessedWhole = 0.75;

int64_t held_by(std::span<const Holder> holders, NodeIndex node) {
  if (holders.empty()) return 0;
  const Holder* holder = ResidencyIndex::find(holders, node);
  return holder == nullptr ? 0 : holder->tokens;
}

}  // namespace

int64_t anchor_tokens(const Anchor& anchor, const TokenRatio& ratio) {
  return anchor.tokens > 0 ? anchor.tokens : ratio.tokens(anchor.bytes);
}

std::span<const Anchor> chain_of(const PrefixKey& key) {
  const auto beyond = [&](const Anchor& a) {
    return a.hash != key.set && (a.tokens > 0 ? a.tokens > key.prefix_tokens : a.bytes > key.prefix_bytes);
  };
  const auto first = std::find_if(key.anchors.begin(), key.anchors.end(), beyond);
  return {first, key.anchors.end()};
}

std::optional<int64_t> ClusterState::kv_room(NodeIndex node) const {
  if (node >= loads.size()) return std::nullopt;
  const NodeLoad& load = loads.at(node);
  if (load.reported && load.report.kv_tokens_total > 0 && load.report.kv_tokens_cached >= 0) {
    const int64_t then = load.report.kv_tokens_free - load.report.kv_tokens_cached;
    return std::max<int64_t>(then - load.fresh_pending_tokens, 0);
  }
  if (exact->feeds.in_step(node) || shadow.budget_of(node) <= 0) return std::nullopt;
  return std::max<int64_t>(shadow.budget_of(node) - shadow.charge_of(node), 0);
}

CachedPrefix::CachedPrefix(const ClusterState& knowledge, const PrefixKey& key, const RequestTokens& tokens)
    : loads_(knowledge.loads), tokens_(tokens) {
  const auto guessed = static_cast<int64_t>(kGuessedWhole * static_cast<double>(tokens.prefix));
  whole_prefix_ = tokens.prefix_known ? tokens.prefix : guessed;
  const ResidencyIndex& exact = knowledge.exact->index;
  const ResidencyIndex& shadow = knowledge.shadow;
  if (!key.set.is_zero()) {
    if (!exact.empty()) set_exact_ = exact.holders(key.set);
    if (!shadow.empty()) set_shadow_ = shadow.holders(key.set);
    if (!tokens.prefix_known && !set_exact_.empty()) {  // a worker has counted the set
      whole_prefix_ = 0;
      for (const Holder& h : set_exact_) whole_prefix_ = std::max<int64_t>(whole_prefix_, h.tokens);
    }
  }
  if (set_exact_.empty() && set_shadow_.empty()) look_up_ancestors(knowledge, key);
  if (!key.session.is_zero()) {
    common_ = knowledge.history.common(key);
    if (!exact.empty()) session_exact_ = exact.holders(key.session);
    if (!shadow.empty()) session_shadow_ = shadow.holders(key.session);
  }
  // A plain text's conversation that no node holds may begin as another's.
  if (key.session.is_zero() || (!key.chat && !session_known())) look_up_chain(knowledge, key);
}

// A set that no node holds may begin with one that a node does: the same card, and another example after it.
void CachedPrefix::look_up_ancestors(const ClusterState& knowledge, const PrefixKey& key) {
  const size_t guessed = std::min(static_cast<size_t>(key.guessed_anchors), key.anchors.size());
  for (size_t i = guessed, looked = 0; i-- > 0 && looked < kAncestorsMax; ++looked) {
    set_exact_ = knowledge.exact->index.holders(key.anchors[i].hash);
    set_shadow_ = knowledge.shadow.holders(key.anchors[i].hash);
    if (!set_exact_.empty() || !set_shadow_.empty()) return;
  }
}

// A node that holds a link holds (nearly always) all before it: so bisection finds the deepest held link, and
// walking up from there finds nodes that hold less.
void CachedPrefix::look_up_chain(const ClusterState& knowledge, const PrefixKey& key) {
  const std::span<const Anchor> chain = chain_of(key);
  size_t held = 0;  // links known to be held
  size_t open = chain.size();
  while (held < open) {
    const size_t middle = held + (open - held + 1) / 2;
    const Anchor& anchor = chain[middle - 1];
    if (hold_anchor(knowledge, anchor.hash, 0)) {
      held = middle;
    } else {
      open = middle - 1;
    }
  }
  chain_.clear();  // bisection went from shallow to deep
  const size_t last = held > kChainLevelsMax ? held - kChainLevelsMax : 0;
  for (size_t i = held; i > last && chain_.size() < kChainHoldersMax; --i) {
    const auto at = static_cast<size_t>(&chain[i - 1] - key.anchors.data());
    const bool guessed = key.session.is_zero() && chain[i - 1].tokens == 0;
    const int64_t counted = guessed ? knowledge.history.tokens_at(key, at) : 0;
    hold_anchor(knowledge, chain[i - 1].hash,
                counted > 0 ? counted : anchor_tokens(chain[i - 1], knowledge.ratio));
  }
}

bool CachedPrefix::hold_anchor(const ClusterState& knowledge, const Hash128& anchor, int64_t tokens) {
  bool any = false;
  const ResidencyIndex& exact = knowledge.exact->index;
  for (const ResidencyIndex* index : {&exact, &knowledge.shadow}) {
    if (index->empty()) continue;
    for (const Holder& holder : index->holders(anchor)) {
      any = true;
      if (chain_.size() >= kChainHoldersMax) break;
      const auto same = [&](const Holder& h) { return h.node == holder.node; };
      if (std::any_of(chain_.begin(), chain_.end(), same)) continue;
      Holder found{holder.node, static_cast<uint32_t>(tokens), 0};
      chain_.push_back(found);
    }
  }
  return any;
}

int64_t CachedPrefix::set_tokens(NodeIndex node) const {
  return std::max(held_by(set_exact_, node), held_by(set_shadow_, node));
}

CachedPrefix::Here CachedPrefix::at(NodeIndex node) const {
  int64_t session = std::max(held_by(session_exact_, node), held_by(session_shadow_, node));
  for (const Holder& h : chain_) {
    if (h.node == node) session = std::max<int64_t>(session, h.tokens);
  }
  return count(node, set_tokens(node), session);
}

}  // namespace troupe::route
