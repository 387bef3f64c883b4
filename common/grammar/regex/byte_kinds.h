#pragma once

// Bytes by kind, a bit each, as names and words are made of them: where all bytes of a kind are alike to a
// state, texts of these need not be looked at one by one.

#include <array>
#include <cstdint>

namespace troupe::grammar {

inline constexpr std::array<uint8_t, 256> kByteKinds = [] {
  std::array<uint8_t, 256> kinds{};
  for (uint32_t b = 0; b < 256; ++b) {
    const auto in = [b](char first, char last) {
      return b >= static_cast<uint8_t>(first) && b <= static_cast<uint8_t>(last);
    };
    const uint32_t place = in('a', 'z')                                     ? 0
                           : in('A', 'Z')                                   ? 1
                           : in('0', '9')                                   ? 2
                           : b == ' '                                       ? 3
                           : b == '_' || b == '-'                           ? 4
                           : b < 0x20 || b == '"' || b == '\\' || b == 0x7F ? 5
                           : b < 0x80                                       ? 6
                                                                            : 7;
    kinds[b] = static_cast<uint8_t>(1u << place);
  }
  return kinds;
}();

}  // namespace troupe::grammar
