#include "gateway/route/policy/policy.h"

#include <gtest/gtest.h>

#include <set>

namespace troupe::route {
namespace policy_test {

TEST(Policies, RowsHaveDistinctNamesAndASummary) {
  std::set<std::string> names;
  for (const std::string& name : policy_names()) {
    EXPECT_TRUE(names.insert(name).second) << name;
    EXPECT_EQ(policy_info(name).name, name);
    EXPECT_FALSE(policy_info(name).summary.empty()) << name;
    EXPECT_TRUE(check_policy(name).ok()) << name;
    EXPECT_NE(make_policy(name, {}), nullptr) << name;
  }
}

TEST(Policies, OnlyAffinityFollowsTheTable) {
  for (const std::string& name : policy_names())
    EXPECT_EQ(policy_info(name).follows_table, name == "affinity") << name;
}

TEST(Policies, UnknownNameIsRefusedWithTheListOfNames) {
  const Status refused = check_policy("nearest");
  ASSERT_FALSE(refused.ok());
  for (const std::string& name : policy_names())
    EXPECT_NE(refused.message().find(name), std::string::npos) << name;
}

}  // namespace policy_test
}  // namespace troupe::route
