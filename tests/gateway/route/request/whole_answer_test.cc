// A whole answer to a request for a stream, on the request's way.

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "gateway/route/request/request_flow.h"

namespace troupe::route {
namespace {

Failure whole() {
  Failure failure{FailureKind::kStatus, 200, true};
  failure.answered_whole = true;
  return failure;
}

class Signals final : public NodeSignals {
 public:
  void on_event(NodeIndex node, HealthEvent event, TimePoint) override { events.emplace_back(node, event); }
  NodeStatus node_status(NodeIndex) const override { return {}; }
  void saw_heartbeat(NodeIndex) override {}
  void probe(NodeIndex, TimePoint) override {}
  std::vector<std::pair<NodeIndex, HealthEvent>> events;
};

class WholeAnswer : public testing::Test {
 protected:
  WholeAnswer() {
    std::vector<NodeView> views(3);
    for (size_t i = 0; i < views.size(); ++i) {
      views[i].id = "n" + std::to_string(i);
      views[i].models = {"m"};
      views[i].state = NodeState::kAlive;
    }
    router_.update_cluster(std::make_shared<ClusterView>(1, views));
    key_.set = hash_bytes("set");
    key_.prefix_bytes = 800;
    key_.prompt_bytes = 1600;
    flow_.begin(key_, "m", 1);
    EXPECT_EQ(flow_.choose(context(), now_), Action::kAdmit);
    EXPECT_EQ(flow_.admitted(context(), false, now_), Action::kSend);
  }
  FlowContext context() { return {router_, budget_, signals_, stall_}; }
  Action fail(const Failure& failure, bool resend = true) {
    AnswerProgress progress;
    progress.resend = resend;
    return flow_.failed(context(), failure, true, progress, now_);
  }
  NodeIndex node() const { return flow_.attempt().candidate.node; }

  TimePoint now_{std::chrono::seconds(1)};
  Router router_{RouterOptions{}, 7};
  RetryBudget budget_{RetryOptions{}};
  Signals signals_;
  StallOptions stall_;
  PrefixKey key_;
  RequestFlow flow_;
};

TEST_F(WholeAnswer, IsTheAnswerWhereNoNodeStreamsAndBlamesNone) {
  EXPECT_EQ(fail(whole()), Action::kSend);
  EXPECT_EQ(fail(whole()), Action::kSend);
  const NodeIndex last = node();
  EXPECT_EQ(fail(whole()), Action::kForwardWhole);
  EXPECT_EQ(flow_.chosen()->node, last);
  EXPECT_TRUE(signals_.events.empty());
  flow_.answered(context(), std::nullopt, 200, now_);
  ASSERT_EQ(signals_.events.size(), 1u);
  EXPECT_EQ(signals_.events[0], std::pair(last, HealthEvent::kAnswered));
}

TEST_F(WholeAnswer, IsTruerThanWhateverFailsAfterIt) {
  const NodeIndex answered = node();
  EXPECT_EQ(fail(whole()), Action::kSend);
  EXPECT_EQ(fail({FailureKind::kStatus, 429, true}), Action::kSend);
  EXPECT_EQ(fail({FailureKind::kStatus, 500, true}), Action::kForwardWhole);
  EXPECT_EQ(flow_.chosen()->node, answered);
}

TEST_F(WholeAnswer, IsTheAnswerThoughTimeIsOver) {
  EXPECT_EQ(fail(whole()), Action::kSend);
  EXPECT_EQ(fail({FailureKind::kDeadline, 0}), Action::kForwardWhole);
}

// It was computed: another one is a second time.
TEST_F(WholeAnswer, IsTheAnswerOfARequestThatMayNotBeSentTwice) {
  EXPECT_EQ(fail(whole(), false), Action::kForwardWhole);
}

TEST_F(WholeAnswer, IsItsNodesFaultOnceAnotherStreams) {
  const NodeIndex answered = node();
  EXPECT_EQ(fail(whole()), Action::kSend);
  flow_.first_byte(context(), false, now_);
  ASSERT_EQ(signals_.events.size(), 1u);
  EXPECT_EQ(signals_.events[0], std::pair(answered, HealthEvent::kErrored));
  flow_.abandoned(context(), now_);
}

}  // namespace
}  // namespace troupe::route
