#include "gateway/access/usage_totals.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/json/json.h"

namespace troupe {

namespace {

constexpr int64_t kDayMs = 86'400'000;
constexpr std::string_view kKinds[kUsageKinds] = {"key", "user", "model"};

UsageSums sums_of(const UsageRecord& record) {
  return {1,
          record.tokens.prompt,
          record.tokens.cached,
          record.tokens.completion,
          record.tokens.reasoning,
          record.status >= 400 ? 1 : 0};
}

bj::object json_of(const UsageSums& sums) {
  bj::object out;
  out["requests"] = sums.requests;
  out["refused"] = sums.refused;
  out["prompt_tokens"] = sums.prompt_tokens;
  out["cached_tokens"] = sums.cached_tokens;
  out["completion_tokens"] = sums.completion_tokens;
  out["reasoning_tokens"] = sums.reasoning_tokens;
  return out;
}

std::string_view or_none(std::string_view name) {
  return name.empty() ? UsageTotals::kNone : name;
}

using Named = std::pair<std::string_view, UsageSums>;

bj::object json_of(std::vector<Named> rows, size_t rows_max, int64_t since_ms) {
  std::erase_if(rows, [](const Named& row) { return row.second == UsageSums(); });
  std::sort(rows.begin(), rows.end(), [](const Named& a, const Named& b) {
    const auto tokens = [](const UsageSums& sums) { return sums.prompt_tokens + sums.completion_tokens; };
    return std::pair(-tokens(a.second), a.first) < std::pair(-tokens(b.second), b.first);
  });
  UsageSums total;
  bj::array shown;
  for (const auto& [name, sums] : rows) {
    total += sums;
    if (shown.size() >= rows_max) continue;
    bj::object row;
    row["name"] = bj::string(name);
    for (auto& field : json_of(sums)) row[field.key()] = field.value();
    shown.emplace_back(std::move(row));
  }
  bj::object out;
  out["since_unix_s"] = since_ms / 1000;
  out["total"] = json_of(total);
  out["left_out"] = rows.size() - shown.size();
  out["rows"] = std::move(shown);
  return out;
}

}  // namespace

UsageSums& UsageSums::operator+=(const UsageSums& other) {
  requests += other.requests;
  prompt_tokens += other.prompt_tokens;
  cached_tokens += other.cached_tokens;
  completion_tokens += other.completion_tokens;
  reasoning_tokens += other.reasoning_tokens;
  refused += other.refused;
  return *this;
}

// Rows without anything in the last hour are forgotten.
void UsageTotals::begin_day(int64_t unix_ms) {
  const int64_t day = unix_ms / kDayMs;
  if (day <= day_) return;
  day_ = day;
  const int64_t slot = unix_ms / kSlotMs;
  for (Rows& rows : rows_) {
    absl::erase_if(rows, [slot](auto& row) {
      row.second.today = {};
      return row.second.hour(slot) == UsageSums();
    });
  }
}

UsageTotals::Row& UsageTotals::row(UsageBy by, std::string_view name) {
  Rows& rows = rows_[static_cast<size_t>(by)];
  const auto known = rows.find(to_absl(name));
  if (known != rows.end()) return known->second;
  return rows[std::string(rows.size() < kRowsMax ? name : kOthers)];
}

void UsageTotals::add(const UsageRecord& record) {
  begin_day(record.unix_ms);
  const UsageSums sums = sums_of(record);
  const int64_t slot = record.unix_ms / kSlotMs;
  const auto at = static_cast<size_t>(slot % static_cast<int64_t>(kSlots));
  const std::string user = record.end_user.empty()
                               ? std::string(kNone)
                               : absl::StrCat(to_absl(or_none(record.key)), "/", to_absl(record.end_user));
  for (const auto& [by, name] : {std::pair<UsageBy, std::string_view>(UsageBy::kKey, or_none(record.key)),
                                 {UsageBy::kEndUser, user},
                                 {UsageBy::kModel, or_none(record.model)}}) {
    Row& counted = row(by, name);
    counted.today += sums;
    if (counted.numbers[at] != slot) counted.slots[at] = {};
    counted.numbers[at] = slot;
    counted.slots[at] += sums;
  }
}

UsageSums UsageTotals::Row::hour(int64_t slot) const {
  UsageSums sums;
  for (size_t i = 0; i < kSlots; ++i)
    if (numbers[i] > slot - static_cast<int64_t>(kSlots) && numbers[i] <= slot) sums += slots[i];
  return sums;
}

UsageSums UsageTotals::today(UsageBy by, std::string_view name, int64_t unix_ms) {
  begin_day(unix_ms);
  const Rows& rows = rows_[static_cast<size_t>(by)];
  const auto known = rows.find(to_absl(name));
  return known == rows.end() ? UsageSums() : known->second.today;
}

UsageSums UsageTotals::last_hour(UsageBy by, std::string_view name, int64_t unix_ms) {
  const Rows& rows = rows_[static_cast<size_t>(by)];
  const auto known = rows.find(to_absl(name));
  return known == rows.end() ? UsageSums() : known->second.hour(unix_ms / kSlotMs);
}

std::string UsageTotals::json(UsageBy by, size_t rows_max, int64_t unix_ms) {
  begin_day(unix_ms);
  const int64_t slot = unix_ms / kSlotMs;
  std::vector<Named> today, hour;
  for (const auto& [name, row] : rows_[static_cast<size_t>(by)]) {
    today.emplace_back(name, row.today);
    hour.emplace_back(name, row.hour(slot));
  }
  bj::object out;
  out["by"] = bj::string(kKinds[static_cast<size_t>(by)]);
  out["today"] = json_of(std::move(today), rows_max, day_ * kDayMs);
  out["last_hour"] = json_of(std::move(hour), rows_max, (slot - static_cast<int64_t>(kSlots) + 1) * kSlotMs);
  return to_json(out);
}

}  // namespace troupe
