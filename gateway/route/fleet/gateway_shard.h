#pragma once

#include <cstdint>

namespace troupe::route {

// One of so many gateways that share a fleet, and how many of them have smaller names: each sees itself at
// another place.
struct GatewayShard {
  int64_t index = 0, of = 1;
  bool operator==(const GatewayShard&) const = default;
};

// Where more are said to share the fleet than are known, a gateway cannot know its place: it is behind all.
inline GatewayShard of_at_least(const GatewayShard& place, int64_t gateways) {
  return place.of < gateways ? GatewayShard{gateways, gateways} : place;
}

}  // namespace troupe::route
