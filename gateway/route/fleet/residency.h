#pragma once

// Index of cached KV: for every set and session the nodes that have it in their KV cache, and how many of its
// tokens. One index serves both sources:
//
//   exact    fed by the workers' own events (residency_feed.h). Every gateway's would be the same, so a
//            simulator may share one among its routers.
//   shadow   fed by placements, our own and those that other gateways send: a guess at what a node still has.
//            A node with a budget (its KV size) forgets what was placed longest ago, as its cache does.
//
// A decision asks per set and per session (two look-ups, whatever the number of nodes), a death per node.
// Both ways are exact inverses of each other at all times: check() says so, and tests ask it.

#include <absl/container/flat_hash_map.h>
#include <absl/container/inlined_vector.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/core/block_hash.h"
#include "common/core/holder_kind.h"
#include "gateway/route/fleet/view.h"

namespace troupe::route {

struct Holder {
  NodeIndex node = kNoNode;
  uint32_t tokens = 0;   // resident, from the prompt's first token on
  uint32_t holding = 0;  // the index's own
};

// Not thread-safe. Spans stay valid until the next change.
class ResidencyIndex {
 public:
  explicit ResidencyIndex(size_t items_per_node_max) : items_per_node_max_(items_per_node_max) {}

  // `node` holds so much of `key` now, used just now. `charge`: what of it counts against the node's budget
  // (a session's tokens beyond its set's, which are counted once). Tokens of 0 or less: drop.
  struct Put {
    Hash128 key;
    HolderKind kind = HolderKind::kSet;
    NodeIndex node = kNoNode;
    int64_t tokens = 0;
    int64_t charge = 0;
  };
  void put(const Put& put);
  bool drop(const Hash128& key, NodeIndex node);
  void drop_node(NodeIndex node);
  // 0: no budget, as for exact residency, where the node itself says what it evicts.
  void set_budget(NodeIndex node, int64_t tokens);

  // Ascending by node; empty when no node has it.
  std::span<const Holder> holders(const Hash128& key) const;
  int64_t tokens(const Hash128& key, NodeIndex node) const;
  // Fetches the memory that a look-up or a change will need soon.
  void prefetch(const Hash128& key) const { index_.prefetch(key); }
  static const Holder* find(std::span<const Holder> holders, NodeIndex node);

  size_t keys() const { return index_.size(); }
  size_t items_of(NodeIndex node) const { return node < nodes_.size() ? nodes_[node].count : 0; }
  int64_t budget_of(NodeIndex node) const { return node < nodes_.size() ? nodes_[node].budget : 0; }
  int64_t charge_of(NodeIndex node) const { return node < nodes_.size() ? nodes_[node].charge : 0; }
  bool empty() const { return index_.empty(); }

  // Most recently used first: visit(const Hash128&, HolderKind, int64_t tokens).
  template <typename Visit>
  void for_each_of(NodeIndex node, Visit&& visit) const {
    if (node >= nodes_.size()) return;
    for (uint32_t h = nodes_[node].head; h != kNone; h = holdings_[h].next) {
      const Item& item = items_[holdings_[h].item];
      visit(item.key, item.kind, static_cast<int64_t>(find(item.holders, node)->tokens));
    }
  }
  // The same with what it is charged.
  template <typename Visit>
  void for_each_put(NodeIndex node, Visit&& visit) const {
    if (node >= nodes_.size()) return;
    for (uint32_t h = nodes_[node].head; h != kNone; h = holdings_[h].next) {
      const Item& item = items_[holdings_[h].item];
      visit(Put{item.key, item.kind, node, find(item.holders, node)->tokens, holdings_[h].charge});
    }
  }
  // Empty when both directions agree, else what does not. Costs a pass over everything: for tests.
  std::string check() const;

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Item {
    Hash128 key;
    HolderKind kind = HolderKind::kSet;
    absl::InlinedVector<Holder, 2> holders;  // ascending by node
  };
  // One (item, node), in the node's list by use.
  struct Holding {
    uint32_t item = kNone;
    NodeIndex node = kNoNode;
    uint32_t prev = kNone, next = kNone;
    uint32_t charge = 0;
  };
  struct Node {
    uint32_t head = kNone, tail = kNone;
    size_t count = 0;
    int64_t charge = 0;
    int64_t budget = 0;
  };

  Node& node_at(NodeIndex node);
  uint32_t item_of(const Put& put);
  void remove(uint32_t holding);
  void unlink(uint32_t holding);
  void push_front(uint32_t holding);
  void evict(NodeIndex node);

  size_t items_per_node_max_;
  absl::flat_hash_map<Hash128, uint32_t> index_;
  std::vector<Item> items_;
  std::vector<uint32_t> free_items_;
  std::vector<Holding> holdings_;
  std::vector<uint32_t> free_holdings_;
  std::vector<Node> nodes_;
};

}  // namespace troupe::route
