#pragma once

#include <cstdint>

namespace troupe::route {

// One of so many gateways that share a fleet, and how many of them have smaller names: each sees itself at
// another place.
struct GatewayPlace {
  int64_t index = 0, of = 1;
  bool operator==(const GatewayPlace&) const = default;
};

// Where more are said to share the fleet than are known, nobody knows its place among them: it is behind all.
inline GatewayPlace of_at_least(const GatewayPlace& place, int64_t gateways) {
  return place.of < gateways ? GatewayPlace{gateways, gateways} : place;
}

}  // namespace troupe::route
