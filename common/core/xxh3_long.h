#pragma once

// XXH3_128bits (seed 0) of more than 240 bytes, once for each vector width: the same hashes in a half or a
// quarter of the instructions. Shorter inputs need no vectors. Private to block_hash.cc.

#include <cstddef>
#include <cstdint>

namespace troupe {

struct Xxh3Halves {
  uint64_t high = 0, low = 0;
};
using Xxh3Long = Xxh3Halves (*)(const void* bytes, size_t size);

// REQUIRES: the processor supports the named instructions. The functions clear the upper halves of vector
// registers: an SSE instruction after uncleared ones costs some 130 ns on a current Xeon.
Xxh3Halves xxh3_long_avx2(const void* bytes, size_t size);
Xxh3Halves xxh3_long_avx512(const void* bytes, size_t size);

}  // namespace troupe
