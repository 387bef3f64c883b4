// Behind one model's name nodes may differ: in the length of their contexts, and in kind.

#include <gtest/gtest.h>

#include <set>

#include "gateway/route/router.h"

namespace troupe::route {
namespace {

constexpr TimePoint kNow = TimePoint{} + std::chrono::seconds(1000);

struct FittingNode {
  int64_t context;
  bool is_troupe_worker = false;
};

class FittingTest : public ::testing::Test {
 protected:
  void update_cluster(const std::vector<FittingNode>& specs) {
    std::vector<NodeView> nodes(specs.size());
    for (size_t i = 0; i < specs.size(); ++i) {
      nodes[i].id = "n" + std::to_string(i);
      nodes[i].state = NodeState::kAlive;
      nodes[i].models = {"m"};
      nodes[i].contexts = {specs[i].context};
      nodes[i].is_troupe_worker = specs[i].is_troupe_worker;
    }
    router_.update_cluster(std::make_shared<ClusterView>(++epoch_, std::move(nodes)));
  }
  // The nodes that a prompt of so many tokens may be sent to.
  std::set<NodeIndex> nodes_for(int64_t tokens, int64_t answer = 0, bool others_only = false) {
    PrefixKey key;
    key.prompt_tokens = tokens;
    key.answer_tokens = answer;
    key.others_only = others_only;
    std::set<NodeIndex> nodes;
    const Decision decision = router_.decide(key, "m", kNow);
    for (const Candidate& candidate : decision.order.all()) nodes.insert(candidate.node);
    return nodes;
  }
  using Nodes = std::set<NodeIndex>;

  Router router_{RouterOptions(), 1};
  uint64_t epoch_ = 0;
};

TEST_F(FittingTest, LongPromptsGoWhereTheyFit) {
  update_cluster({{4096}, {32'768}, {0}});
  EXPECT_EQ(nodes_for(4000), (Nodes{0, 1, 2}));
  EXPECT_EQ(nodes_for(4097), (Nodes{1, 2}));
  EXPECT_EQ(nodes_for(4000, 200), (Nodes{1, 2})) << "with the answer it is too long";
  EXPECT_EQ(nodes_for(100'000), (Nodes{2})) << "which does not tell";
}

TEST_F(FittingTest, TooLongForAllIsForTheLongestToRefuse) {
  update_cluster({{4096}, {32'768}, {32'768}});
  EXPECT_EQ(nodes_for(100'000), (Nodes{1, 2}));
  update_cluster({{4096}, {4096}});
  EXPECT_EQ(nodes_for(100'000), (Nodes{0, 1})) << "all alike: nothing changes";
}

TEST_F(FittingTest, AnEstimateIsGivenAMargin) {
  update_cluster({{1000}, {8000}});
  PrefixKey key;
  key.prompt_bytes = 3800;  // about 950 tokens
  const Decision decision = router_.decide(key, "m", kNow);
  ASSERT_EQ(decision.order.size(), 1u);
  EXPECT_EQ(decision.order[0].node, 1u);
}

TEST_F(FittingTest, OthersPathsAreNotForOurs) {
  update_cluster({{0, true}, {0, false}, {0, true}});
  EXPECT_EQ(nodes_for(10), (Nodes{0, 1, 2}));
  EXPECT_EQ(nodes_for(10, 0, true), (Nodes{1}));
  update_cluster({{0, true}});
  EXPECT_TRUE(nodes_for(10, 0, true).empty());
}

// An order holds a few nodes only, none of which may fit.
TEST_F(FittingTest, TheOneThatFitsIsFoundAmongMany) {
  std::vector<FittingNode> specs(200, {4096, true});
  specs[177] = {65'536, false};
  update_cluster(specs);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(nodes_for(10'000), (Nodes{177}));
    EXPECT_EQ(nodes_for(10, 0, true), (Nodes{177}));
  }
}

}  // namespace
}  // namespace troupe::route
