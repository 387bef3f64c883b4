#pragma once

// Handover of sets between nodes while the fleet changes, so that no request pays for the change:
//
// - leave: a node that drains keeps each of its sets until the set is computed at its next home
// - join: a node with an empty cache gets no requests of its future sets before they are computed there
//
// The hottest sets go first, a few at once. A set not done by its deadline moves all the same. This class
// only keeps the state: it names the next set, and the node to avoid for each set meanwhile; the owner of the
// prompts computes.

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

// Conversations of a leaving node that are computed at once, in the first half of its time.
inline constexpr size_t kConversationsAtOnce = 4;

// Not thread-safe.
class Handover {
 public:
  struct Move {
    Hash128 set;
    NodeIndex from = kNoNode;  // leaves; kNoNode: `to` joins
    NodeIndex to = kNoNode;    // kNoNode until set_target()
    uint64_t turn = 0;         // private to the handover
  };
  explicit Handover(size_t at_once = 2) : at_once_(at_once) {}

  // Avoids the node from here on for all but these of its sets (hottest first), and for each of them once it
  // has moved. Until come_back() or join().
  void leave(NodeIndex node, std::span<const Hash128> sets, TimePoint until);
  // The node is avoided for these sets, for each until it has moved.
  void join(NodeIndex node, std::span<const Hash128> sets, TimePoint until);
  void come_back(NodeIndex node);
  // The node died: nothing can be computed there. Sets it was leaving still move.
  void forget_node(NodeIndex node);

  // Holds the sets of a leaving node back for its conversations: none moves until release().
  void hold(NodeIndex node);
  void release(NodeIndex node);
  bool held(NodeIndex node) const;
  // The next set to move; nothing while the limit of concurrent moves is reached. Every move ends with
  // done().
  std::optional<Move> next();
  // The set is computed at `to`, which is avoided for it until done().
  void set_target(Move& move, NodeIndex to);
  void done(const Move& move);
  // Ends the moves that are past their deadline: their sets have moved.
  void advance(TimePoint now);

  bool empty() const { return transfers_.empty(); }  // no node leaves or joins
  // After leave(): sets the node still keeps. After join(): sets it still waits for.
  size_t open_sets(NodeIndex node) const;
  bool leaving(NodeIndex node) const;
  // True: `node` comes after all others for the set. A zero set stands for prompts without one.
  bool avoids(NodeIndex node, const Hash128& set) const {
    return !transfers_.empty() && avoids_by_transfers(node, set);
  }
  // The leaving node that the set is still reserved to, besides its earlier holders; kNoNode: none.
  NodeIndex draining_holder(const Hash128& set) const;

 private:
  struct Transfer {
    bool leaves = false;
    bool held = false;
    uint64_t turn = 0;
    std::vector<Hash128> todo;  // the hottest last
    absl::flat_hash_set<Hash128> open;
    TimePoint until{};
  };
  void begin(NodeIndex node, bool leaves, std::span<const Hash128> sets, TimePoint until);
  bool avoids_by_transfers(NodeIndex node, const Hash128& set) const;

  size_t at_once_;
  size_t under_way_ = 0;
  uint64_t turns_ = 0;
  std::map<NodeIndex, Transfer> transfers_;
  std::vector<Move> computing_;  // of leaving nodes
};

}  // namespace troupe::route
