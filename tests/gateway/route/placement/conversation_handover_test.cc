#include "gateway/route/placement/conversation_handover.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/gateway/route/cluster.h"

namespace troupe::route {
namespace conversation_handover_test {

using namespace testing_cluster;

constexpr NodeIndex kNode = 1;

// Node 1 leaves at 0 s with two sets and has until 20 s.
class ConversationHandoverTest : public testing::Test {
 protected:
  ConversationHandoverTest() {
    const Hash128 sets[] = {numbered_set(1), numbered_set(2)};
    handover_.leave(kNode, sets, at_ms(20'000));
    moves_ = std::make_unique<ConversationHandover>(handover_, kNode, at_ms(0), at_ms(20'000));
  }
  std::vector<size_t> all_next(int64_t ms) {
    std::vector<size_t> all;
    while (const auto next = moves_->next(at_ms(ms))) all.push_back(*next);
    return all;
  }
  bool released() const { return !handover_.held(kNode); }

  Handover handover_;
  std::unique_ptr<ConversationHandover> moves_;
};

TEST_F(ConversationHandoverTest, SetsAreHeldUntilTheListHasComeAndIsCarried) {
  EXPECT_FALSE(released());
  EXPECT_FALSE(moves_->next(at_ms(1)).has_value()) << "nothing is known yet";
  EXPECT_FALSE(released());
  moves_->listed(1, at_ms(2));
  EXPECT_EQ(moves_->next(at_ms(2)), size_t{0});
  EXPECT_FALSE(moves_->next(at_ms(3)).has_value());
  EXPECT_FALSE(moves_->over());
  EXPECT_FALSE(handover_.next().has_value());
  moves_->carried(at_ms(4));
  EXPECT_TRUE(moves_->over());
  EXPECT_TRUE(released());
  EXPECT_TRUE(handover_.next().has_value()) << "now its sets move";
}

TEST_F(ConversationHandoverTest, NodeWithoutConversationsReleasesItsSetsAtOnce) {
  moves_->listed(0, at_ms(1));
  EXPECT_TRUE(moves_->over());
  EXPECT_TRUE(released());
}

TEST_F(ConversationHandoverTest, FourAtOnceInTheOrderOfTheList) {
  moves_->listed(6, at_ms(1));
  EXPECT_EQ(all_next(1), (std::vector<size_t>{0, 1, 2, 3}));
  moves_->carried(at_ms(2));
  EXPECT_EQ(all_next(2), std::vector<size_t>{4});
  moves_->carried(at_ms(3));
  moves_->carried(at_ms(3));
  EXPECT_EQ(all_next(3), std::vector<size_t>{5});
  for (int i = 0; i < 2; ++i) moves_->carried(at_ms(4));
  EXPECT_FALSE(released());
  moves_->carried(at_ms(4));
  EXPECT_TRUE(released());
}

TEST_F(ConversationHandoverTest, HalfOfTheTimeIsTheirs) {
  EXPECT_EQ(moves_->until(), at_ms(10'000));
  moves_->listed(9, at_ms(1));
  EXPECT_EQ(all_next(9'999).size(), 4u);
  moves_->carried(at_ms(10'000));
  EXPECT_FALSE(moves_->next(at_ms(10'000)).has_value()) << "none begins any more";
  EXPECT_FALSE(released()) << "those under way go on";
  for (int i = 0; i < 3; ++i) moves_->carried(at_ms(10'001));
  EXPECT_TRUE(moves_->over());
  EXPECT_TRUE(released());
}

TEST_F(ConversationHandoverTest, TimeThatPassesWithNothingUnderWayEndsIt) {
  moves_->listed(9, at_ms(1));
  EXPECT_FALSE(moves_->over());
  EXPECT_FALSE(moves_->next(at_ms(10'000)).has_value());
  EXPECT_TRUE(moves_->over());
  EXPECT_TRUE(released());
}

TEST_F(ConversationHandoverTest, DriverThatGivesUpReleasesTheSets) {
  moves_->listed(9, at_ms(1));
  all_next(1);
  moves_.reset();
  EXPECT_TRUE(released());
}

TEST_F(ConversationHandoverTest, EndOfAnOverOneReleasesNoLaterHold) {
  moves_->listed(0, at_ms(1));
  ConversationHandover later(handover_, kNode, at_ms(2), at_ms(20'000));
  moves_.reset();
  EXPECT_FALSE(released());
}

}  // namespace conversation_handover_test
}  // namespace troupe::route
