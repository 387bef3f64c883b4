// Compiled for AVX512 alone (CMakeLists.txt), so nothing but xxHash is in here: an inline function of any
// other header might become the one that all files share, and that machines without AVX512 run, too.

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "common/core/xxh3_long.h"

static_assert(XXH_VECTOR == XXH_AVX512);

troupe::Xxh3Halves troupe::xxh3_long_avx512(const void* bytes, size_t size) {
  const XXH128_hash_t hash = XXH3_128bits(bytes, size);
  _mm256_zeroupper();
  return {hash.high64, hash.low64};
}
