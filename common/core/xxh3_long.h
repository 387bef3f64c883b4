#pragma once

// XXH3_128bits (seed 0) of more than 240 bytes, once for each width of vectors: the same hashes, by a half or
// a quarter of the instructions. Shorter ones need no vectors. Private to block_hash.cc.

#include <cstddef>
#include <cstdint>

namespace troupe {

struct Xxh3Halves {
  uint64_t high = 0, low = 0;
};
using Xxh3Long = Xxh3Halves (*)(const void* bytes, size_t size);

// REQUIRES: the processor has what the name says. They leave the upper halves of vector registers clear: an
// SSE instruction behind one that did not costs some 130 ns on a Xeon of today.
Xxh3Halves xxh3_long_avx2(const void* bytes, size_t size);
Xxh3Halves xxh3_long_avx512(const void* bytes, size_t size);

}  // namespace troupe
