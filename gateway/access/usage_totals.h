#pragma once

// Sums of what requests used, by key, end user and model: today (UTC) and in the last hour, by slots of five
// minutes, so that hour ends now and began 55 to 60 minutes ago. Bounded: once there are kRowsMax names of a
// kind, new ones are summed up as "(others)" until the day ends; no sum is ever short.
//
// Sans-io: time is an argument. Not thread-safe.

#include <absl/container/flat_hash_map.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "gateway/access/usage_record.h"

namespace troupe {

struct UsageSums {
  int64_t requests = 0;
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t reasoning_tokens = 0;
  int64_t refused = 0;  // of `requests`: 4xx and 5xx
  bool operator==(const UsageSums&) const = default;
  UsageSums& operator+=(const UsageSums& other);
};

enum class UsageBy : uint8_t { kKey, kEndUser, kModel };
inline constexpr size_t kUsageKinds = 3;

class UsageTotals {
 public:
  static constexpr size_t kRowsMax = 8192;  // of each kind: about 700 bytes each
  static constexpr std::string_view kOthers = "(others)";
  static constexpr std::string_view kNone = "(none)";  // of a request without a key or end user

  // Counts it at record.unix_ms. An end user's row is named "key/user".
  void add(const UsageRecord& record);
  // {"by": …, "today": {"since": …, "total": {…}, "rows": [{"name": …, …}]}, "last_hour": {…}}; rows with the
  // most tokens first, `rows_max` at most, and how many were left out.
  std::string json(UsageBy by, size_t rows_max, int64_t unix_ms);

  UsageSums today(UsageBy by, std::string_view name, int64_t unix_ms);
  UsageSums last_hour(UsageBy by, std::string_view name, int64_t unix_ms);

 private:
  static constexpr int64_t kSlotMs = 300'000;
  static constexpr size_t kSlots = 12;
  struct Row {
    UsageSums today;
    std::array<UsageSums, kSlots> slots;
    std::array<int64_t, kSlots> numbers{};  // of the slots: unix_ms / kSlotMs
    UsageSums hour(int64_t slot) const;
  };
  using Rows = absl::flat_hash_map<std::string, Row>;
  void begin_day(int64_t unix_ms);
  Row& row(UsageBy by, std::string_view name);

  std::array<Rows, kUsageKinds> rows_;
  int64_t day_ = -1;
};

}  // namespace troupe
