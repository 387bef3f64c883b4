#pragma once

// A set of Unicode scalar values (no surrogates), as regular expressions' classes name them.

#include <cstdint>
#include <vector>

namespace troupe::grammar {

class CharSet {
 public:
  struct Range {
    uint32_t first, last;  // both in the set
    bool operator==(const Range&) const = default;
  };
  static constexpr uint32_t kLast = 0x10FFFF;

  static CharSet all();
  static CharSet of(uint32_t c) { return range(c, c); }
  // Surrogates within are left out.
  static CharSet range(uint32_t first, uint32_t last);

  void add(const CharSet& other);
  CharSet complement() const;
  CharSet minus(const CharSet& other) const;
  // With both cases of every ASCII letter of it.
  CharSet with_both_cases() const;
  bool has(uint32_t c) const;
  bool empty() const { return ranges_.empty(); }
  // Ascending; neither touch nor overlap.
  const std::vector<Range>& ranges() const { return ranges_; }

 private:
  void normalise();
  std::vector<Range> ranges_;
};

}  // namespace troupe::grammar
