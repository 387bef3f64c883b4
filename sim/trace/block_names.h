#pragma once

// Names of a trace's blocks in a node's cache.

#include <cstdint>
#include <span>

#include "common/core/block_hash.h"

namespace troupe::sim {

// Any id may name a block, even 0: Mooncake's first block has it. All bits of both halves are mixed, as users
// draw from either.
Hash128 block_name(uint64_t id);
// The same for many: `out` has room for ids.size().
void name_blocks(std::span<const uint64_t> ids, Hash128* out);

}  // namespace troupe::sim
