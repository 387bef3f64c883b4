#pragma once

// An API key's rights at one gateway, and what it has used of them: its quota, which refuses, and its share
// and limits in the queue, which make wait. Several gateways enforce an equal part of each limit.
//
// Sans-io: time is an argument. Not thread-safe.

#include <cstdint>
#include <optional>

#include "common/core/time.h"
#include "gateway/route/admission/admission.h"
#include "gateway/route/admission/quota.h"
#include "gateway/route/admission/shard_limit.h"
#include "gateway/route/fleet/gateway_shard.h"

namespace troupe::route {

struct KeyRights {
  QuotaLimits quota;
  AdmissionKey admission;  // its id is the hash of the key's name
  int32_t priority = 0;    // the earliest that its requests may have
};

class KeyUsage {
 public:
  KeyUsage(const KeyRights& rights, TimePoint now)
      : rights_(rights), admission_(rights.admission), quota_(rights.quota, now) {}

  // The use so far still counts.
  void change(const KeyRights& rights, TimePoint now) {
    rights_ = rights;
    share(place_, now);
  }
  // This gateway's place among those that enforce the limits; until the first call it enforces all of them.
  void share(const GatewayShard& place, TimePoint now) {
    place_ = place;
    admission_ = share_of(rights_.admission, place);
    quota_.change(share_of(rights_.quota, place), now);
  }

  // Quota::begin() and end().
  std::optional<Quota::Refusal> begin(TimePoint now) { return quota_.begin(now); }
  void end(int64_t tokens, TimePoint now) { quota_.end(tokens, now); }
  Quota::View tokens(TimePoint now) { return quota_.tokens(now); }
  // For Admission: this gateway's part.
  const AdmissionKey& admission() const { return admission_; }
  int32_t priority() const { return rights_.priority; }

 private:
  KeyRights rights_;
  GatewayShard place_;
  AdmissionKey admission_;
  Quota quota_;
};

}  // namespace troupe::route
