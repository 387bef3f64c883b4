#pragma once

// Conversations of one node that leaves: those used last first, several at once, as long as half of the
// node's time lasts. The other half is its sets', which are held meanwhile (handover.h). A state machine: the
// driver asks the node for the list, then has each conversation that next() names computed elsewhere.
//
//   (made: the sets are held) ──> listed() ──> next() ── one is carried ──> carried() ──> … over()
//
// gateway/cluster/conversation_migration.cc drives it over sockets, sim/fleet/handover_driver.cc on a virtual
// clock. Sans-io: time is an argument. Not thread-safe.

#include <cstddef>
#include <optional>

#include "common/core/time.h"
#include "gateway/route/placement/handover.h"

namespace troupe::route {

class ConversationHandover {
 public:
  // The node leaves, and has until `by`. `handover` outlives this.
  ConversationHandover(Handover& handover, NodeIndex node, TimePoint now, TimePoint by);
  // Releases the sets, whatever is still under way.
  ~ConversationHandover();
  ConversationHandover(const ConversationHandover&) = delete;
  ConversationHandover& operator=(const ConversationHandover&) = delete;

  NodeIndex node() const { return node_; }
  TimePoint until() const { return until_; }
  // The node has listed so many conversations; none also if it did not answer. REQUIRES: once.
  void listed(size_t count, TimePoint now);
  // Index in the node's list of the conversation to carry next, which ends with carried() in whatever way.
  // nullopt: none now; none at all when nothing is under way.
  std::optional<size_t> next(TimePoint now);
  void carried(TimePoint now);
  // Nothing is under way and nothing will be: the sets have been released.
  bool over() const { return over_; }

 private:
  bool nothing_left(TimePoint now) const { return next_ >= count_ || now >= until_; }
  void settle(TimePoint now);

  Handover& handover_;
  const NodeIndex node_;
  const TimePoint until_;
  bool listed_ = false, over_ = false;
  size_t count_ = 0, next_ = 0, under_way_ = 0;
};

}  // namespace troupe::route
