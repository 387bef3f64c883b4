#pragma once

#include <cstdint>

namespace troupe::route {

// One of so many gateways that share a fleet, and how many of them have smaller names: each sees itself at
// another place.
struct GatewayPlace {
  int64_t index = 0, of = 1;
  bool operator==(const GatewayPlace&) const = default;
};

}  // namespace troupe::route
