#pragma once

// The grants of one account's limits that all gateways together have got, as it stands in their shared store:
// a number for each window, and the window's. A gateway takes a slice of what is left by exchanging the
// record for one that has the slice in it, only where the record is still as it was read. So the sum of all
// slices is the limit at most, whichever gateways ask, and whatever answer is lost. Slices shrink with what
// is left, so that little of a limit lies unused with another gateway.
//
// Pure.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "gateway/route/admission/account.h"

namespace troupe::route {

struct AccountRecord {
  AccountAmounts windows{-1, -1, -1};
  AccountAmounts granted{};

  bool operator==(const AccountRecord&) const = default;
  std::string text() const;
  // nullopt: it is none.
  static std::optional<AccountRecord> parse(std::string_view text);

  // Counts what was used beyond grants, and grants what is needed, with a slice more; where some window has
  // less than is needed, nothing of any. `gateways`: that share the store.
  AccountGrant take(const AccountWant& want, const AccountLimits& limits, int64_t gateways);
  // The other way. Of a window that is over: nothing.
  void give_back(const AccountGrant& back);
};

}  // namespace troupe::route
