#include "gateway/route/fleet/residency.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace troupe::route {
namespace {

uint32_t clamp32(int64_t value) {
  return static_cast<uint32_t>(std::clamp<int64_t>(value, 0, UINT32_MAX));
}

template <typename Holders>
auto lower(Holders& holders, NodeIndex node) {
  return std::lower_bound(holders.begin(), holders.end(), node,
                          [](const Holder& h, NodeIndex n) { return h.node < n; });
}

}  // namespace

const Holder* ResidencyIndex::find(std::span<const Holder> holders, NodeIndex node) {
  const auto at = lower(holders, node);
  return at != holders.end() && at->node == node ? &*at : nullptr;
}

std::span<const Holder> ResidencyIndex::holders(const Hash128& key) const {
  const auto it = index_.find(key);
  if (it == index_.end()) return {};
  return items_[it->second].holders;
}

int64_t ResidencyIndex::tokens(const Hash128& key, NodeIndex node) const {
  const Holder* holder = find(holders(key), node);
  return holder == nullptr ? 0 : holder->tokens;
}

ResidencyIndex::Node& ResidencyIndex::node_at(NodeIndex node) {
  if (node >= nodes_.size()) nodes_.resize(static_cast<size_t>(node) + 1);
  return nodes_[node];
}

uint32_t ResidencyIndex::item_of(const Put& put) {
  const auto [it, added] = index_.try_emplace(put.key, kNone);
  if (!added) return it->second;
  if (free_items_.empty()) {
    free_items_.push_back(static_cast<uint32_t>(items_.size()));
    items_.emplace_back();
  }
  const uint32_t item = free_items_.back();
  free_items_.pop_back();
  items_[item].key = put.key;
  items_[item].kind = put.kind;
  it->second = item;
  return item;
}

void ResidencyIndex::put(const Put& put) {
  if (put.tokens <= 0) {
    drop(put.key, put.node);
    return;
  }
  Node& node = node_at(put.node);
  const uint32_t item = item_of(put);
  auto& holders = items_[item].holders;
  const auto at = lower(holders, put.node);
  uint32_t holding = kNone;
  if (at != holders.end() && at->node == put.node) {
    at->tokens = clamp32(put.tokens);
    holding = at->holding;
    node.charge -= holdings_[holding].charge;
    unlink(holding);
  } else {
    if (free_holdings_.empty()) {
      free_holdings_.push_back(static_cast<uint32_t>(holdings_.size()));
      holdings_.emplace_back();
    }
    holding = free_holdings_.back();
    free_holdings_.pop_back();
    Holder added{put.node, clamp32(put.tokens), holding};
    holders.insert(at, added);
    node.count += 1;
  }
  Holding& h = holdings_[holding];
  h.item = item;
  h.node = put.node;
  h.charge = clamp32(put.charge);
  node.charge += h.charge;
  push_front(holding);
  evict(put.node);
}

bool ResidencyIndex::drop(const Hash128& key, NodeIndex node) {
  const Holder* holder = find(holders(key), node);
  if (holder == nullptr) return false;
  remove(holder->holding);
  return true;
}

void ResidencyIndex::drop_node(NodeIndex node) {
  if (node >= nodes_.size()) return;
  while (nodes_[node].head != kNone) remove(nodes_[node].head);
}

void ResidencyIndex::set_budget(NodeIndex node, int64_t tokens) {
  node_at(node).budget = tokens;
  evict(node);
}

// The newest stays even where it alone is over the budget: it is there.
void ResidencyIndex::evict(NodeIndex node) {
  Node& n = nodes_[node];
  while (n.tail != n.head && (n.count > items_per_node_max_ || (n.budget > 0 && n.charge > n.budget))) {
    remove(n.tail);
  }
}

void ResidencyIndex::remove(uint32_t holding) {
  unlink(holding);
  const Holding& h = holdings_[holding];
  Node& node = nodes_[h.node];
  node.count -= 1;
  node.charge -= h.charge;
  Item& item = items_[h.item];
  item.holders.erase(lower(item.holders, h.node));
  if (item.holders.empty()) {
    index_.erase(item.key);
    item.key = Hash128{};
    free_items_.push_back(h.item);
  }
  holdings_[holding] = Holding{};
  free_holdings_.push_back(holding);
}

void ResidencyIndex::unlink(uint32_t holding) {
  Holding& h = holdings_[holding];
  Node& node = nodes_[h.node];
  (h.prev == kNone ? node.head : holdings_[h.prev].next) = h.next;
  (h.next == kNone ? node.tail : holdings_[h.next].prev) = h.prev;
  h.prev = h.next = kNone;
}

void ResidencyIndex::push_front(uint32_t holding) {
  Node& node = nodes_[holdings_[holding].node];
  holdings_[holding].next = node.head;
  (node.head == kNone ? node.tail : holdings_[node.head].prev) = holding;
  node.head = holding;
}

std::string ResidencyIndex::check() const {
  size_t listed = 0;
  for (NodeIndex n = 0; n < nodes_.size(); ++n) {
    size_t count = 0;
    int64_t charge = 0;
    for (uint32_t h = nodes_[n].head; h != kNone; h = holdings_[h].next) {
      const Holding& holding = holdings_[h];
      const Holder* holder = find(items_[holding.item].holders, n);
      if (holding.node != n || holder == nullptr || holder->holding != h)
        return absl::StrCat("node ", n, " lists what its item does not know of");
      count += 1;
      charge += holding.charge;
    }
    if (count != nodes_[n].count || charge != nodes_[n].charge)
      return absl::StrCat("node ", n, " counts wrongly");
    listed += count;
  }
  size_t held = 0;
  for (const auto& [key, item] : index_) {
    const auto& holders = items_[item].holders;
    if (items_[item].key != key || holders.empty()) return "an item nobody holds is kept";
    if (!std::is_sorted(holders.begin(), holders.end(),
                        [](const Holder& a, const Holder& b) { return a.node < b.node; }))
      return "holders are out of order";
    held += holders.size();
  }
  return held == listed ? "" : absl::StrCat(held, " are held, ", listed, " listed");
}

}  // namespace troupe::route
