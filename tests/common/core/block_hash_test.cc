#include "common/core/block_hash.h"

#include <cpuid.h>
#include <gtest/gtest.h>
#include <immintrin.h>

#include <cstring>
#include <vector>

#include "common/core/xxh3_long.h"

namespace troupe::block_hash_test {

// Vectors of XXH3_128bits, seed 0, by the reference command line tool (xxhsum -H2).
TEST(BlockHash, AgreesWithPublishedVectors) {
  EXPECT_EQ(hash_bytes("").hex(), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(hash_bytes("a").hex(), "a96faf705af16834e6c632b61e964e1f");
  EXPECT_EQ(hash_bytes("abc").hex(), "06b05ab6733a618578af5f94892f3950");
}

TEST(BlockHash, LinkHashesParentDigestThenBytes) {
  const Hash128 parent = hash_bytes("parent");
  for (const size_t size : {0u, 1u, 64u, 1024u, 1025u, 5000u}) {
    std::string whole;
    for (int shift = 56; shift >= 0; shift -= 8) whole += static_cast<char>(parent.hi >> shift);
    for (int shift = 56; shift >= 0; shift -= 8) whole += static_cast<char>(parent.lo >> shift);
    const std::string part(size, 'x');
    EXPECT_EQ(chain_hash(parent, part), hash_bytes(whole + part)) << size;
  }
}

TEST(BlockHash, LinkByDigestEqualsLinkByItsBytes) {
  const Hash128 parent = hash_bytes("parent"), part = hash_bytes("part");
  std::string bytes;
  for (const uint64_t half : {part.hi, part.lo}) {
    for (int shift = 56; shift >= 0; shift -= 8) bytes += static_cast<char>(half >> shift);
  }
  EXPECT_EQ(chain_hash(parent, part), chain_hash(parent, bytes));
}

TEST(BlockHash, EveryVectorWidthGivesTheSameHash) {
  std::string bytes;
  for (size_t i = 0; i < 20'000; ++i) bytes += static_cast<char>(i * i * 31 >> 3);
  int widths = 0;
  const auto agrees = [&](Xxh3Long by_width) {
    ++widths;
    for (const size_t size : {241u, 255u, 256u, 257u, 511u, 512u, 1024u, 1025u, 4096u, 8192u, 19'999u}) {
      for (const size_t begin : {0u, 1u, 7u}) {
        const std::string_view part = std::string_view(bytes).substr(begin, size);
        // A part of this length with a parent uses the streaming state, which has no vector width.
        const Hash128 parent{3, 4};
        std::string behind_parent(16, '\0');
        behind_parent[7] = 3;
        behind_parent[15] = 4;
        behind_parent += part;
        const Xxh3Halves halves = by_width(behind_parent.data(), behind_parent.size());
        EXPECT_EQ((Hash128{halves.high, halves.low}), chain_hash(parent, part)) << size << " from " << begin;
      }
    }
  };
  if (__builtin_cpu_supports("avx2")) agrees(xxh3_long_avx2);
  if (__builtin_cpu_supports("avx512f")) agrees(xxh3_long_avx512);
  if (widths == 0) GTEST_SKIP() << "this processor has neither AVX2 nor AVX-512";
}

// In-use upper halves slow the thread's other code down until they are cleared (block_hash.cc).
[[gnu::target("xsave")]] bool upper_halves_in_use() {
  constexpr uint64_t kYmm = 1 << 2, kZmm = 1 << 6;
  return (_xgetbv(1) & (kYmm | kZmm)) != 0;
}
[[gnu::target("avx")]] void clear_upper() {
  _mm256_zeroupper();
}

TEST(BlockHash, ClearsVectorRegisters) {
  unsigned a = 0, b = 0, c = 0, d = 0;
  const bool asks =
      __builtin_cpu_supports("avx") && __get_cpuid_count(0xd, 1, &a, &b, &c, &d) != 0 && (a & 4) != 0;
  if (!asks) GTEST_SKIP() << "this processor has no AVX, or does not tell what is in use";
  clear_upper();
  if (upper_halves_in_use()) GTEST_SKIP() << "this processor does not tell what is in use";
  const std::string bytes(8192, 'x');
  for (const size_t size : {16u, 241u, 1024u, 5000u, 8192u}) {
    const std::string_view part = std::string_view(bytes).substr(0, size);
    EXPECT_NE(hash_bytes(part), Hash128());
    EXPECT_FALSE(upper_halves_in_use()) << size;
    EXPECT_NE(chain_hash(Hash128{1, 2}, part), Hash128());
    EXPECT_FALSE(upper_halves_in_use()) << size;
  }
}

TEST(BlockHash, HashesTokenIdsAsLittleEndianInt32) {
  const std::vector<int32_t> ids = {1, 258, -1};
  const std::string bytes("\x01\0\0\0\x02\x01\0\0\xff\xff\xff\xff", 12);
  EXPECT_EQ(chain_hash(Hash128{7, 9}, ids), chain_hash(Hash128{7, 9}, bytes));
}

TEST(BlockHash, ChainsDependOnPartBoundariesAndOrder) {
  const Hash128 root;
  EXPECT_NE(chain_hash(chain_hash(root, "ab"), "c"), chain_hash(chain_hash(root, "a"), "bc"));
  EXPECT_NE(chain_hash(chain_hash(root, "a"), "b"), chain_hash(chain_hash(root, "b"), "a"));
  EXPECT_NE(chain_hash(root, ""), root);
}

TEST(BlockHash, HexRoundTripsAndRefusesOtherText) {
  const Hash128 h{0x0123456789abcdefu, 0xfedcba9876543210u};
  EXPECT_EQ(h.hex(), "0123456789abcdeffedcba9876543210");
  EXPECT_EQ(Hash128::from_hex(h.hex()), h);
  EXPECT_EQ(Hash128::from_hex("0123456789ABCDEFfedcba9876543210"), h);
  EXPECT_EQ(Hash128::from_hex("0123456789abcdeffedcba987654321"), std::nullopt);
  EXPECT_EQ(Hash128::from_hex("0123456789abcdeffedcba98765432100"), std::nullopt);
  EXPECT_EQ(Hash128::from_hex("g123456789abcdeffedcba9876543210"), std::nullopt);
  EXPECT_EQ(Hash128::from_hex(""), std::nullopt);
}

TEST(BlockHash, MixDependsOnBothSidesAndTheirOrder) {
  const Hash128 a{1, 2}, b{3, 4};
  EXPECT_NE(mix_hash(a, b), mix_hash(b, a));
  EXPECT_NE(mix_hash(a, b), mix_hash(a, Hash128{3, 5}));
  EXPECT_EQ(mix_hash(a, b), mix_hash(a, b));
}

}  // namespace troupe::block_hash_test
