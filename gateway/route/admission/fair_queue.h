#pragma once

// The order in which waiting requests are admitted: start-time fair queueing over flows (Goyal, Vin, Cheng
// 1996), within classes of priority.
//
// A flow is what one API key asks of one persona. Each has a virtual start, the service it has had, in tokens
// over its weight; the flow with the least is next, and admitting its first request moves its start on by
// that request's cost. A new flow begins at what the others have, not at zero, so waiting saves up nothing. A
// key's weight is shared by its flows: a key that asks ten personas gets no more than one that asks one.
//
// Priorities are strict, but for a floor: of what is admitted, the first class that waits gets 7/8, and 1/8
// goes in turn to the classes behind it. Strict alone would starve those for as long as the first is busy;
// ageing (a priority that rises with the wait) would let a backlog of old, unimportant requests hold up
// important new ones, at the very time when priorities are needed.

#include <absl/container/flat_hash_map.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "common/core/block_hash.h"
#include "common/core/lru_map.h"

namespace troupe::route {

// Lower is earlier, as in vLLM; default 0.
inline constexpr int32_t kPriorityMin = -5, kPriorityMax = 5;

// Not thread-safe. Flows stay where they are until they are dropped.
class FairQueue {
 public:
  // A key's share; REQUIRES: it outlives its flows, and its weight is above 0.
  struct Share {
    double weight = 1;
    int64_t flows = 0;
  };
  struct Item {
    uint64_t ticket = 0;
    uint64_t arrival = 0;  // counts up over all items
    int64_t tokens = 0;    // cost
  };
  struct Flow {
    Hash128 id;
    Share* share = nullptr;
    size_t band = 0;
    int64_t inside = 0;  // items admitted and not yet ended; kept by the caller
    std::list<Item> waiting;
    int64_t waiting_tokens = 0;
    double start = 0;   // virtual start of the first waiting item
    double finish = 0;  // virtual finish of the last item admitted
    double place = 0;   // key in its band's order
    int32_t priority() const { return static_cast<int32_t>(band) + kPriorityMin; }
    double per_token() const { return static_cast<double>(share->flows) / share->weight; }
    double backlog() const { return static_cast<double>(waiting.size()) * per_token(); }
  };

  // `memory` holds the service that idle flows have had beyond the others; it may be shared. `fair` false: in
  // order of arrival, across classes and flows. Virtual time begins at `base`.
  FairQueue(LruMap<double>& memory, bool fair, double base);
  FairQueue(const FairQueue&) = delete;
  FairQueue& operator=(const FairQueue&) = delete;

  void set_fair(bool fair);
  static size_t band_of(int32_t priority);
  Flow& flow(const Hash128& id, int32_t priority, Share& share);
  // REQUIRES: none of its items waits or is inside.
  void drop(Flow& flow);

  // Admits an item that need not wait.
  void pass(Flow& flow, int64_t tokens);
  // Returns the item's position, for take_out().
  std::list<Item>::iterator push(Flow& flow, const Item& item);
  void take_out(Flow& flow, std::list<Item>::iterator item);
  // Admits the next item of the flows for which `may(const Flow&)` is true; nothing: no flow may.
  struct Taken {
    Flow* flow = nullptr;
    Item item;
  };
  template <typename May>
  std::optional<Taken> take(May&& may) {
    const Pick pick = fair_ ? pick_fair(may) : pick_first(may);
    if (pick.flow == nullptr) return std::nullopt;
    return take_of(pick);
  }
  // An item of the flow cost `tokens` more than estimated (negative: less).
  void correct(Flow& flow, int64_t tokens);

  // The flow whose last item makes room for one of flow `id`, which need not exist (then `per_token` is its
  // cost a token). It is of the same class or a later one; null: no flow takes more of the queue.
  Flow* largest_backlog(const Hash128& id, int32_t priority, double per_token) const;
  // Estimated tokens admitted before an item that flow `id` would append now; it need not exist (then
  // `per_token` is its cost a token). Later arrivals are not foreseen.
  double tokens_ahead(const Hash128& id, int32_t priority, double per_token) const;

  size_t waiting() const { return waiting_; }
  size_t waiting(int32_t priority) const { return bands_[band_of(priority)].items; }
  int64_t waiting_tokens() const;
  size_t flows() const { return flows_.size(); }
  double virtual_time_max() const;
  // All sums agree with their items. For tests: checks every item.
  bool consistent() const;

 private:
  static constexpr size_t kBands = static_cast<size_t>(kPriorityMax - kPriorityMin + 1);
  struct Place {
    double start = 0;
    uint64_t arrival = 0;
    Flow* flow = nullptr;
    auto operator<=>(const Place& other) const {
      return std::pair(start, arrival) <=> std::pair(other.start, other.arrival);
    }
  };
  struct Band {
    std::set<Place> order;  // of waiting flows
    double virtual_time = 0;
    size_t items = 0;
    int64_t tokens = 0;
    uint64_t turn = 0;  // when the class last had the floor
  };
  struct Pick {
    Flow* flow = nullptr;
    bool by_floor = false;
    bool others_may = false;  // of later classes
  };

  template <typename May>
  static Flow* first(const Band& band, May&& may) {
    for (const Place& place : band.order)
      if (may(*place.flow)) return place.flow;
    return nullptr;
  }
  template <typename May>
  Pick pick_fair(May&& may) {
    Pick pick;
    size_t band = 0;
    for (; band < kBands && pick.flow == nullptr; ++band) pick.flow = first(bands_[band], may);
    Flow* other = nullptr;
    for (; band < kBands; ++band) {
      if (bands_[band].order.empty()) continue;
      if (other != nullptr && bands_[other->band].turn <= bands_[band].turn) continue;
      if (Flow* found = first(bands_[band], may)) other = found;
    }
    pick.others_may = other != nullptr;
    pick.by_floor = other != nullptr && owed_ >= static_cast<double>(other->waiting.front().tokens);
    if (pick.by_floor) pick.flow = other;
    return pick;
  }
  template <typename May>
  Pick pick_first(May&& may) {
    Pick pick;
    for (const Band& band : bands_) {
      Flow* found = first(band, may);
      if (found == nullptr) continue;
      if (pick.flow == nullptr || found->waiting.front().arrival < pick.flow->waiting.front().arrival)
        pick.flow = found;
    }
    return pick;
  }
  double start_of(const Flow* known, const Hash128& id, const Band& band) const;
  bool waits_behind(size_t band) const;
  Taken take_of(const Pick& pick);
  void charge(Flow& flow, int64_t tokens);
  void enter_order(Flow& flow);
  void leave_order(Flow& flow);

  LruMap<double>& memory_;
  bool fair_;
  std::array<Band, kBands> bands_;
  absl::flat_hash_map<Hash128, std::unique_ptr<Flow>> flows_;
  size_t waiting_ = 0;
  double owed_ = 0;  // tokens owed to the classes that were passed over
  uint64_t turns_ = 0;
};

}  // namespace troupe::route
