#pragma once

// The numbers of routing that a user may set: the same keys for the gateway and the simulator, so that what
// is tried there can be put into a gateway's settings as it stands.

#include <cstdint>
#include <string>

#include "common/core/status.h"
#include "common/settings/schema.h"
#include "gateway/route/options.h"

namespace troupe::route {

struct RouteSettings {
  std::string policy = "affinity";
  std::string mode = "exact";
  double pending_weight = 2.0 / 15;
  double load_tokens = 333;
  double hot_factor = 4;
  double noise_tokens = 167;
  double plan_interval_s = 4;
  double plan_kv_share = 1;
  int64_t strict_sets = 8;
  int64_t max_sets_per_node = 2;
  int64_t max_nodes_per_set = 0;
  int64_t sets_max = 16'384;
  int64_t placements_per_node = 32'768;
  int64_t anchors_max = 65'536;
  int64_t node_kv_tokens = 1'000'000;
};

// policy and mode, and route.*; `settings` must outlive the schema.
void describe_policy(SettingsSchema& schema, RouteSettings& settings);
void describe_route(SettingsSchema& schema, RouteSettings& settings);
// Errors name the key.
Status apply_route(const RouteSettings& settings, RouterOptions& router);

}  // namespace troupe::route
