#pragma once

// Sets on their way between nodes while the fleet changes, so that no request pays for the change:
//
//   leave   a node that drains keeps each of its sets until the set is computed at its next home
//   join    a node with an empty cache is not asked for the sets it is to have before they are computed there
//
// The hottest sets go first, a few at once. What is not done by its deadline moves all the same. This keeps
// the books: it says which set is next and whom to avoid for which set meanwhile; whoever has the prompts
// computes.

#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "common/core/block_hash.h"
#include "common/core/time.h"
#include "gateway/route/fleet/view.h"

namespace troupe::route {

// What a node weighs so long after it joined: it rises from a tenth to 1 within `ramp`. In steps, for each is
// a new view of the cluster.
double ramp_weight(Duration joined_for, Duration ramp);

// So many conversations of a node that leaves are computed at once, in the first half of its time.
inline constexpr size_t kConversationsAtOnce = 4;

// Not thread-safe.
class Handover {
 public:
  struct Move {
    Hash128 set;
    NodeIndex from = kNoNode;  // it leaves; kNoNode: `to` joins
    NodeIndex to = kNoNode;    // kNoNode until go_to() says it
    uint64_t turn = 0;         // the handover's own
  };
  explicit Handover(size_t at_once = 2) : at_once_(at_once) {}

  // From here on the node is avoided for all but these of its sets (hottest first), and for each of them once
  // it has moved. Until come_back() or join().
  void leave(NodeIndex node, std::span<const Hash128> sets, TimePoint until);
  // The node is avoided for these sets, for each until it has moved.
  void join(NodeIndex node, std::span<const Hash128> sets, TimePoint until);
  void come_back(NodeIndex node);
  // It died: nothing can be computed there. What it was leaving is still to be.
  void forget_node(NodeIndex node);

  // Of a node that leaves: its sets wait for its conversations, and none of them moves until release().
  void hold(NodeIndex node);
  void release(NodeIndex node);
  bool held(NodeIndex node) const;
  // The next set to move; none while as many as may are under way. Every move taken ends with done().
  std::optional<Move> next();
  // It is computed at `to`, which is avoided for it until done().
  void go_to(Move& move, NodeIndex to);
  void done(const Move& move);
  // What is over time has moved.
  void advance(TimePoint now);

  bool empty() const { return books_.empty(); }  // nobody leaves or joins
  // Of leave(): sets it still keeps. Of join(): sets it still waits for.
  size_t open_sets(NodeIndex node) const;
  bool leaving(NodeIndex node) const;
  // Asked for the set only after all others. A set of zero stands for prompts without one.
  bool avoids(NodeIndex node, const Hash128& set) const {
    return !books_.empty() && avoids_by_books(node, set);
  }
  // The leaving node that still has the set to itself and to those who held it before; kNoNode.
  NodeIndex keeper(const Hash128& set) const;

 private:
  struct Book {
    bool leaves = false;
    bool held = false;
    uint64_t turn = 0;
    std::vector<Hash128> todo;  // the hottest last
    absl::flat_hash_set<Hash128> open;
    TimePoint until{};
  };
  void begin(NodeIndex node, bool leaves, std::span<const Hash128> sets, TimePoint until);
  bool avoids_by_books(NodeIndex node, const Hash128& set) const;

  size_t at_once_;
  size_t under_way_ = 0;
  uint64_t turns_ = 0;
  std::map<NodeIndex, Book> books_;
  std::vector<Move> computing_;  // of leaving nodes
};

}  // namespace troupe::route
