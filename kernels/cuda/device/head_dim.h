#pragma once

// The bound of head dims and its check, at an op's host boundary: a larger one ends the process.

#include <string>

#include "kernels/check.h"
#include "kernels/ops/kv.h"

namespace troupe::cuda {

// Head dims that rope_kv and plain_attention hold in registers.
inline constexpr int kHeadDimMax = 256;
inline void check_head_dim(const char* op, const KvLayout& layout) {
  if (layout.head_dim <= kHeadDimMax) return;
  check_failed(op, "head_dim " + std::to_string(layout.head_dim) + " is over " + std::to_string(kHeadDimMax));
}

}  // namespace troupe::cuda
