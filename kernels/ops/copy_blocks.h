#pragma once

// Parameters and checks of Backend::copy_blocks(), the copy-on-write of KV blocks. Violated ranges end the
// process.

#include <cstdint>
#include <span>

#include "kernels/ops/kv.h"

namespace troupe {

// All layers of block `from` over those of block `to`. How a partly filled block is shared: the copy is
// written on, the original stays as it is.
struct BlockCopy {
  int32_t from = 0;
  int32_t to = 0;  // once in a call, and never also a `from`
};

void check_copies(std::span<const BlockCopy> copies, const BoundKv& kv);

}  // namespace troupe
