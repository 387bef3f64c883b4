#pragma once

// Encoding of the table between gateways (gateways.h): all of a plan, so that the receiver can continue from
// it. A set takes some 50 bytes; a plan is sent only to a gateway that lacks it.

#include <string>
#include <string_view>

#include "common/core/status.h"
#include "gateway/route/placement/gateways.h"
#include "gateway/route/placement/planner.h"

namespace troupe::route {

std::string encode_plan(const Plan& plan, const ClusterView& view);
// Homes on nodes that `view` lacks are left out, and the plan is partial. The error names the field.
StatusOr<Plan> decode_plan(std::string_view message, const ClusterView& view);

// A gateway's sample of the sets' loads, the heaviest (shared_loads.h).
inline constexpr size_t kSampleSetsMax = 16'384;  // some 650 KB
std::string encode_set_loads(SetLoads loads, size_t sets_max = kSampleSetsMax);
StatusOr<SetLoads> decode_set_loads(std::string_view message);

// Keeps the `sets_max` heaviest.
void keep_heaviest(SetLoads& loads, size_t sets_max);

// Bytes without the name, which is in the message's envelope.
inline constexpr size_t kNewsBytes = 4 + 8 + 16 + 4 + 4;
std::string encode_announcement(const GatewayAnnouncement& announcement);
StatusOr<GatewayAnnouncement> decode_announcement(const Hash128& name, std::string_view message);

}  // namespace troupe::route
