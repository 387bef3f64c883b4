#pragma once

// A schema's number, exactly as it was written where that had at most 17 digits.

#include <optional>
#include <string>

#include "common/json/json.h"

namespace troupe::grammar {

struct Decimal {
  bool is_negative = false;
  std::string whole;     // digits before the point, no leading zeros, "0" for none
  std::string fraction;  // and behind it, no trailing zeros

  bool is_zero() const { return whole == "0" && fraction.empty(); }
};

// None if `value` is no number.
std::optional<Decimal> decimal_of(const bj::value& value);
// As JSON: in few digits.
std::string number_text(const bj::value& value);

}  // namespace troupe::grammar
