#pragma once

// The two owners of cached KV, as workers name them in residency events and gateways index them.

#include <cstdint>

namespace troupe {

enum class HolderKind : uint8_t {
  kSet,      // a shared prompt prefix (a persona)
  kSession,  // a conversation
};

}  // namespace troupe
