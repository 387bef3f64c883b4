#include "gateway/route/admission/account_record.h"

#include <algorithm>
#include <charconv>

#include "absl/strings/str_cat.h"

namespace troupe::route {

namespace {

// A slice beyond what is needed is 1/4n of the rest, with n gateways.
constexpr int64_t kSliceParts = 4;

}  // namespace

std::string AccountRecord::text() const {
  std::string out;
  for (size_t i = 0; i < kAccountWindows; ++i)
    absl::StrAppend(&out, i == 0 ? "" : " ", windows[i], ":", granted[i]);
  return out;
}

std::optional<AccountRecord> AccountRecord::parse(std::string_view text) {
  AccountRecord record;
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto number = [&at, end](int64_t& out, char after) {
    const auto [next, error] = std::from_chars(at, end, out);
    if (error != std::errc() || (after != '\0' && (next == end || *next != after))) return false;
    at = next + (after == '\0' ? 0 : 1);
    return true;
  };
  for (size_t i = 0; i < kAccountWindows; ++i) {
    const char after = i + 1 < kAccountWindows ? ' ' : '\0';
    if (!number(record.windows[i], ':') || !number(record.granted[i], after)) return std::nullopt;
  }
  return at == end ? std::optional(record) : std::nullopt;
}

AccountGrant AccountRecord::take(const AccountWant& want, const AccountLimits& limits, int64_t gateways) {
  AccountGrant grant;
  grant.windows = want.windows;
  bool enough = true;
  for (size_t i = 0; i < kAccountWindows; ++i) {
    if (limit_of(limits, i) <= 0) continue;
    if (windows[i] < want.windows[i]) {
      windows[i] = want.windows[i];
      granted[i] = 0;
    }
    // (A gateway whose clock is behind asks for a window that is over.)
    const bool is_current = windows[i] == want.windows[i];
    grant.left[i] = is_current ? std::max<int64_t>(limit_of(limits, i) - granted[i], 0) : 0;
    if (is_current) {
      granted[i] += want.over[i];
      grant.amounts[i] = want.over[i];
      grant.left[i] = std::max<int64_t>(grant.left[i] - want.over[i], 0);
    }
    enough = enough && grant.left[i] >= want.needed[i];
  }
  for (size_t i = 0; i < kAccountWindows && enough; ++i) {
    if (want.needed[i] <= 0) continue;
    const int64_t spare = grant.left[i] - want.needed[i];
    const int64_t slice = want.needed[i] + spare / (kSliceParts * std::max<int64_t>(gateways, 1));
    granted[i] += slice;
    grant.amounts[i] += slice;
    grant.left[i] -= slice;
  }
  return grant;
}

void AccountRecord::give_back(const AccountGrant& back) {
  for (size_t i = 0; i < kAccountWindows; ++i)
    if (windows[i] == back.windows[i]) granted[i] = std::max<int64_t>(granted[i] - back.amounts[i], 0);
}

}  // namespace troupe::route
