// Sets that move before their requests do: the handover's state, routing meanwhile, and the choice of the
// sets.

#include "gateway/route/placement/handover.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/gateway/route/cluster.h"

namespace troupe::route {
namespace {

using namespace testing_cluster;
using namespace std::chrono_literals;

std::vector<Hash128> numbered(std::initializer_list<int> numbers) {
  std::vector<Hash128> sets;
  for (const int n : numbers) sets.push_back(numbered_set(n));
  return sets;
}

TEST(Handover, LeavingNodeKeepsASetUntilItHasMoved) {
  Handover books(1);
  EXPECT_FALSE(books.avoids(0, numbered_set(1)));
  books.leave(0, numbered({1, 2}), at_ms(1000));
  EXPECT_FALSE(books.avoids(0, numbered_set(1)));
  EXPECT_TRUE(books.avoids(0, numbered_set(3))) << "what it never had goes elsewhere";
  EXPECT_TRUE(books.avoids(0, Hash128{}));
  EXPECT_EQ(books.draining_holder(numbered_set(2)), 0u);
  EXPECT_EQ(books.draining_holder(numbered_set(3)), kNoNode);

  auto move = books.next();
  ASSERT_TRUE(move.has_value());
  EXPECT_EQ(move->set, numbered_set(1)) << "the hottest first";
  EXPECT_EQ(move->from, 0u);
  EXPECT_FALSE(books.next().has_value()) << "one at a time";
  books.set_target(*move, 2);
  EXPECT_TRUE(books.avoids(2, numbered_set(1))) << "not before it is computed there";
  EXPECT_FALSE(books.avoids(2, numbered_set(2)));
  EXPECT_FALSE(books.avoids(0, numbered_set(1)));
  books.done(*move);
  EXPECT_TRUE(books.avoids(0, numbered_set(1)));
  EXPECT_FALSE(books.avoids(2, numbered_set(1)));
  EXPECT_EQ(books.open_sets(0), 1u);
  move = books.next();
  EXPECT_EQ(move->set, numbered_set(2));
  books.done(*move);
  EXPECT_TRUE(books.leaving(0)) << "it has left, and takes nothing new";
  EXPECT_TRUE(books.avoids(0, numbered_set(9)));
}

TEST(Handover, NodesThatComputeOneSetWaitForTheirOwnMoves) {
  Handover books(4);
  books.leave(0, numbered({1, 2}), at_ms(1000));
  books.leave(1, numbered({1}), at_ms(2000));
  auto first = books.next(), second = books.next(), third = books.next();
  ASSERT_TRUE(first && second && third);
  ASSERT_EQ(third->from, 1u);
  for (auto* move : {&first, &second, &third}) books.set_target(**move, 2);
  books.done(*second);
  EXPECT_TRUE(books.avoids(2, numbered_set(1))) << "only the other set of that node is there";
  EXPECT_FALSE(books.avoids(2, numbered_set(2)));
  books.done(*third);
  EXPECT_TRUE(books.avoids(2, numbered_set(1))) << "the first node's move is under way";
  books.done(*first);
  EXPECT_FALSE(books.avoids(2, numbered_set(1)));
}

TEST(Handover, SetNotComputedByTheDeadlineMovesAnyway) {
  Handover books(1);
  books.leave(0, numbered({1, 2, 3}), at_ms(1000));
  books.join(1, numbered({1, 2}), at_ms(2000));
  const auto move = books.next();
  ASSERT_TRUE(move.has_value());
  EXPECT_EQ(move->from, 0u) << "whose time is over first";
  books.advance(at_ms(999));
  EXPECT_EQ(books.open_sets(0), 3u);
  books.advance(at_ms(1000));
  EXPECT_EQ(books.open_sets(0), 0u);
  EXPECT_TRUE(books.avoids(0, numbered_set(1)));
  EXPECT_TRUE(books.leaving(0));
  books.done(*move);  // late
  EXPECT_TRUE(books.avoids(1, numbered_set(2)));
  books.advance(at_ms(2000));
  EXPECT_FALSE(books.avoids(1, numbered_set(2)));
  EXPECT_FALSE(books.next().has_value());
  books.come_back(0);
  EXPECT_TRUE(books.empty()) << "the other's join is over";
}

TEST(Handover, JoiningNodeGetsASetsRequestsOnceComputed) {
  Handover books(2);
  books.join(3, numbered({1, 2, 4}), at_ms(1000));
  EXPECT_TRUE(books.avoids(3, numbered_set(1)));
  EXPECT_FALSE(books.avoids(3, numbered_set(9))) << "nothing is known of it";
  EXPECT_EQ(books.draining_holder(numbered_set(1)), kNoNode) << "it has nothing to keep";
  const auto first = books.next(), second = books.next();
  ASSERT_TRUE(first && second);
  EXPECT_FALSE(books.next().has_value());
  EXPECT_EQ(first->to, 3u);
  EXPECT_EQ(first->from, kNoNode);
  books.done(*second);
  EXPECT_TRUE(books.avoids(3, numbered_set(1)));
  EXPECT_FALSE(books.avoids(3, numbered_set(2)));
  books.done(*first);
  books.done(*books.next());
  EXPECT_EQ(books.open_sets(3), 0u);
  EXPECT_FALSE(books.leaving(3));
  EXPECT_TRUE(books.empty());
  books.join(3, {}, at_ms(1000));
  EXPECT_TRUE(books.empty()) << "it waits for nothing";
}

TEST(Handover, NewLifeDropsTheOldHandover) {
  Handover books(2);
  books.leave(0, numbered({1}), at_ms(1000));
  const auto old = books.next();
  books.join(0, numbered({1, 2}), at_ms(2000));
  books.done(*old);
  EXPECT_EQ(books.open_sets(0), 2u);
  books.forget_node(0);
  EXPECT_EQ(books.open_sets(0), 0u) << "the dead compute nothing";
  books.leave(0, numbered({1}), at_ms(1000));
  books.forget_node(0);
  EXPECT_EQ(books.open_sets(0), 1u) << "what it had is wanted elsewhere all the same";
  books.come_back(0);
  EXPECT_FALSE(books.leaving(0));
  EXPECT_FALSE(books.avoids(0, numbered_set(5)));
  books.leave(0, numbered({1, 2}), at_ms(1000));
  books.hold(0);
  books.join(0, numbered({3}), at_ms(2000));
  EXPECT_FALSE(books.held(0));
  EXPECT_EQ(books.open_sets(0), 1u) << "of this life alone";
}

TEST(Handover, SetsOfAHeldNodeWaitAndOthersDoNot) {
  Handover handover(4);
  const Hash128 sets[] = {numbered_set(1), numbered_set(2)};
  handover.leave(1, sets, at_ms(10'000));
  handover.hold(1);
  EXPECT_TRUE(handover.held(1));
  EXPECT_FALSE(handover.next().has_value());
  EXPECT_EQ(handover.draining_holder(sets[0]), 1u) << "it keeps them meanwhile";
  handover.join(2, std::span(sets).first(1), at_ms(20'000));
  EXPECT_EQ(handover.next()->to, 2u);
  handover.release(1);
  EXPECT_EQ(handover.next()->from, 1u);
  handover.leave(3, sets, at_ms(10'000));
  handover.hold(3);
  handover.advance(at_ms(10'000));
  EXPECT_FALSE(handover.held(3)) << "not beyond its time";
  EXPECT_EQ(handover.open_sets(3), 0u);
  handover.hold(7);  // unknown to the handover
  EXPECT_FALSE(handover.held(7));
}

// A router in every mode that knows sets.
class HandoverRouting : public ::testing::TestWithParam<Mode> {
 protected:
  HandoverRouting() { update_cluster(); }

  static RouterOptions options() {
    RouterOptions options;
    options.affinity.mode = GetParam();
    return options;
  }
  void update_cluster() {
    router_.update_cluster(std::make_shared<ClusterView>(++epoch_, nodes_));
    router_.plan(at_ms(now_));
  }
  NodeIndex ask(int set) { return serve(router_, key(set, ++sessions_), at_ms(now_ += 10)); }
  // Makes its sets a few of many: none is on every node.
  void others_are_asked_for() {
    for (int set = 30; set < 60; ++set) ask(set);
    now_ += 10'000;
    update_cluster();
  }
  NodeIndex first_for(int set) {
    return router_.preview(key(set, 1'000'000), "demo", at_ms(now_)).order[0].node;
  }
  void leave(NodeIndex node) {
    nodes_[node].leaving = true;
    update_cluster();
    router_.handover().leave(node, router_.targets().sets_of(node), at_ms(now_ + 60'000));
  }

  std::vector<NodeView> nodes_ = nodes(4);
  Router router_{options(), 1};
  uint64_t epoch_ = 0;
  int64_t now_ = 0;
  int sessions_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Modes, HandoverRouting, ::testing::Values(Mode::kExact, Mode::kGossip, Mode::kPlan),
                         [](const auto& tested) { return std::string(mode_name(tested.param)); });

TEST_P(HandoverRouting, RequestsStayUntilTheSetHasMovedThenFollowIt) {
  others_are_asked_for();
  const NodeIndex before_it_was_planned = ask(7);
  for (int i = 0; i < 3; ++i) ask(7);
  others_are_asked_for();
  const NodeIndex old = ask(7);
  if (before_it_was_planned != old) router_.forget_node(before_it_was_planned);
  ASSERT_EQ(first_for(7), old);
  leave(old);
  ASSERT_EQ(router_.targets().sets_of(old).at(0), numbered_set(7));
  EXPECT_EQ(first_for(7), old);

  auto move = router_.handover().next();
  ASSERT_TRUE(move.has_value());
  const NodeIndex next = router_.targets().next_home(move->set, "demo", old);
  ASSERT_NE(next, kNoNode);
  ASSERT_NE(next, old);
  router_.handover().set_target(*move, next);
  EXPECT_EQ(first_for(7), old);
  router_.targets().computed(move->set, next, 1000, at_ms(now_));
  router_.handover().done(*move);
  EXPECT_EQ(first_for(7), next);
  const auto candidate = router_.preview(key(7, 2'000'000), "demo", at_ms(now_)).order[0];
  EXPECT_GE(candidate.expect_cached, 900) << "its first request pays for nothing";
  EXPECT_NE(router_.targets().next_home(move->set, "demo", old), next) << "it need not compute it again";
  for (int set = 100; set < 130; ++set) EXPECT_NE(ask(set), old) << "and nothing new goes there";
}

// With one holder fewer, requests beyond the others' room would go to nodes without the set.
TEST_P(HandoverRouting, WidespreadSetKeepsItsNumberOfHolders) {
  others_are_asked_for();
  const NodeIndex old = ask(7);
  leave(old);
  std::vector<NodeIndex> have;
  for (NodeIndex next; (next = router_.targets().next_home(numbered_set(7), "demo", old)) != kNoNode;) {
    ASSERT_NE(next, old);
    ASSERT_EQ(std::count(have.begin(), have.end(), next), 0) << "it has it";
    have.push_back(next);
    router_.targets().computed(numbered_set(7), next, 1000, at_ms(now_));
  }
  EXPECT_EQ(have.size(), GetParam() == Mode::kPlan ? 1u : nodes_.size() - 1) << "of four, a third is two";
}

TEST_P(HandoverRouting, SetOfFewNodesMovesToOneOfThem) {
  nodes_ = nodes(12);
  update_cluster();
  others_are_asked_for();
  const NodeIndex old = ask(7);
  for (int set = 300; set < 900; ++set) ask(set);  // cold, beside so many
  now_ += 10'000;
  leave(old);
  const NodeIndex next = router_.targets().next_home(numbered_set(7), "demo", old);
  ASSERT_NE(next, kNoNode);
  router_.targets().computed(numbered_set(7), next, 1000, at_ms(now_));
  EXPECT_EQ(router_.targets().next_home(numbered_set(7), "demo", old), kNoNode)
      << "nobody else is asked for it";
}

TEST_P(HandoverRouting, ConversationContinuesWhereItWasComputed) {
  others_are_asked_for();
  const NodeIndex old = ask(7);
  const int session = sessions_;
  const MovedConversation tail{key(7, session).session, numbered_set(7), 3000, 1000};
  leave(old);
  const NodeIndex next = router_.targets().next_home(tail, "demo", old);
  ASSERT_NE(next, kNoNode);
  ASSERT_NE(next, old);
  router_.targets().computed(tail, next, at_ms(now_));
  router_.handover().come_back(old);
  router_.handover().leave(old, {}, at_ms(now_ + 60'000));  // its sets have moved
  const auto candidate = router_.preview(key(7, session), "demo", at_ms(now_)).order[0];
  EXPECT_EQ(candidate.node, next);
  EXPECT_GT(candidate.expect_cached, 1000) << "more than its set";
  EXPECT_EQ(router_.targets().next_home(tail, "demo", old), kNoNode) << "it is there";
}

TEST_P(HandoverRouting, ConversationsOfOneSetSpreadOverItsHolders) {
  if (GetParam() == Mode::kPlan) GTEST_SKIP() << "there it has the homes of the table";
  others_are_asked_for();
  const NodeIndex old = ask(7);
  leave(old);
  for (NodeIndex n = 0; n < nodes_.size(); ++n) {
    if (n != old) router_.targets().computed(numbered_set(7), n, 1000, at_ms(now_));
  }
  std::vector<int> taken(nodes_.size());
  for (uint64_t s = 0; s < 300; ++s) {
    taken.at(router_.targets().next_home(MovedConversation{{99, s}, numbered_set(7), 2000, 1000}, "demo",
                                         old)) += 1;
  }
  EXPECT_EQ(taken[old], 0);
  for (NodeIndex n = 0; n < nodes_.size(); ++n) {
    if (n != old) {
      EXPECT_GT(taken[n], 60);
    }
  }
}

TEST_P(HandoverRouting, LastNodeIsAskedEvenIfItLeaves) {
  others_are_asked_for();
  const NodeIndex old = ask(7);
  for (NodeView& node : nodes_) node.leaving = true;
  update_cluster();
  for (NodeIndex n = 0; n < nodes_.size(); ++n) router_.handover().leave(n, {}, at_ms(now_ + 1));
  const auto order = router_.preview(key(7, 1), "demo", at_ms(now_)).order;
  ASSERT_GE(order.size(), 1u);
  EXPECT_EQ(order[0].node, old);
  EXPECT_EQ(router_.targets().next_home(numbered_set(7), "demo", old), kNoNode);
}

TEST_P(HandoverRouting, JoiningNodeGetsItsShareOfTheHottestSets) {
  nodes_[3].state = NodeState::kDead;
  update_cluster();
  std::vector<Hash128> sets;
  for (int set = 0; set < 40; ++set) {
    sets.push_back(numbered_set(set));
    for (int i = 0; i < 1 + (set == 11 ? 60 : 0); ++i) ask(set);
  }
  sets.push_back(numbered_set(99));  // without requests
  EXPECT_TRUE(router_.targets().sets_for(3, "demo", sets).empty()) << "it is not there";
  nodes_[3].state = NodeState::kAlive;
  update_cluster();
  EXPECT_TRUE(router_.targets().sets_for(3, "other", sets).empty());
  nodes_[3].weight = 0.1;  // during its ramp
  update_cluster();
  const std::vector<Hash128> wanted = router_.targets().sets_for(3, "demo", sets);
  ASSERT_FALSE(wanted.empty());
  EXPECT_EQ(wanted[0], numbered_set(11));
  EXPECT_LT(wanted.size(), 35u);
  EXPECT_EQ(std::count(wanted.begin(), wanted.end(), numbered_set(99)), 0);
  router_.handover().join(3, wanted, at_ms(now_ + 1000));
  EXPECT_NE(first_for(11), 3u);
  for (const Hash128& set : wanted) router_.targets().computed(set, 3, 1000, at_ms(now_));
  while (const auto move = router_.handover().next()) router_.handover().done(*move);
  EXPECT_TRUE(router_.targets().sets_for(3, "demo", wanted).empty()) << "it has them";
}

// A set that many nodes hold will soon be sent to it, too.
TEST_P(HandoverRouting, JoiningNodeGetsWidespreadSets) {
  nodes_[3].state = NodeState::kDead;
  update_cluster();
  std::vector<Hash128> sets;
  for (int set = 0; set < 40; ++set) {
    sets.push_back(numbered_set(set));
    ask(set);
  }
  nodes_[3].state = NodeState::kAlive;
  update_cluster();
  const auto few = router_.targets().sets_for(3, "demo", sets).size();
  for (int set = 0; set < 40; ++set) {
    for (const NodeIndex node : {0, 1})
      router_.targets().computed(numbered_set(set), node, 1000, at_ms(now_));
  }
  const auto many = router_.targets().sets_for(3, "demo", sets).size();
  EXPECT_LT(few, 25u);
  if (GetParam() == Mode::kPlan) {
    EXPECT_EQ(many, few) << "the table decides";
  } else {
    EXPECT_EQ(many, 40u);
  }
}

// A set that the table does not send there would be computed for nothing.
TEST(HandoverByTable, JoiningNodeGetsTheTablesSets) {
  for (const Mode mode : {Mode::kPlan, Mode::kStrict}) {
    SCOPED_TRACE(mode_name(mode));
    RouterOptions options;
    options.affinity.mode = mode;
    Router router(options, 1);
    std::vector<NodeView> fleet = nodes(4);
    fleet[3].state = NodeState::kDead;
    router.update_cluster(std::make_shared<ClusterView>(1, fleet));
    int64_t now = 0;
    std::vector<Hash128> sets;
    const auto ask_all_and_plan = [&] {
      for (int set = 0; set < 200; ++set) {
        now += 10;
        serve(router, key(set, static_cast<int>(now)), at_ms(now));
      }
      now += 10'000;
      router.plan(at_ms(now));
    };
    for (int set = 0; set < 200; ++set) sets.push_back(numbered_set(set));
    ask_all_and_plan();
    fleet[3].state = NodeState::kAlive;
    router.update_cluster(std::make_shared<ClusterView>(2, fleet));
    size_t given = 0;
    for (int tick = 0; tick < 20; ++tick) {
      for (const Hash128& set : router.targets().sets_for(3, "demo", sets)) {
        const Homes* homes = router.table()->find(set, "demo");
        ASSERT_NE(homes, nullptr);
        EXPECT_TRUE(homes->contains(3));
        ++given;
      }
      ask_all_and_plan();
    }
    EXPECT_GT(given, 0u);
  }
}

}  // namespace
}  // namespace troupe::route
