#pragma once

// Slots of nodes, by which everything that is kept about a node and much of what is under way means it: a
// request its candidates, a probe the node it asks. So the slot of a removed node is given to another node
// only when all that was under way at the removal has ended. Eras track that: a removal ends one, whatever
// begins belongs to the epoch in which it begins, and a slot is free when all epochs up to its own are over.
//
// Not thread-safe.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "common/core/status.h"
#include "gateway/route/fleet/view.h"

namespace troupe::route {

class NodeSlots {
 public:
  using Epoch = uint64_t;
  explicit NodeSlots(size_t slots_max) : slots_max_(slots_max) {}

  size_t size() const { return slots_.size(); }  // those of removed nodes included
  size_t slots_max() const { return slots_max_; }
  bool is_free(NodeIndex slot) const;
  size_t room() const;  // nodes that could be given a slot now
  // The slot that has been free for the longest, or else a new one. kResourceExhausted: there are slots_max.
  StatusOr<NodeIndex> take();
  // The slot's node is here again, and no other node has had the slot meanwhile.
  void take_back(NodeIndex slot) { slots_[slot].vacant = false; }
  void release_slot(NodeIndex slot);

  // From begin_hold() to end_hold() no slot is reused that is vacated meanwhile. For as long as a request
  // lasts, not for ever.
  Epoch begin_hold();
  void end_hold(Epoch epoch);
  // A reader follows the stream of this slot's node, for as long as it may last: the slot is not reused.
  void listens(NodeIndex slot, bool listens) { slots_[slot].listened = listens; }

 private:
  struct Slot {
    bool vacant = false;
    bool listened = false;
    Epoch released_in = 0;  // the last epoch in which a request may have meant the removed node by its slot
  };
  std::optional<NodeIndex> longest_free() const;

  size_t slots_max_;
  std::vector<Slot> slots_;
  std::deque<size_t> holds_{0};  // by epoch, from first_epoch_ on; the first epoch has some, or is the last
  Epoch first_epoch_ = 1;
};

}  // namespace troupe::route
