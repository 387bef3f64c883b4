#pragma once

// A pin as it is kept in etcd, under <prefix>/pins/<Pin::id>: whose it is by a hash, and without its tenant's
// salt, which every gateway derives by itself (gateway/access/tenant.h).

#include <cstdint>
#include <string>
#include <string_view>

#include "common/core/status.h"
#include "gateway/route/placement/pin_registry.h"

namespace troupe {

// A larger one is kept by the gateway that made it, and by no other.
inline constexpr size_t kPinRecordBytesMax = 1'000'000;

struct PinRecord {
  route::Pin pin;            // without places and until
  int64_t until_unix_s = 0;  // where it expires
  std::string writer;        // life of the gateway that wrote it; empty: unknown
};
std::string pin_record_json(const PinRecord& record);
// Unknown fields are ignored. The error names the field.
StatusOr<PinRecord> parse_pin_record(std::string_view json);

}  // namespace troupe
