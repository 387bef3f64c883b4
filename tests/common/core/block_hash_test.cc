#include "common/core/block_hash.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace troupe::block_hash_test {

// Vectors of XXH3_128bits, seed 0, by the reference command line tool (xxhsum -H2).
TEST(BlockHash, AgreesWithPublishedVectors) {
  EXPECT_EQ(hash_bytes("").hex(), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(hash_bytes("a").hex(), "a96faf705af16834e6c632b61e964e1f");
  EXPECT_EQ(hash_bytes("abc").hex(), "06b05ab6733a618578af5f94892f3950");
}

TEST(BlockHash, ALinkIsTheHashOfTheParentsDigestThenTheBytes) {
  const Hash128 parent = hash_bytes("parent");
  for (const size_t size : {0u, 1u, 64u, 1024u, 1025u, 5000u}) {
    std::string whole;
    for (int shift = 56; shift >= 0; shift -= 8) whole += static_cast<char>(parent.hi >> shift);
    for (int shift = 56; shift >= 0; shift -= 8) whole += static_cast<char>(parent.lo >> shift);
    const std::string part(size, 'x');
    EXPECT_EQ(chain_hash(parent, part), hash_bytes(whole + part)) << size;
  }
}

TEST(BlockHash, TokenIdsAreHashedAsLittleEndianInt32) {
  const std::vector<int32_t> ids = {1, 258, -1};
  const std::string bytes("\x01\0\0\0\x02\x01\0\0\xff\xff\xff\xff", 12);
  EXPECT_EQ(chain_hash(Hash128{7, 9}, ids), chain_hash(Hash128{7, 9}, bytes));
}

TEST(BlockHash, ChainsTellPartBoundariesAndOrderApart) {
  const Hash128 root;
  EXPECT_NE(chain_hash(chain_hash(root, "ab"), "c"), chain_hash(chain_hash(root, "a"), "bc"));
  EXPECT_NE(chain_hash(chain_hash(root, "a"), "b"), chain_hash(chain_hash(root, "b"), "a"));
  EXPECT_NE(chain_hash(root, ""), root);
}

TEST(BlockHash, HexRoundTripsAndRefusesAnythingElse) {
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
