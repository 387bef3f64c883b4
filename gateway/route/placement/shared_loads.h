#pragma once

// The fleet's loads per set where workers do not report them: every gateway samples what it sends, and sends
// its sample to the others; the planner adds up all samples. (One gateway's own share of the requests is too
// little to plan on: measured, an eighth of them costs plan mode 2 to 9 points of hits.)

#include <map>

#include "common/core/block_hash.h"
#include "common/core/time.h"
#include "gateway/route/fleet/set_stats.h"

namespace troupe::route {

// Not thread-safe.
class SharedLoads {
 public:
  // `keep`: time for which a gateway's sample counts.
  explicit SharedLoads(Duration keep) : keep_(keep) {}

  void observe(const Hash128& gateway, SetLoads loads, TimePoint now);
  bool empty() const { return others_.empty(); }
  // `own` plus the others' recent samples.
  SetLoads sum(SetLoads own, TimePoint now);

 private:
  struct Sample {
    SetLoads loads;
    TimePoint received_at{};
  };
  Duration keep_;
  std::map<Hash128, Sample> others_;  // by name: rounding must not depend on a hash
};

}  // namespace troupe::route
