#pragma once

// The numbers of routing that a user may set: the same keys for the gateway and the simulator, so that what
// is tried there can be put into a gateway's settings as it stands.

#include "common/settings/schema.h"
#include "gateway/route/options.h"

namespace troupe::route {

// Describe policy and mode, and route.*. `router` must outlive the schema.
void describe_policy(SettingsSchema& schema, RouterOptions& router);
void describe_route(SettingsSchema& schema, RouterOptions& router);
// Sets what follows from them. REQUIRES: the values are defaults or came through a schema.
void settle_route(RouterOptions& router);

}  // namespace troupe::route
