// Nodes of one model with contexts of different lengths: who is asked after one has refused a request for its
// length, and which refusal the client gets.

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <vector>

#include "gateway/route/request/request_flow.h"

namespace troupe::route {
namespace length_test {

Failure too_long(int64_t told = 0, int status = 400) {
  Failure failure{FailureKind::kStatus, status};
  failure.too_long = true;
  failure.context_max = told;
  return failure;
}

class Nodes final : public NodeSignals {
 public:
  void on_event(NodeIndex node, HealthEvent event, TimePoint) override { events.emplace_back(node, event); }
  NodeStatus node_status(NodeIndex) const override {
    NodeStatus status;
    status.is_troupe_worker = true;
    return status;
  }
  void saw_heartbeat(NodeIndex) override {}
  void probe(NodeIndex, TimePoint) override {}
  std::vector<std::pair<NodeIndex, HealthEvent>> events;
};

class LengthTest : public testing::Test {
 protected:
  // As the nodes tell their contexts; 0: they do not.
  void update_cluster(const std::vector<int64_t>& contexts) {
    std::vector<NodeView> nodes(contexts.size());
    for (size_t i = 0; i < nodes.size(); ++i) {
      nodes[i].id = "n" + std::to_string(i);
      nodes[i].state = NodeState::kAlive;
      nodes[i].models = {"m"};
      nodes[i].contexts = {contexts[i]};
    }
    router_.update_cluster(std::make_shared<ClusterView>(++epoch_, std::move(nodes)));
  }
  FlowContext context() { return {router_, budget_, nodes_, stall_}; }
  NodeIndex node() const { return flow_.attempt().candidate.node; }
  // Sends a short request, as far as anybody knows, to `first`.
  void send(NodeIndex first) {
    key_.set = hash_bytes("set");
    key_.prompt_bytes = 800;
    for (int i = 0; i < 1000; ++i) {
      flow_ = RequestFlow();
      flow_.begin(key_, "m", 1);
      ASSERT_EQ(flow_.choose(context(), now_), Action::kAdmit);
      if (flow_.decision().order[0].node == first) break;
      key_.set = hash_bytes("set" + std::to_string(i));
    }
    ASSERT_EQ(flow_.admitted(context(), false, now_), Action::kSend);
    ASSERT_EQ(node(), first);
  }
  Action refuse(const Failure& failure) {
    AnswerProgress progress;
    progress.resend = false;  // nobody has begun
    return flow_.failed(context(), failure, true, progress, now_);
  }

  RouterOptions options_;
  Router router_{options_, 7};
  RetryOptions retry_;
  RetryBudget budget_{retry_};
  StallOptions stall_;
  Nodes nodes_;
  uint64_t epoch_ = 0;
  PrefixKey key_;
  RequestFlow flow_;
  TimePoint now_{std::chrono::seconds(100)};
};

TEST_F(LengthTest, ARefusalForLengthGoesToALongerNodeAndIsNoFault) {
  update_cluster({4096, 4096, 32'768, 4096});
  send(0);
  ASSERT_EQ(refuse(too_long(4096)), Action::kSend);
  EXPECT_EQ(node(), 2u) << "the others are as short";
  EXPECT_EQ(nodes_.events, (std::vector{std::pair(NodeIndex{0}, HealthEvent::kRefused)}))
      << "it has answered: its standing is as good as before";
  EXPECT_EQ(router_.loads().in_flight_total(), 1);
}

TEST_F(LengthTest, OnlyWhereNoneIsLongerItIsTheClientsAnswer) {
  update_cluster({4096, 32'768, 32'768});
  send(0);
  ASSERT_EQ(refuse(too_long()), Action::kSend);
  EXPECT_NE(node(), 0u);
  EXPECT_EQ(refuse(too_long(32'768)), Action::kForward) << "the third is as long as the second";
  EXPECT_EQ(flow_.attempts(), 2);
  EXPECT_EQ(router_.loads().in_flight_total(), 0);
}

TEST_F(LengthTest, AllAlikeRefuseOnce) {
  update_cluster({4096, 4096, 4096});
  send(1);
  EXPECT_EQ(refuse(too_long(4096)), Action::kForward);
  EXPECT_EQ(flow_.attempts(), 1);
}

TEST_F(LengthTest, NodeThatReportsNoContextMayBeLonger) {
  update_cluster({4096, 0});
  send(0);
  ASSERT_EQ(refuse(too_long(4096)), Action::kSend);
  EXPECT_EQ(node(), 1u);
}

TEST_F(LengthTest, NodeKnownToBeLongerIsAskedBeforeThoseWithoutAReport) {
  for (NodeIndex first = 1; first < 6; ++first) {
    update_cluster({65'536, 0, 0, 0, 0, 0});
    send(first);
    ASSERT_EQ(refuse(too_long(4096)), Action::kSend);
    EXPECT_EQ(node(), 0u);
  }
}

TEST_F(LengthTest, ARefusalByAKnownLengthIsNoAttemptThatCounts) {
  const std::vector<int64_t> contexts{1000, 2000, 3000, 4000, 5000, 6000, 7000};
  ASSERT_GT(static_cast<int>(contexts.size()), retry_.attempts_max);
  update_cluster(contexts);
  send(0);
  NodeIndex last = 0;
  while (refuse(too_long()) == Action::kSend) {
    ASSERT_GT(node(), last) << "a shorter one";
    last = node();
  }
  EXPECT_EQ(last, 6u) << "only the longest one's refusal is the answer";
}

TEST_F(LengthTest, NodesWithoutAReportAreAskedAsOftenAsOthers) {
  update_cluster(std::vector<int64_t>(20, 0));
  send(3);
  int sent = 1;
  while (refuse(too_long()) == Action::kSend) sent += 1;
  EXPECT_EQ(sent, retry_.attempts_max);
}

TEST_F(LengthTest, ALongerNodeIsFoundThoughTheOrderHadNone) {
  std::vector<int64_t> contexts(200, 4096);
  update_cluster(contexts);
  send(5);
  NodeIndex other = 0;
  while (flow_.decision().order.contains(other)) other += 1;
  contexts[other] = 65'536;
  update_cluster(contexts);
  ASSERT_EQ(refuse(too_long(4096)), Action::kSend);
  EXPECT_EQ(node(), other);
}

TEST_F(LengthTest, TheLongestOnesRefusalIsTheAnswerThoughAShorterOneWasAskedLast) {
  update_cluster({8192, 0});
  send(0);
  ASSERT_EQ(refuse(too_long(8192)), Action::kSend);
  EXPECT_EQ(flow_.longest_refusal(), 1);
  EXPECT_EQ(refuse(too_long(2048)), Action::kForwardLongest);
  EXPECT_EQ(flow_.chosen()->node, 0u);
}

TEST_F(LengthTest, ALongerNodesOtherFaultsArePassedOn) {
  update_cluster({4096, 32'768});
  for (const Failure failure : {Failure{FailureKind::kStatus, 429}, Failure{FailureKind::kConnect},
                                Failure{FailureKind::kStatus, 500}}) {
    key_ = PrefixKey();
    send(0);
    ASSERT_EQ(refuse(too_long(4096)), Action::kSend);
    EXPECT_EQ(refuse(failure), Action::kForward) << "come back later: it may fit then";
  }
  key_ = PrefixKey();
  send(0);
  ASSERT_EQ(refuse(too_long(4096)), Action::kSend);
  EXPECT_EQ(refuse({FailureKind::kStatus, 401, true}), Action::kForwardLongest)
      << "which says more than a wrong key";
}

TEST_F(LengthTest, AFullNodeThatHasTheRoomIsTruerThanAShortOnesRefusal) {
  update_cluster({4096, 32'768});
  send(1);
  ASSERT_EQ(refuse({FailureKind::kStatus, 429}), Action::kSend);
  EXPECT_EQ(refuse(too_long(4096)), Action::kForwardFull);
  update_cluster({4096, 32'768});
  key_ = PrefixKey();
  send(0);
  ASSERT_EQ(refuse({FailureKind::kStatus, 429}), Action::kSend);
  EXPECT_EQ(refuse(too_long(32'768)), Action::kForward) << "the full one is short";
}

TEST_F(LengthTest, AStartedStreamGoesOnWhereItsTokensFit) {
  update_cluster({32'768, 4096, 65'536});
  send(0);
  flow_.first_byte(context(), true, now_);
  const AnswerProgress progress{.started = true, .resumable = true, .tokens = 10};
  ASSERT_EQ(flow_.failed(context(), {FailureKind::kBody}, true, progress, now_), Action::kSend);
  if (node() == 1) {
    ASSERT_EQ(flow_.failed(context(), too_long(4096), true, progress, now_), Action::kSend);
    EXPECT_TRUE(flow_.attempt().resumes);
  }
  EXPECT_EQ(node(), 2u);
}

TEST_F(LengthTest, AnInternalErrorThatIsOneOfLengthIsNoFailure) {
  EXPECT_FALSE(node_failed(too_long(4096, 500)));
  EXPECT_EQ(health_event_of(too_long(4096, 500), true), HealthEvent::kRefused);
  EXPECT_FALSE(may_have_begun(too_long(4096, 500)));
}

}  // namespace length_test
}  // namespace troupe::route
