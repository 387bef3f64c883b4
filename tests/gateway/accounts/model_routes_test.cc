#include "gateway/access/model_routes.h"

#include <gtest/gtest.h>

#include <map>

namespace troupe {
namespace {

Hash128 subject(int i) {
  return hash_bytes(std::to_string(i));
}

ModelRoute split(double a, double b) {
  return {"model", {{"model-a", a}, {"model-b", b}}};
}

TEST(ModelRoutes, AnAliasHasOneModel) {
  const auto routes = ModelRoutes::of({{"gpt-4o", {{"real", 1}}}});
  ASSERT_TRUE(routes.ok());
  ASSERT_NE(routes->find("gpt-4o"), nullptr);
  EXPECT_EQ(arm_of(*routes->find("gpt-4o"), subject(1)).model, "real");
  EXPECT_EQ(routes->find("real"), nullptr);
}

TEST(ModelRoutes, ASplitIsByWeightAndSticky) {
  const ModelRoute route = split(95, 5);
  std::map<std::string, int> seen;
  for (int i = 0; i < 20'000; ++i) {
    const std::string& model = arm_of(route, subject(i)).model;
    EXPECT_EQ(arm_of(route, subject(i)).model, model);
    seen[model] += 1;
  }
  EXPECT_NEAR(seen["model-b"], 1000, 130) << "5 %, four standard deviations";
}

TEST(ModelRoutes, ChangedWeightsMoveOnlyThoseWhoMust) {
  const ModelRoute before = split(95, 5), after = split(80, 20);
  int moved = 0;
  for (int i = 0; i < 20'000; ++i) {
    const std::string& from = arm_of(before, subject(i)).model;
    const std::string& to = arm_of(after, subject(i)).model;
    EXPECT_FALSE(from == "model-b" && to == "model-a") << "who has the arm that grows keeps it";
    moved += from != to ? 1 : 0;
  }
  EXPECT_NEAR(moved, 3000, 220) << "15 %: the least that can be";
}

TEST(ModelRoutes, AnArmOfWeightZeroHasNobody) {
  const ModelRoute route = split(0, 1);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(arm_of(route, subject(i)).model, "model-b");
}

TEST(ModelRoutes, SaysWhatIsWrong) {
  const auto fault = [](std::vector<ModelRoute> routes) {
    return std::string(ModelRoutes::of(std::move(routes)).status().message());
  };
  EXPECT_NE(fault({{"a", {}}}).find("'a' needs"), std::string::npos);
  EXPECT_NE(fault({{"a", {{"b", 1}}}, {"a", {{"c", 1}}}}).find("twice"), std::string::npos);
  EXPECT_NE(fault({{"a", {{"b", 1}}}, {"b", {{"c", 1}}}}).find("is a route, too"), std::string::npos);
  EXPECT_NE(fault({{"a", {{"b", 0}}}}).find("above 0"), std::string::npos);
  EXPECT_TRUE(ModelRoutes::of({{"a", {{"a", 95}, {"b", 5}}}}).ok()) << "a model may keep a part of its own";
}

}  // namespace
}  // namespace troupe
