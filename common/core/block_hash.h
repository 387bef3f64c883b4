#pragma once

// 128-bit XXH3 hashes and their chains. A chained hash names a whole prefix: link i = H(link i-1, bytes of
// part i), so equal hashes mean equal prefixes, not merely equal parts. Used by the gateway over messages
// (prefix keys) and by the worker over blocks of token ids (prefix cache). Source: XXH3_128bits of libxxhash,
// seed 0. At 2^64 distinct links a collision becomes likely; none is expected in the life of a fleet.

#include <compare>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace troupe {

struct Hash128 {
  uint64_t hi = 0;
  uint64_t lo = 0;
  auto operator<=>(const Hash128&) const = default;
  bool is_zero() const { return hi == 0 && lo == 0; }
  // 32 lower-case hex digits, hi first.
  std::string hex() const;
  static std::optional<Hash128> from_hex(std::string_view text);
};

Hash128 hash_bytes(std::string_view bytes);
// Next link: hash of the parent's 16 bytes followed by `bytes`.
Hash128 chain_hash(Hash128 parent, std::string_view bytes);
Hash128 chain_hash(Hash128 parent, std::span<const int32_t> token_ids);
Hash128 chain_hash(Hash128 parent, Hash128 part);  // the bytes of its digest
// Mixes two hashes into one 64-bit value (rendezvous weights).
uint64_t mix_hash(Hash128 a, Hash128 b);

template <typename H>
H AbslHashValue(H state, const Hash128& h) {
  return H::combine(std::move(state), h.hi, h.lo);
}

}  // namespace troupe

template <>
struct std::hash<troupe::Hash128> {
  size_t operator()(const troupe::Hash128& h) const noexcept { return h.lo; }
};
