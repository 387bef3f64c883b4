#pragma once

// A gateway's shard of a fleet-wide limit. Every gateway counts its own traffic alone, so each live one
// enforces its part, and parts change as gateways come and go (gateways.h): together they admit what a single
// one would.
//
// Parts are equal, except for the remainder of the division, of which the first few gateways get one each.
// Parts by traffic would fit better, but would require telling a silent gateway from an idle one. So a client
// whose requests all go to one of several gateways has that one's part.

#include <algorithm>
#include <cstdint>

#include "gateway/route/admission/admission.h"
#include "gateway/route/admission/quota.h"
#include "gateway/route/fleet/gateway_shard.h"

namespace troupe::route {

// 0 stays 0: no limit. Any other limit stays at least 1, as a limit of nothing is a ban; gateways in greater
// number than the limit admit one each.
inline int64_t share_of(int64_t limit, const GatewayShard& place) {
  if (limit <= 0) return 0;
  const int64_t of = std::max<int64_t>(place.of, 1);
  return std::max<int64_t>(limit / of + (place.index < limit % of ? 1 : 0), 1);
}

inline AdmissionLimits share_of(const AdmissionLimits& limits, const GatewayShard& place) {
  return {share_of(limits.requests, place), share_of(limits.tokens, place)};
}

// (Requests a second may be any fraction: the bucket waits for a whole one.)
inline QuotaLimits share_of(const QuotaLimits& limits, const GatewayShard& place) {
  QuotaLimits share = limits;
  share.requests_per_s = limits.requests_per_s / static_cast<double>(std::max<int64_t>(place.of, 1));
  share.tokens_per_min = share_of(limits.tokens_per_min, place);
  share.requests_at_once = share_of(limits.requests_at_once, place);
  return share;
}

inline AdmissionKey share_of(const AdmissionKey& key, const GatewayShard& place) {
  AdmissionKey share = key;
  share.limits = share_of(key.limits, place);
  share.waiting_max = share_of(key.waiting_max, place);
  return share;
}

inline AdmissionOptions share_of(const AdmissionOptions& options, const GatewayShard& place) {
  AdmissionOptions share = options;
  share.total = share_of(options.total, place);
  share.persona = share_of(options.persona, place);
  return share;
}

}  // namespace troupe::route
