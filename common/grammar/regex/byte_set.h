#pragma once

// A set of bytes.

#include <array>
#include <bit>
#include <cstdint>

namespace troupe::grammar {

struct ByteSet {
  std::array<uint64_t, 4> words{};

  static ByteSet range(uint8_t first, uint8_t last) {
    ByteSet set;
    for (uint32_t b = first; b <= last; ++b) set.add(static_cast<uint8_t>(b));
    return set;
  }
  void add(uint8_t byte) { words[byte >> 6] |= uint64_t{1} << (byte & 63); }
  bool has(uint8_t byte) const { return (words[byte >> 6] >> (byte & 63) & 1) != 0; }
  size_t size() const {
    size_t count = 0;
    for (const uint64_t word : words) count += static_cast<size_t>(std::popcount(word));
    return count;
  }
  bool empty() const { return (words[0] | words[1] | words[2] | words[3]) == 0; }
  void add_all(const ByteSet& other) {
    for (size_t i = 0; i < 4; ++i) words[i] |= other.words[i];
  }
  void keep_common(const ByteSet& other) {
    for (size_t i = 0; i < 4; ++i) words[i] &= other.words[i];
  }
  bool operator==(const ByteSet&) const = default;
};

}  // namespace troupe::grammar
