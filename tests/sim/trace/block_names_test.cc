#include "sim/trace/block_names.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace troupe::sim {
namespace block_names_test {

TEST(BlockNames, NamingManyEqualsNamingEach) {
  std::vector<uint64_t> ids;
  for (uint64_t i = 0; i < 37; ++i) ids.push_back(i * 0x0123456789abcdef);
  for (size_t count = 0; count <= ids.size(); ++count) {
    std::vector<Hash128> names(count + 1);
    name_blocks(std::span(ids).first(count), names.data());
    for (size_t i = 0; i < count; ++i) EXPECT_EQ(names[i], block_name(ids[i])) << i << " of " << count;
    EXPECT_TRUE(names[count].is_zero()) << "wrote behind the last";
  }
}

TEST(BlockNames, AllHalvesDiffer) {
  std::set<uint64_t> halves;
  for (uint64_t id = 0; id < 1000; ++id) {
    halves.insert(block_name(id).hi);
    halves.insert(block_name(id).lo);
  }
  EXPECT_EQ(halves.size(), 2000u);
}

}  // namespace block_names_test
}  // namespace troupe::sim
