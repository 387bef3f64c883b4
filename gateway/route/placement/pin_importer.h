#pragma once

// Pins that a gateway knows of its workers alone: it has begun anew since they were made, or another gateway
// made them, and no store keeps them (pin_sync.h). A worker says from time to time which prefixes it holds
// pinned, and for whom; of those that the registry has not, it gets what that is enough for: they are listed
// and removed by their owners, by no others, and count for them. Their requests are not known, so none is
// computed anew: one is forgotten as soon as no worker holds it.
//
// What a client removed here is not imported again from a worker that could not be reached then: the worker
// is to remove it, too, once two lists in a row have it still (one list may be older than the removal, or
// show what the client is making anew just now).
//
// Pure; not thread-safe.

#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <span>
#include <vector>

#include "gateway/route/placement/pin_registry.h"

namespace troupe::route {

class PinImporter {
 public:
  static constexpr size_t kTakenMax = 4096,
                          kRemovedMax = 1024;  // more are not imported; the oldest are forgotten

  // REQUIRES: `registry` outlives this, and nothing else sets its on_change.
  explicit PinImporter(PinRegistry& registry);
  ~PinImporter() { registry_.on_change = nullptr; }
  PinImporter(const PinImporter&) = delete;
  PinImporter& operator=(const PinImporter&) = delete;

  // All pins that a node holds in this life of its cache, a pin for each owner of a prefix. Returns those
  // that it is to remove.
  std::vector<const Pin*> take(const Pin::Place& place, std::span<const Pin> listed);
  // Forgets those that no node holds any more; returns how many. `holds(place)` as PinRegistry::next_lost().
  template <typename Holds>
  size_t forget_lost(Holds&& holds) {
    size_t lost = 0;
    for (auto at = taken_.begin(); at != taken_.end();) {
      const Pin* const pin = imported(*at);
      const bool held = pin != nullptr && std::any_of(pin->places.begin(), pin->places.end(), holds);
      if (pin != nullptr && !held) {
        registry_.drop(*at);
        lost += 1;
      }
      if (held) {
        ++at;
      } else {
        taken_.erase(at++);
      }
    }
    return lost;
  }

 private:
  void changed(const Hash128& id, PinChange change);
  const Pin* imported(const Hash128& id) const;  // null: it is not there, or known better by now
  void take_one(const Pin::Place& place, const Pin& listed);
  void drop_unlisted(const Pin::Place& place, const absl::flat_hash_set<Hash128>& listed);

  PinRegistry& registry_;
  absl::flat_hash_set<Hash128> taken_;
  // Removed here; the nodes whose last list had it still.
  absl::flat_hash_map<Hash128, std::vector<Pin::Place>> removed_;
  std::deque<Hash128> removed_order_;
};

}  // namespace troupe::route
