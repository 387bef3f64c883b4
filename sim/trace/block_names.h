#pragma once

// The names that a node's cache knows a trace's blocks by.

#include <cstdint>
#include <span>

#include "common/core/block_hash.h"

namespace troupe::sim {

// Any id may stand for a block, 0 as well: Mooncake's first block has it. All bits of both halves are mixed,
// for others draw from either.
Hash128 block_name(uint64_t id);
// The same of many: `out` has room for ids.size().
void name_blocks(std::span<const uint64_t> ids, Hash128* out);

}  // namespace troupe::sim
