#include "sim/trace/block_names.h"

#include <cstring>

namespace troupe::sim {

namespace {

// MurmurHash3's: every bit of the result depends on every bit of `x`, one to one.
template <typename Word>
[[gnu::always_inline]] inline void mix_bits(Word& x) {
  x = (x ^ x >> 33) * 0xff51afd7ed558ccd;
  x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53;
  x = x ^ x >> 33;
}

template <typename Word>
[[gnu::always_inline]] inline void name(const Word& id, Word& hi, Word& lo) {
  hi = id + 0x9e3779b97f4a7c15;
  lo = id + 0x3c6ef372fe94f82a;
  mix_bits(hi);
  mix_bits(lo);
}

// Names eight at a time, on processors that multiply so many; returns the number named.
[[gnu::target("avx512f,avx512dq")]] size_t name_eights(std::span<const uint64_t> ids, Hash128* out) {
  using Eight [[gnu::vector_size(64)]] = uint64_t;
  size_t i = 0;
  for (; i + 8 <= ids.size(); i += 8) {
    Eight id, hi, lo;
    std::memcpy(&id, &ids[i], sizeof id);
    name(id, hi, lo);
    const Eight first_four = __builtin_shufflevector(hi, lo, 0, 8, 1, 9, 2, 10, 3, 11);
    const Eight last_four = __builtin_shufflevector(hi, lo, 4, 12, 5, 13, 6, 14, 7, 15);
    std::memcpy(static_cast<void*>(&out[i]), &first_four, sizeof first_four);
    std::memcpy(static_cast<void*>(&out[i + 4]), &last_four, sizeof last_four);
  }
  return i;
}

}  // namespace

Hash128 block_name(uint64_t id) {
  Hash128 out;
  name(id, out.hi, out.lo);
  return out;
}

void name_blocks(std::span<const uint64_t> ids, Hash128* out) {
  static const bool has_avx512 = __builtin_cpu_supports("avx512dq") != 0;
  size_t i = has_avx512 ? name_eights(ids, out) : 0;
  for (; i < ids.size(); ++i) out[i] = block_name(ids[i]);
}

}  // namespace troupe::sim
