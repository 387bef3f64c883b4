#include "gateway/route/fleet/name_addresses.h"

#include <gmock/gmock.h>

#include <algorithm>

namespace troupe::route {
namespace name_addresses_test {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

TEST(NameAddresses, NewOnesJoinAndThoseThatDnsHasNoMoreLeave) {
  NameAddresses name;
  NameAddresses::Change change = name.found({"10.0.0.2", "10.0.0.1", "10.0.0.2"});
  EXPECT_THAT(change.joined, ElementsAre("10.0.0.2", "10.0.0.1"));
  EXPECT_THAT(change.left, IsEmpty());
  change = name.found({"10.0.0.3", "10.0.0.1"});
  EXPECT_THAT(change.joined, ElementsAre("10.0.0.3"));
  EXPECT_THAT(change.left, ElementsAre("10.0.0.2"));
  EXPECT_THAT(name.known(), UnorderedElementsAre("10.0.0.1", "10.0.0.3"));
  change = name.found({"10.0.0.1", "10.0.0.3"});
  EXPECT_TRUE(change.joined.empty() && change.left.empty()) << "their order says nothing";
}

TEST(NameAddresses, ALookupThatFailsChangesNothing) {
  NameAddresses name;
  name.found({"10.0.0.1", "::1"});
  const NameAddresses::Change change = name.found({});
  EXPECT_TRUE(change.joined.empty() && change.left.empty());
  EXPECT_THAT(name.known(), ElementsAre("10.0.0.1", "::1"));
}

TEST(NameAddresses, AreBoundedAndThoseThatAreHereStay) {
  std::vector<std::string> many;
  for (size_t i = 0; i < NameAddresses::kMax + 10; ++i) many.push_back("10.0.0." + std::to_string(i));
  NameAddresses name;
  NameAddresses::Change change = name.found(many);
  EXPECT_EQ(change.joined.size(), NameAddresses::kMax);
  EXPECT_EQ(change.left_out, 10u);
  const std::vector<std::string> before = name.known();
  for (size_t turn = 0; turn < many.size(); ++turn) {  // as a resolver does with every answer
    std::rotate(many.begin(), many.begin() + 1, many.end());
    change = name.found(many);
    ASSERT_TRUE(change.joined.empty() && change.left.empty());
  }
  EXPECT_EQ(name.known(), before);
  std::erase(many, "10.0.0.5");
  change = name.found(many);
  EXPECT_THAT(change.left, ElementsAre("10.0.0.5"));
  EXPECT_EQ(change.joined.size(), 1u) << "there is room for one that was left out";
  EXPECT_EQ(change.left_out, 9u);
}

}  // namespace name_addresses_test
}  // namespace troupe::route
