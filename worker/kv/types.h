#pragma once

// Ids and small values that the KV cache and the scheduler share.

#include <cstdint>

namespace troupe {

using RequestId = uint64_t;
using TokenId = int32_t;
using BlockId = int32_t;
using RadixNodeId = int32_t;  // of cached blocks that follow one another (radix_tree.h)

// A cached block whose first `count` ids are those that a request needs next.
struct PartialMatch {
  BlockId block = -1;
  int32_t count = 0;
  RadixNodeId run = -1;  // the run that the block belongs to
};

// The cached blocks that a request holds: from the first of its prompt to the end of a run.
struct LockedPrefix {
  RadixNodeId run = -1;  // the last one; below zero: nothing is held
  int32_t count = 0;     // blocks, of all the runs up to it
};

}  // namespace troupe
