#pragma once

// A condition on the digits of a decimal number, read from left to right with a small state: a comparison
// with a constant, or divisibility. The text is digits with at most one point, no sign, no leading zeros;
// everything else about its form is another expression's to say.

#include <cstdint>
#include <optional>
#include <string>

namespace troupe::grammar {

struct NumberTest {
  enum class Kind : uint8_t { kAtLeast, kMoreThan, kAtMost, kLessThan, kMultiple };
  Kind kind = Kind::kAtLeast;
  std::string whole{};     // the constant's digits before the point, no leading zeros ("0" for none)
  std::string fraction{};  // and behind it, no trailing zeros
  uint32_t divisor = 1;    // kMultiple: of the digits as an integer, the point left out

  // The state before the first digit is 0.
  std::optional<uint32_t> next(uint32_t state, uint8_t byte) const;
  bool holds(uint32_t state) const;

 private:
  std::optional<uint32_t> next_of_comparison(uint32_t state, uint8_t byte) const;
};

}  // namespace troupe::grammar
