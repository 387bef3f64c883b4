#pragma once

// Pins: blocks that stay although no request uses them. A pin is a reference to each run of its path, so
// pinned blocks are never evicted. Pure; not thread-safe.

#include <cstdint>

#include "worker/kv/prefix_blocks.h"
#include "worker/kv/radix_tree.h"
#include "worker/kv/run_holds.h"

namespace troupe {

class Pinning {
 public:
  // Both live longer.
  Pinning(RadixTree& tree, RunHolds& holds) : tree_(tree), holds_(holds) {}

  // PrefixCache's functions of these names.
  PrefixPin pin(const PrefixMatch& match, const PartialMatch& partial);
  void unpin(const PrefixPin& pin);
  int32_t pinned_count() const { return pinned_count_; }
  int32_t pinned_count(const PrefixMatch& match) const;

 private:
  void pin_run(RadixNodeId id);
  void unpin_run(RadixNodeId id);

  RadixTree& tree_;
  RunHolds& holds_;
  int32_t pinned_count_ = 0;  // blocks
};

}  // namespace troupe
