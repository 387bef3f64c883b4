#include "common/grammar/regex/number_test.h"

namespace troupe::grammar {

namespace {

// A comparison's state: digits read in this part (before the point, behind it), and how what was read
// compares with as many digits of the constant.
enum Order : uint32_t { kEqual = 0, kLess = 1, kGreater = 2 };

struct Position {
  bool behind_point = false;
  uint32_t digits = 0;
  uint32_t order = kEqual;

  static Position unpack(uint32_t state) {
    return {(state >> 31) != 0, (state >> 2) & 0x1FFFFFFF, state & 3};
  }
  uint32_t pack() const { return (behind_point ? 1u << 31 : 0) | digits << 2 | order; }
};

// The order of the parts before the point, once that of the number is complete.
uint32_t whole_order(const NumberTest& test, const Position& at) {
  if (at.digits < test.whole.size()) return kLess;
  if (at.digits > test.whole.size()) return kGreater;
  return at.order;
}

uint32_t order_of(char digit, char other) {
  return digit == other ? kEqual : digit < other ? kLess : kGreater;
}

}  // namespace

std::optional<uint32_t> NumberTest::next_of_comparison(uint32_t state, uint8_t byte) const {
  Position at = Position::unpack(state);
  const char c = static_cast<char>(byte);
  if (c == '.') {
    if (at.behind_point) return {};
    return Position{true, 0, whole_order(*this, at)}.pack();
  }
  if (at.behind_point) {
    if (at.order != kEqual) return state;
    at.order = order_of(c, at.digits < fraction.size() ? fraction[at.digits] : '0');
    at.digits = at.order != kEqual ? 0 : at.digits < fraction.size() ? at.digits + 1 : at.digits;
    return at.pack();
  }
  if (at.digits >= whole.size())
    return Position{false, static_cast<uint32_t>(whole.size()) + 1, kGreater}.pack();
  if (at.order == kEqual) at.order = order_of(c, whole[at.digits]);
  ++at.digits;
  return at.pack();
}

std::optional<uint32_t> NumberTest::next(uint32_t state, uint8_t byte) const {
  const bool is_digit = byte >= '0' && byte <= '9';
  if (!is_digit && byte != '.') return {};
  if (kind != Kind::kMultiple) return next_of_comparison(state, byte);
  if (!is_digit) return state;
  return static_cast<uint32_t>((uint64_t{state} * 10 + (byte - '0')) % divisor);
}

bool NumberTest::holds(uint32_t state) const {
  if (kind == Kind::kMultiple) return state == 0;
  const Position at = Position::unpack(state);
  uint32_t order = at.behind_point ? at.order : whole_order(*this, at);
  const uint32_t read = at.behind_point ? at.digits : 0;
  if (order == kEqual && read < fraction.size()) order = kLess;
  switch (kind) {
    case Kind::kAtLeast:
      return order != kLess;
    case Kind::kMoreThan:
      return order == kGreater;
    case Kind::kAtMost:
      return order != kGreater;
    default:
      return order == kLess;
  }
}

}  // namespace troupe::grammar
