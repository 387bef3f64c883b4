#pragma once

// A worker as routing sees it, and nothing more: it lives and dies, holds prefixes in a cache that is too
// small, and reports its changes in numbered events. The truth that gateways are held against.

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "common/core/random.h"
#include "gateway/route/fleet/residency_feed.h"
#include "gateway/route/router.h"

namespace troupe::route::faults {

// A residency event that owns its items, as on a wire.
struct WireEvent {
  ResidencyEvent::Kind kind = ResidencyEvent::Kind::kSnapshot;
  uint64_t epoch = 0, seq = 0;
  std::vector<ResidencyItem> items;
  ResidencyEvent event() const { return {kind, epoch, seq, items}; }
};

class FaultWorker {
 public:
  struct Item {
    HolderKind kind = HolderKind::kSet;
    int64_t tokens = 0;
  };
  FaultWorker(size_t items_max, int64_t kv_tokens) : items_max_(items_max), kv_tokens_(kv_tokens) {}

  bool alive = true;
  bool draining = false;
  bool ill = false;  // answers every request with an error, and probes as ever
  uint64_t life = 1;
  int64_t running = 0;

  void die();
  void come_back();  // empty, another life
  // It has computed this prompt; gives the events to tell, the oldest first. `cached`: what it had of it.
  std::vector<WireEvent> compute(const PrefixKey& key, int64_t answer_tokens, int64_t& cached);
  WireEvent snapshot() const;
  bool has_told() const { return seq_ > 0; }  // any event in this life
  NodeReport report() const;
  int64_t kv_tokens() const { return kv_tokens_; }
  const std::map<Hash128, Item>& holds() const { return holds_; }
  // Work per set since this life began.
  std::vector<SetLoadMerger::Counter> counters() const;

 private:
  void hold(const Hash128& name, Item item, WireEvent& admitted);

  size_t items_max_;
  int64_t kv_tokens_;
  uint64_t seq_ = 0;
  int64_t work_ = 0;
  std::map<Hash128, Item> holds_;
  std::deque<Hash128> by_age_;
  std::map<Hash128, SetLoadMerger::Counter> counters_;
};

}  // namespace troupe::route::faults
