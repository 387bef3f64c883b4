#pragma once

// A worker's residency events put in step: a snapshot first, then what is admitted and evicted, numbered
// without gaps within an epoch. Pure: it answers what to do, the reader (or a simulator) does it.
//
//   out of step ──snapshot──▶ in step ──seq + 1──▶ in step
//   in step ──a gap──▶ out of step: what is known stays and goes on being changed, roughly right, and the
//                      caller asks for a snapshot (which travels in the same ordered stream)
//   any ──another epoch──▶ emptied: the worker's cache began anew. Its first event needs no snapshot.

#include <cstdint>
#include <span>
#include <vector>

#include "gateway/route/fleet/residency.h"

namespace troupe::route {

struct ResidencyItem {
  Hash128 key;  // a set, a session, or an anchor of the chain (as kSession)
  HolderKind kind = HolderKind::kSet;
  int64_t tokens = 0;  // resident from now on, counted from the prompt's first token; 0: gone
};

struct ResidencyEvent {
  enum class Kind : uint8_t { kSnapshot, kAdmitted, kEvicted };
  Kind kind = Kind::kSnapshot;
  uint64_t epoch = 0;  // names the life of the cache; any value, the next life has another
  uint64_t seq = 0;    // of a life's first event: 1. A snapshot has that of the last event it includes.
  std::span<const ResidencyItem> items;  // evicted: with the tokens that are left, 0 for none
};

enum class FeedResult : uint8_t {
  kApplied,
  kOld,  // known already; nothing changed
  kGap,  // events are missing: ask for a snapshot
};

// Not thread-safe.
class ResidencyFeeds {
 public:
  FeedResult apply(NodeIndex node, const ResidencyEvent& event, ResidencyIndex& index);
  // The state known of the node can be relied on.
  bool in_step(NodeIndex node) const { return node < feeds_.size() && feeds_[node].in_step; }
  // The stream broke: what is known stays, but is relied on no more until a snapshot.
  void lost(NodeIndex node);
  // The node died.
  void forget_node(NodeIndex node);

 private:
  struct Feed {
    bool known = false;  // any event so far
    bool in_step = false;
    uint64_t epoch = 0;
    uint64_t seq = 0;
  };
  Feed& feed(NodeIndex node);
  std::vector<Feed> feeds_;
};

}  // namespace troupe::route
