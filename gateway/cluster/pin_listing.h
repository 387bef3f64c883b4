#pragma once

// A worker's GET /v1/prefixes as a gateway reads it (kOwnersAskedHeader): who has what pinned there.

#include <string_view>
#include <vector>

#include "common/core/status.h"
#include "common/core/time.h"
#include "gateway/route/placement/pin_registry.h"

namespace troupe {

inline constexpr size_t kPinListingBytesMax = size_t{4} << 20;

// A pin for each owner of a pinned prefix, without its request and places. `ownerless`: of those without an
// owner instead, which are its clients' where a gateway has no keys. The error names the field.
StatusOr<std::vector<route::Pin>> parse_pin_listing(std::string_view json, TimePoint now, bool ownerless);

}  // namespace troupe
