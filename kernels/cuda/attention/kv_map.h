#pragma once

// The KV memory as the tensor copy engine sees it: rows of a key's or value's head dims, in boxes of 64 dims
// (128 bytes, swizzled) of the keys of one block (kernels.h: those lie one behind the other).

#include <cuda.h>

#include <optional>

#include "common/core/status.h"
#include "kernels/ops/kv.h"

namespace troupe::cuda {

// Tokens of a block: at least the rows that are swizzled together, at most a turn's keys.
inline constexpr int kLeastKvBlock = 8, kLargestKvBlock = 128;

// A row so far off that its box is outside of every map: such a box reads as 0.
inline constexpr int kNoKvRow = -kLargestKvBlock;

// Nothing where tiles cannot be computed by warpgroups (attention_wgmma.cu): the device is no Hopper, or
// runs code made for another (CUDA_FORCE_PTX_JIT), heads are of other than 64 or 128 dims, blocks do not
// divide a turn of keys, or the memory has too many rows. An error where they could be, but the driver
// refuses the map. `kv` is of bfloat16.
StatusOr<std::optional<CUtensorMap>> make_kv_map(const BoundKv& kv);

}  // namespace troupe::cuda
