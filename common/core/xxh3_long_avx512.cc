// Compiled for AVX512 alone (CMakeLists.txt), so this file holds nothing but xxHash: the linker might share
// an inline function of any other header with all files, and machines without AVX512 would run it.

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "common/core/xxh3_long.h"

static_assert(XXH_VECTOR == XXH_AVX512);

troupe::Xxh3Halves troupe::xxh3_long_avx512(const void* bytes, size_t size) {
  const XXH128_hash_t hash = XXH3_128bits(bytes, size);
  _mm256_zeroupper();
  return {hash.high64, hash.low64};
}
