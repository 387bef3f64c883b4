#pragma once

// The prefix keys that gateways would read off the messages of a trace's requests. Lengths are known here, so
// nothing is guessed from bytes.

#include <cstdint>

#include "common/core/block_hash.h"
#include "gateway/route/policy/cluster_state.h"
#include "gateway/route/router.h"
#include "sim/fleet/recent_sessions.h"
#include "sim/trace/trace_request.h"

namespace troupe::sim {

class TraceKeys {
 public:
  // `residency`, which the keys are going to be looked up in, outlives it.
  explicit TraceKeys(const route::ExactResidency& residency);

  // The entries that the next arrival will look up lie anywhere; they are named now, and on their way while
  // earlier events are handled.
  void look_ahead(const TraceRequest& next);
  // The key of the request that was looked ahead to, as its gateway's router would see it.
  void read(const TraceRequest& request, const route::Router& router, route::PrefixKey& key) const;
  // Its conversation is so long now.
  void answered(const TraceRequest& request, int32_t answer_tokens);

 private:
  const route::ExactResidency& residency_;
  RecentSessions sessions_;
  Hash128 next_set_, next_session_;
};

}  // namespace troupe::sim
