// The machine of a request's way: events in, actions out. No sockets, clocks or threads.

#include "gateway/route/request/request_flow.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <utility>
#include <vector>

namespace troupe::route {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Failure kConnect{FailureKind::kConnect, 0};
constexpr Failure kTransport{FailureKind::kTransport, 0};
constexpr Failure kBody{FailureKind::kBody, 0};
constexpr Failure kSilent{FailureKind::kSilent, 0};
constexpr Failure kFull{FailureKind::kStatus, 429};
constexpr Failure kIll{FailureKind::kStatus, 500};

// Some nodes, and what is reported of them.
class Nodes final : public NodeSignals {
 public:
  void on_event(NodeIndex node, HealthEvent event, TimePoint) override { events.emplace_back(node, event); }
  NodeStatus node_status(NodeIndex node) const override { return statuses[node]; }
  void saw_heartbeat(NodeIndex node) override { statuses[node].heartbeats = true; }
  void probe(NodeIndex node, TimePoint) override { probed.push_back(node); }

  std::vector<std::pair<NodeIndex, HealthEvent>> events;
  std::vector<NodeIndex> probed;
  std::array<NodeStatus, 4> statuses{};
};

class RequestFlowTest : public testing::Test {
 protected:
  RequestFlowTest() {
    for (NodeStatus& node : nodes_.statuses) node.is_troupe_worker = true;
    for (size_t i = 0; i < 4; ++i) {
      NodeView& node = views_.emplace_back();
      node.id = "n" + std::to_string(i);
      node.models = {"m"};
      node.state = NodeState::kAlive;
    }
    update_cluster();
    key_.set = hash_bytes("set");
    key_.prefix_bytes = 800;
    key_.prompt_bytes = 1600;
  }

  void update_cluster() { router_.update_cluster(std::make_shared<ClusterView>(++epoch_, views_)); }
  FlowContext context() { return {router_, budget_, nodes_, stall_}; }
  NodeIndex node() const { return flow_.attempt().candidate.node; }
  int64_t in_flight() const { return router_.loads().in_flight_total(); }
  // Tokens of the set, by which the table is planned.
  double work() {
    const SetLoads loads = router_.planning().own().loads();
    return loads.sets.empty() ? 0 : loads.sets[0].work;
  }

  Action send() {
    flow_.begin(key_, "m", 1);
    EXPECT_EQ(flow_.choose(context(), now_), Action::kAdmit);
    return flow_.admitted(context(), false, now_);
  }
  AnswerProgress unstarted() const { return {}; }
  AnswerProgress started(int64_t tokens = 10) const {
    return {.started = true, .resumable = true, .tokens = tokens};
  }

  RouterOptions options_;
  Router router_{options_, 7};
  RetryOptions retry_;
  RetryBudget budget_{retry_};
  StallOptions stall_;
  Nodes nodes_;
  std::vector<NodeView> views_;
  uint64_t epoch_ = 0;
  PrefixKey key_;
  RequestFlow flow_;
  TimePoint now_{seconds(100)};
};

TEST_F(RequestFlowTest, WithoutARoutableNodeItIsRefused) {
  for (NodeView& node : views_) node.state = NodeState::kDead;
  update_cluster();
  flow_.begin(key_, "m", 1);
  EXPECT_EQ(flow_.choose(context(), now_), Action::kRefuse);
  EXPECT_EQ(flow_.chosen(), nullptr);
}

TEST_F(RequestFlowTest, AfterWaitingItIsChosenAnewAndMayBeRefused) {
  flow_.begin(key_, "m", 1);
  ASSERT_EQ(flow_.choose(context(), now_), Action::kAdmit);
  const NodeIndex first = flow_.decision().order[0].node;
  views_[first].state = NodeState::kDead;
  update_cluster();
  RequestFlow unwaited = flow_;
  EXPECT_EQ(flow_.admitted(context(), true, now_), Action::kSend);
  EXPECT_NE(node(), first) << "died while the request waited";
  flow_.abandoned(context(), now_);
  for (NodeView& view : views_) view.state = NodeState::kDead;
  update_cluster();
  EXPECT_EQ(unwaited.admitted(context(), true, now_), Action::kRefuse);
  EXPECT_EQ(in_flight(), 0);
}

TEST_F(RequestFlowTest, AnAnswerHandsTheBookingBackOnceAndIsReportedToHealth) {
  ASSERT_EQ(send(), Action::kSend);
  EXPECT_EQ(in_flight(), 1);
  flow_.first_byte(context(), true, now_);
  EXPECT_TRUE(nodes_.statuses[node()].heartbeats);
  flow_.answered(context(), AnswerCounts{400, 10, 0, true}, 200, now_);
  EXPECT_EQ(in_flight(), 0);
  EXPECT_EQ(nodes_.events, (std::vector{std::pair(node(), HealthEvent::kAnswered)}));
  flow_.abandoned(context(), now_);  // as a driver's guard does at the end
  EXPECT_EQ(in_flight(), 0);
}

// A driver's guard reports the end once more, and a second correction would take other requests' work away.
TEST_F(RequestFlowTest, NoEndCorrectsTheWorkOfTheSetTwice) {
  send();
  flow_.answered(context(), AnswerCounts{500, 10, 0, true}, 200, now_);
  flow_.abandoned(context(), now_);
  EXPECT_DOUBLE_EQ(work(), 510);
  flow_ = RequestFlow();
  send();
  EXPECT_GT(work(), 510) << "as it is estimated";
  while (flow_.failed(context(), kTransport, true, unstarted(), now_) == Action::kSend) {
  }
  flow_.abandoned(context(), now_);
  EXPECT_DOUBLE_EQ(work(), 510) << "no node has done any";
  flow_ = RequestFlow();
  send();
  flow_.broken(context(), kBody, true, now_);
  flow_.abandoned(context(), now_);
  EXPECT_DOUBLE_EQ(work(), 510);
}

TEST_F(RequestFlowTest, AnAnswerOfTheClientsFaultIsReportedAsRefused) {
  send();
  flow_.answered(context(), std::nullopt, 400, now_);
  EXPECT_EQ(nodes_.events.back().second, HealthEvent::kRefused);
}

TEST_F(RequestFlowTest, AClientThatLeavesHandsTheBookingBackAndBlamesNoNode) {
  send();
  flow_.abandoned(context(), now_);
  EXPECT_EQ(in_flight(), 0);
  EXPECT_TRUE(nodes_.events.empty());
}

TEST_F(RequestFlowTest, BeforeTheFirstByteTheNextOfTheOrderIsAskedAndNoNodeTwice) {
  send();
  std::vector<NodeIndex> asked{node()};
  for (int i = 1; i < retry_.attempts_max; ++i) {
    ASSERT_EQ(flow_.failed(context(), kTransport, true, unstarted(), now_), Action::kSend);
    EXPECT_EQ(std::count(asked.begin(), asked.end(), node()), 0);
    EXPECT_FALSE(flow_.attempt().resumes);
    asked.push_back(node());
    EXPECT_EQ(in_flight(), 1);
  }
  EXPECT_EQ(flow_.failed(context(), kTransport, true, unstarted(), now_), Action::kForward);
  EXPECT_EQ(flow_.attempts(), retry_.attempts_max);
  EXPECT_EQ(in_flight(), 0);
}

TEST_F(RequestFlowTest, ANodeThatTakesNoRequestsAnyMoreIsPassedOver) {
  send();
  const NodeIndex second = flow_.decision().order[1].node;
  views_[second].state = NodeState::kDraining;
  update_cluster();
  ASSERT_EQ(flow_.failed(context(), kConnect, true, unstarted(), now_), Action::kSend);
  EXPECT_NE(node(), second);
}

TEST_F(RequestFlowTest, AtTheOrdersEndNodesThatHaveJoinedAreAsked) {
  for (size_t i = 1; i < 4; ++i) views_[i].state = NodeState::kDead;
  update_cluster();
  send();
  ASSERT_EQ(node(), 0u);
  views_[0].state = NodeState::kDead;
  views_[2].state = NodeState::kAlive;
  update_cluster();
  ASSERT_EQ(flow_.failed(context(), kConnect, true, unstarted(), now_), Action::kSend);
  EXPECT_EQ(node(), 2u);
}

TEST_F(RequestFlowTest, FailuresTeachHealthByTheirKind) {
  const std::vector<std::pair<Failure, std::optional<HealthEvent>>> rows{
      {kConnect, HealthEvent::kConnectError},
      {kTransport, HealthEvent::kTransportError},
      {kBody, HealthEvent::kTransportError},
      {kIll, HealthEvent::kErrored},
      {kFull, std::nullopt},
      {{FailureKind::kStatus, 503}, std::nullopt},
      {{FailureKind::kStatus, 501}, std::nullopt},
      {kSilent, std::nullopt},
      {{FailureKind::kDeadline, 0}, std::nullopt},
      {{FailureKind::kLocal, 0}, std::nullopt}};
  for (const auto& [failure, event] : rows) {
    EXPECT_EQ(health_event_of(failure, true), event) << static_cast<int>(failure.kind);
    const bool broke = failure.kind == FailureKind::kTransport || failure.kind == FailureKind::kBody;
    EXPECT_EQ(health_event_of(failure, false), broke ? std::nullopt : event)
        << "the client held the worker back";
  }
}

TEST_F(RequestFlowTest, AFullFleetAnswersComeBackLaterThoughTheLastNodeIsGone) {
  send();
  const NodeIndex full = node();
  ASSERT_EQ(flow_.failed(context(), kFull, true, unstarted(), now_), Action::kSend);
  ASSERT_EQ(flow_.failed(context(), kConnect, true, unstarted(), now_), Action::kSend);
  EXPECT_EQ(flow_.failed(context(), kConnect, true, unstarted(), now_), Action::kForwardFull);
  EXPECT_EQ(flow_.chosen()->node, full) << "the answer is that node's";
}

TEST_F(RequestFlowTest, AFailureSaysMoreThanAnEarlierFullNode) {
  send();
  ASSERT_EQ(flow_.failed(context(), kFull, true, unstarted(), now_), Action::kSend);
  ASSERT_EQ(flow_.failed(context(), kTransport, true, unstarted(), now_), Action::kSend);
  EXPECT_EQ(flow_.failed(context(), kIll, true, unstarted(), now_), Action::kForward);
}

TEST_F(RequestFlowTest, WhatTheClientMayNotRepeatIsNotSentAgainOnceANodeMayHaveBegun) {
  send();
  AnswerProgress once = unstarted();
  once.resend = false;
  ASSERT_EQ(flow_.failed(context(), kConnect, true, once, now_), Action::kSend) << "it never saw it";
  EXPECT_EQ(flow_.failed(context(), kTransport, true, once, now_), Action::kForward);
}

TEST_F(RequestFlowTest, AfterTheDeadlineNothingIsRetried) {
  send();
  AnswerProgress late = unstarted();
  late.remaining = milliseconds(1);
  EXPECT_EQ(flow_.failed(context(), kConnect, true, late, now_), Action::kForward);
}

TEST_F(RequestFlowTest, AStartedStreamResumesAtAnotherOfOurWorkersWithItsTokensAsPrompt) {
  const PrefixKey unsent = key_;
  for (NodeIndex ours = 0; ours < views_.size(); ++ours) {
    key_ = unsent;
    flow_ = RequestFlow();
    send();
    flow_.first_byte(context(), true, now_);
    const NodeIndex first = node();
    for (NodeIndex i = 0; i < views_.size(); ++i)
      nodes_.statuses[i].is_troupe_worker = i == ours || i == first;
    const int64_t prompt = router_.prompt_tokens(key_);
    const Action action = flow_.failed(context(), kBody, true, started(50), now_);
    EXPECT_EQ(action, ours == first ? Action::kEndBroken : Action::kSend);
    if (action != Action::kSend) continue;
    EXPECT_TRUE(flow_.attempt().resumes);
    EXPECT_EQ(node(), ours) << "others cannot resume";
    EXPECT_EQ(key_.prompt_tokens, prompt + 50);
    flow_.abandoned(context(), now_);
  }
}

TEST_F(RequestFlowTest, ASecondResumeCountsTheClientsTokensOnce) {
  key_.prompt_tokens = 400;  // known, as in a simulation
  send();
  flow_.first_byte(context(), true, now_);
  ASSERT_EQ(flow_.failed(context(), kBody, true, started(50), now_), Action::kSend);
  flow_.first_byte(context(), true, now_);
  ASSERT_EQ(flow_.failed(context(), kBody, true, started(80), now_), Action::kSend);
  EXPECT_EQ(key_.prompt_tokens, 480);
}

TEST_F(RequestFlowTest, AStartedAnswerThatCannotResumeEndsBroken) {
  send();
  flow_.first_byte(context(), false, now_);
  AnswerProgress progress = started();
  progress.resumable = false;
  EXPECT_EQ(flow_.failed(context(), kBody, true, progress, now_), Action::kEndBroken);
  EXPECT_EQ(in_flight(), 0);
}

TEST_F(RequestFlowTest, AStreamThatWasCarriedOnForLongForgetsEarlierFailures) {
  send();
  for (int i = 0; i < 5; ++i) {
    flow_.first_byte(context(), true, now_);
    now_ += retry_.afresh_after;
    ASSERT_EQ(flow_.failed(context(), kBody, true, started(), now_), Action::kSend) << i;
  }
  flow_.first_byte(context(), true, now_);
  int more = 0;
  while (flow_.failed(context(), kBody, true, started(), now_) == Action::kSend) more += 1;
  EXPECT_LT(more, retry_.attempts_max) << "failures in quick succession count";
}

TEST_F(RequestFlowTest, AnEmptyBudgetEndsRetriesThatMayCostTwice) {
  RetryOptions none = retry_;
  none.budget_start = none.budget_ratio = none.budget_per_s = 0;
  budget_ = RetryBudget(none);
  send();
  EXPECT_EQ(flow_.failed(context(), kTransport, true, unstarted(), now_), Action::kForward);
  EXPECT_EQ(budget_.refused(), 1u);
}

TEST_F(RequestFlowTest, EveryAdmittedRequestEarnsForTheBudget) {
  RetryOptions earned = retry_;
  earned.budget_start = earned.budget_per_s = 0;
  earned.budget_ratio = 0.5;
  budget_ = RetryBudget(earned);
  send();
  EXPECT_EQ(flow_.failed(context(), kTransport, true, unstarted(), now_), Action::kForward);
  flow_ = RequestFlow();
  send();
  EXPECT_EQ(flow_.failed(context(), kTransport, true, unstarted(), now_), Action::kSend) << "the second half";
}

TEST_F(RequestFlowTest, ASilentStreamWithHeartbeatsIsGivenUpForAnotherNode) {
  send();
  flow_.first_byte(context(), true, now_);
  const NodeIndex first = node();
  const RequestFlow::SilentFacts facts{.heartbeats_asked = true, .heartbeats_seen = true, .bytes = 9};
  ASSERT_TRUE(flow_.silent(context(), facts, started(), now_));
  EXPECT_EQ(nodes_.events, (std::vector{std::pair(first, HealthEvent::kSilent)}));
  ASSERT_EQ(flow_.failed(context(), kSilent, true, started(), now_), Action::kSend);
  EXPECT_NE(node(), first);
  EXPECT_EQ(in_flight(), 1);
}

TEST_F(RequestFlowTest, ASilentStreamIsWaitedForWhereNoOtherNodeCanGoOn) {
  for (size_t i = 1; i < 4; ++i) views_[i].state = NodeState::kDead;
  update_cluster();
  send();
  flow_.first_byte(context(), true, now_);
  const RequestFlow::SilentFacts facts{.heartbeats_asked = true, .heartbeats_seen = true, .bytes = 9};
  EXPECT_FALSE(flow_.silent(context(), facts, started(), now_));
  EXPECT_EQ(in_flight(), 1);
}

TEST_F(RequestFlowTest, BeforeItsHeadASilentNodeIsProbedAndGivenUpOnceProbesAgree) {
  send();
  nodes_.statuses[node()].heartbeats = true;
  const RequestFlow::SilentFacts facts{.heartbeats_asked = true, .heartbeats_seen = false, .bytes = 0};
  EXPECT_FALSE(flow_.silent(context(), facts, unstarted(), now_));
  EXPECT_EQ(nodes_.probed, std::vector{node()});
  nodes_.statuses[node()].suspect = true;
  EXPECT_TRUE(flow_.silent(context(), facts, unstarted(), now_));
}

// It may be so full that a first token takes minutes.
TEST_F(RequestFlowTest, AForeignNodeIsWaitedForWhileItsProbesAreAnswered) {
  stall_.foreign_silence_max = seconds(3);
  send();
  nodes_.statuses[node()] = {.is_troupe_worker = false};
  EXPECT_EQ(silence_timeout(stall_, false), seconds(1));
  const RequestFlow::SilentFacts facts{};
  for (int second = 1; second < 3; ++second) {
    EXPECT_FALSE(flow_.silent(context(), facts, unstarted(), now_));
    EXPECT_TRUE(nodes_.probed.empty());
  }
  for (int second = 3; second < 100; ++second)
    EXPECT_FALSE(flow_.silent(context(), facts, unstarted(), now_));
  EXPECT_FALSE(nodes_.probed.empty()) << "it is asked after";
  nodes_.statuses[node()].suspect = true;
  EXPECT_TRUE(flow_.silent(context(), facts, unstarted(), now_));
}

TEST_F(RequestFlowTest, AForeignNodeIsGivenUpAsSoonAsProbesHaveFoundItDead) {
  send();
  nodes_.statuses[node()] = {.is_troupe_worker = false, .suspect = true};
  EXPECT_FALSE(flow_.silent(context(), {}, unstarted(), now_)) << "one probe has failed";
  nodes_.statuses[node()].dead = true;
  EXPECT_TRUE(flow_.silent(context(), {}, unstarted(), now_)) << "long before a minute";
}

constexpr Failure kUnauthorized{FailureKind::kStatus, 401, true};

TEST_F(RequestFlowTest, WhatAForeignNodeRefusesAloneGoesToTheNextWhoseAnswerBlamesIt) {
  send();
  const NodeIndex first = node();
  ASSERT_EQ(flow_.failed(context(), kUnauthorized, true, {.resend = false}, now_), Action::kSend)
      << "it has done nothing for it";
  EXPECT_TRUE(nodes_.events.empty()) << "it may be right";
  flow_.first_byte(context(), false, now_);
  EXPECT_EQ(nodes_.events, (std::vector{std::pair(first, HealthEvent::kErrored)}));
  flow_.first_byte(context(), false, now_);  // of another node that goes on
  EXPECT_EQ(nodes_.events.size(), 1u) << "once";
}

TEST_F(RequestFlowTest, ANodeIsBlamedForAMissingModelAndNotForAMissingPath) {
  for (const bool any_path : {false, true}) {
    nodes_.events.clear();
    flow_ = RequestFlow();
    send();
    Failure missing{FailureKind::kStatus, 404, true, true};
    missing.any_path = any_path;
    ASSERT_EQ(flow_.failed(context(), missing, true, unstarted(), now_), Action::kSend);
    flow_.first_byte(context(), false, now_);
    EXPECT_EQ(nodes_.events.size(), any_path ? 0u : 1u);
    flow_.abandoned(context(), now_);
  }
}

TEST_F(RequestFlowTest, ANodeThatRefusesTheClientsOwnKeyIsNotBlamed) {
  send();
  ASSERT_EQ(flow_.failed(context(), {FailureKind::kStatus, 401, true, true}, true, unstarted(), now_),
            Action::kSend);
  flow_.first_byte(context(), false, now_);
  EXPECT_TRUE(nodes_.events.empty());
}

TEST_F(RequestFlowTest, AFullNodesAnswerIsTruerThanAnothersRefusal) {
  send();
  ASSERT_EQ(flow_.failed(context(), {FailureKind::kStatus, 429, true}, true, unstarted(), now_),
            Action::kSend);
  Action action = Action::kSend;
  for (int i = 0; i < 4 && action == Action::kSend; ++i)
    action = flow_.failed(context(), kUnauthorized, true, unstarted(), now_);
  EXPECT_EQ(action, Action::kForwardFull);
}

TEST_F(RequestFlowTest, WhatAllForeignNodesRefuseIsTheAnswerAndNobodysFault) {
  send();
  Action action = Action::kSend;
  for (int i = 0; i < 4 && action == Action::kSend; ++i)
    action = flow_.failed(context(), kUnauthorized, true, unstarted(), now_);
  EXPECT_EQ(action, Action::kForward);
  EXPECT_TRUE(nodes_.events.empty());
}

TEST_F(RequestFlowTest, OfOursTheSameStatusIsTheAnswer) {
  send();
  EXPECT_EQ(flow_.failed(context(), {FailureKind::kStatus, 401}, true, unstarted(), now_), Action::kForward);
}

TEST_F(RequestFlowTest, ANodeThatAsksForAPauseIsAskedLastForAsLong) {
  send();
  const NodeIndex full = node();
  Failure asks{FailureKind::kStatus, 429, true};
  asks.retry_after = seconds(20);
  ASSERT_EQ(flow_.failed(context(), asks, true, unstarted(), now_), Action::kSend);
  flow_.abandoned(context(), now_);
  const auto is_last = [&] {
    RequestFlow next;
    next.begin(key_, "m", 1);
    EXPECT_EQ(next.choose(context(), now_), Action::kAdmit);
    const auto order = next.decision().order.all();
    EXPECT_EQ(order.size(), 4u);
    return order.back().node == full;
  };
  for (int i = 0; i < 19; ++i, now_ += seconds(1)) EXPECT_TRUE(is_last());
  now_ += seconds(2);
  EXPECT_FALSE(nodes_.in_backoff(full, now_));
  EXPECT_FALSE(is_last()) << "it has the set";
}

TEST_F(RequestFlowTest, ANodeThatAsksForAnHoursPauseIsLeftAloneForAMinute) {
  send();
  const NodeIndex full = node();
  Failure asks{FailureKind::kStatus, 429, true};
  asks.retry_after = std::chrono::hours(1);
  ASSERT_EQ(flow_.failed(context(), asks, true, unstarted(), now_), Action::kSend);
  EXPECT_TRUE(nodes_.in_backoff(full, now_ + seconds(59)));
  EXPECT_FALSE(nodes_.in_backoff(full, now_ + seconds(60)));
}

TEST_F(RequestFlowTest, AForeignAnswerThatStallsForLongIsGivenUpThoughNoneCanGoOn) {
  stall_.foreign_silence_max = Duration::zero();
  send();
  nodes_.statuses[node()].is_troupe_worker = false;
  flow_.first_byte(context(), false, now_);
  AnswerProgress progress = started();
  progress.resumable = false;
  const RequestFlow::SilentFacts facts{.heartbeats_asked = false, .heartbeats_seen = false, .bytes = 7};
  bool given_up = false;
  const Duration look = silence_timeout(stall_, false);
  for (Duration silent{}; silent < stall_.foreign_stall_max; silent += look) {
    EXPECT_FALSE(given_up) << "before its time";
    given_up = flow_.silent(context(), facts, progress, now_);
  }
  EXPECT_TRUE(given_up);
  EXPECT_EQ(flow_.failed(context(), kSilent, true, progress, now_), Action::kEndBroken);
}

TEST_F(RequestFlowTest, ForeignSilenceIsAddedUpOnlyWhileNoBytesCome) {
  stall_.foreign_stall_max = seconds(3);
  send();
  nodes_.statuses[node()].is_troupe_worker = false;
  flow_.first_byte(context(), false, now_);
  AnswerProgress progress = started();
  progress.resumable = false;
  const auto after = [&](size_t bytes) { return flow_.silent(context(), {.bytes = bytes}, progress, now_); };
  EXPECT_FALSE(after(5));
  EXPECT_FALSE(after(5));
  EXPECT_FALSE(after(6)) << "more has come";
  EXPECT_FALSE(after(6));
  EXPECT_TRUE(after(6)) << "three seconds";
}

TEST_F(RequestFlowTest, AStalledAttemptsSilenceIsNotTheNextOnes) {
  stall_.foreign_stall_max = seconds(2);
  for (NodeStatus& node : nodes_.statuses) node.is_troupe_worker = false;
  send();
  const RequestFlow::SilentFacts whole{};
  EXPECT_FALSE(flow_.silent(context(), whole, unstarted(), now_));
  ASSERT_EQ(flow_.failed(context(), kTransport, true, unstarted(), now_), Action::kSend);
  flow_.first_byte(context(), false, now_);
  EXPECT_FALSE(flow_.silent(context(), whole, unstarted(), now_)) << "only a second of this attempt";
}

TEST_F(RequestFlowTest, ItsDriversMistakesEndTheProgram) {
  EXPECT_DEATH(flow_.choose(context(), now_), "begins before nodes are chosen");
  EXPECT_DEATH(flow_.first_byte(context(), false, now_), "nothing was sent");
  EXPECT_DEATH(flow_.silent(context(), {}, unstarted(), now_), "nothing was sent");
  EXPECT_DEATH(flow_.failed(context(), kConnect, true, unstarted(), now_), "nothing was sent");
  EXPECT_DEATH(flow_.answered(context(), std::nullopt, 200, now_), "nothing was sent");
  EXPECT_DEATH(flow_.broken(context(), kBody, true, now_), "nothing was sent");
  flow_.begin(key_, "no such model", 1);
  EXPECT_EQ(flow_.choose(context(), now_), Action::kRefuse);
  EXPECT_DEATH(flow_.admitted(context(), false, now_), "not chosen");
  send();
  EXPECT_DEATH(flow_.send_to(context(), *flow_.chosen(), false, now_), "another is under way");
}

TEST_F(RequestFlowTest, AdmissionIsAskedForWhatTheFirstCandidateHasToCompute) {
  key_.prompt_tokens = 1000;
  flow_.begin(key_, "m", 2);
  flow_.choose(context(), now_);
  AdmissionSpec spec;
  spec.pool = "m";
  spec.answers = 2;
  spec.answer_tokens_max = 30;
  const AdmissionRequest request = admission_request(router_, key_, flow_.decision(), spec);
  EXPECT_EQ(request.tokens, 1000 + 2 * 30) << "nothing is cached";
  EXPECT_EQ(request.persona, key_.set);
  EXPECT_EQ(request.answers, 2);
  EXPECT_EQ(admission_cost({1000, 60, 400, true}), 660);
}

}  // namespace
}  // namespace troupe::route
