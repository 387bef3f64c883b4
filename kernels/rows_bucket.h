#pragma once

// Numbers of rows that get the same implementation of a product. The worker warms up with a step of each.

#include <algorithm>
#include <bit>
#include <cstdint>

namespace troupe {

// The smallest number that is not below, of the powers of two and, above 64, three more between each two:
// where products are bound by arithmetic, an implementation for 512 rows does a third too much for 368.
inline int64_t rows_bucket(int64_t rows) {
  const auto power = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(rows, 1))));
  if (power <= 64) return power;
  const int64_t step = power / 8;
  return (rows + step - 1) / step * step;
}

}  // namespace troupe
