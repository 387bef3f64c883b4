// A link's input is the parent's digest in its canonical form (16 bytes, high half first,
// big-endian: the order of hex()), then the part's bytes; so `xxh3_128_digest(parent.digest()
// + part)` of any xxHash binding gives the same chain. Token ids are hashed as little-endian
// int32, which is their layout in memory on this target.

#include "common/core/block_hash.h"

// Inlined into this file: a call costs as much as hashing a short part.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <array>
#include <bit>
#include <cstring>

#include "common/core/xxh3_long.h"

namespace troupe {

static_assert(std::endian::native == std::endian::little, "token ids are hashed as they lie in memory");

namespace {

constexpr size_t kDigestBytes = 16;
// Fits a block of 16 ids, most chat messages and most persona cards; longer parts take the streaming state.
constexpr size_t kOneShotBytes = 4096;
// XXH3 hashes shorter parts without vectors.
constexpr size_t kVectorBytes = 240;

Hash128 from_xxh(XXH128_hash_t h) {
  return {h.high64, h.low64};
}

Xxh3Halves long_by_any(const void* bytes, size_t size) {
  const XXH128_hash_t hash = XXH3_128bits(bytes, size);
  return {hash.high64, hash.low64};
}

Xxh3Long long_by_widest() {
  if (__builtin_cpu_supports("avx512f")) return xxh3_long_avx512;
  if (__builtin_cpu_supports("avx2")) return xxh3_long_avx2;
  return long_by_any;
}

Hash128 xxh3(const void* bytes, size_t size) {
  if (size <= kVectorBytes) return from_xxh(XXH3_128bits(bytes, size));
  static const Xxh3Long by_widest = long_by_widest();
  const Xxh3Halves hash = by_widest(bytes, size);
  return {hash.high, hash.low};
}

// Two words, as XXH3 reads them: a word loaded whole after a store in two halves waits for the cache.
struct Digest {
  uint64_t hi, lo;
};
static_assert(sizeof(Digest) == sizeof(XXH128_canonical_t));

Digest canonical(Hash128 h) {
  return {__builtin_bswap64(h.hi), __builtin_bswap64(h.lo)};
}

Hash128 chain_streamed(const Digest& parent, std::string_view bytes) {
  XXH3_state_t state;
  XXH3_128bits_reset(&state);
  XXH3_128bits_update(&state, &parent, kDigestBytes);
  XXH3_128bits_update(&state, bytes.data(), bytes.size());
  return from_xxh(XXH3_128bits_digest(&state));
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::string Hash128::hex() const {
  // The sixteen digits of a half are the bytes of two words: each nibble moves into a byte of its own and
  // becomes its letter, eight at once.
  const auto digits = [](uint64_t half) {
    uint64_t x = (half & 0xffff0000) << 16 | (half & 0xffff);
    x = (x << 8 | x) & 0x00ff00ff00ff00ff;
    x = (x << 4 | x) & 0x0f0f0f0f0f0f0f0f;
    const uint64_t over_nine = ((x + 0x0606060606060606) >> 4) & 0x0101010101010101;
    return __builtin_bswap64(x + 0x3030303030303030 + over_nine * ('a' - '0' - 10));
  };
  std::array<uint64_t, 4> text = {digits(hi >> 32), digits(hi & 0xffffffff), digits(lo >> 32),
                                  digits(lo & 0xffffffff)};
  return {reinterpret_cast<const char*>(text.data()), sizeof text};
}

std::optional<Hash128> Hash128::from_hex(std::string_view text) {
  if (text.size() != 32) return std::nullopt;
  Hash128 out;
  for (size_t i = 0; i < text.size(); ++i) {
    const int digit = hex_digit(text[i]);
    if (digit < 0) return std::nullopt;
    uint64_t& half = i < 16 ? out.hi : out.lo;
    half = half << 4 | static_cast<uint64_t>(digit);
  }
  return out;
}

Hash128 hash_bytes(std::string_view bytes) {
  return xxh3(bytes.data(), bytes.size());
}

Hash128 chain_hash(Hash128 parent, std::string_view bytes) {
  const Digest head = canonical(parent);
  if (bytes.size() > kOneShotBytes) return chain_streamed(head, bytes);
  std::array<char, kDigestBytes + kOneShotBytes> buffer;
  std::memcpy(buffer.data(), &head, kDigestBytes);
  if (!bytes.empty()) std::memcpy(buffer.data() + kDigestBytes, bytes.data(), bytes.size());
  return xxh3(buffer.data(), kDigestBytes + bytes.size());
}

Hash128 chain_hash(Hash128 parent, std::span<const int32_t> token_ids) {
  return chain_hash(parent, std::string_view(reinterpret_cast<const char*>(token_ids.data()),
                                             token_ids.size() * sizeof(int32_t)));
}

Hash128 chain_hash(Hash128 parent, Hash128 part) {
  const Digest both[2] = {canonical(parent), canonical(part)};
  return xxh3(both, sizeof both);
}

uint64_t mix_hash(Hash128 a, Hash128 b) {
  const Digest halves[2] = {canonical(a), canonical(b)};
  return XXH3_64bits(halves, sizeof halves);
}

}  // namespace troupe
