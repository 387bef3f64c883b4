#pragma once

// Philox4x32-10: a random number generator without state. Block `counter` of stream `key` is a pure function,
// so any position of a stream can be drawn directly. Source: Salmon, Moraes, Dror, Shaw, "Parallel random
// numbers: as easy as 1, 2, 3", SC'11.

#include <array>
#include <cstdint>

namespace troupe {

using PhiloxCounter = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

PhiloxCounter philox4x32_10(PhiloxCounter counter, PhiloxKey key);

}  // namespace troupe
