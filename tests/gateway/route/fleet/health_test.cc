#include "gateway/route/fleet/health.h"

#include <gtest/gtest.h>

#include "common/core/random.h"

namespace troupe::route {
namespace health_test {

TimePoint at(int seconds) {
  return TimePoint(std::chrono::seconds(seconds));
}

TEST(Health, GoodProbeMakesANewNodeAlive) {
  NodeHealth health;
  EXPECT_EQ(health.state(), NodeState::kUnknown);
  EXPECT_TRUE(health.on_event(HealthEvent::kProbeOk, at(1)));
  EXPECT_EQ(health.state(), NodeState::kAlive);
  EXPECT_EQ(health.since(), at(1));
  EXPECT_FALSE(health.on_event(HealthEvent::kProbeOk, at(2)));
  EXPECT_EQ(health.since(), at(1));
}

TEST(Health, NewNodeThatDoesNotAnswerIsDeadAtOnce) {
  NodeHealth health;
  health.on_event(HealthEvent::kProbeFail, at(1));
  EXPECT_EQ(health.state(), NodeState::kDead);
}

TEST(Health, OneFailureMakesASuspectAndThreeInARowADeadNode) {
  NodeHealth health;
  health.on_event(HealthEvent::kProbeOk, at(0));
  EXPECT_TRUE(health.on_event(HealthEvent::kConnectError, at(1)));
  EXPECT_EQ(health.state(), NodeState::kSuspect);
  EXPECT_TRUE(health.wants_probe());
  EXPECT_FALSE(health.on_event(HealthEvent::kTransportError, at(2)));
  EXPECT_TRUE(health.on_event(HealthEvent::kProbeFail, at(3)));
  EXPECT_EQ(health.state(), NodeState::kDead);
  EXPECT_FALSE(health.wants_probe());
}

TEST(Health, SilenceMakesASuspectAndOnlyProbesDeclareDeath) {
  NodeHealth health;
  health.on_event(HealthEvent::kProbeOk, at(0));
  EXPECT_TRUE(health.on_event(HealthEvent::kSilent, at(1)));
  EXPECT_TRUE(health.wants_probe());
  for (int stream = 0; stream < 100; ++stream) EXPECT_FALSE(health.on_event(HealthEvent::kSilent, at(1)));
  EXPECT_EQ(health.state(), NodeState::kSuspect);
  health.on_event(HealthEvent::kProbeOk, at(2));
  EXPECT_EQ(health.state(), NodeState::kAlive);
  health.on_event(HealthEvent::kSilent, at(3));
  for (int i = 0; i < HealthOptions{}.dead_after; ++i) health.on_event(HealthEvent::kProbeFail, at(4));
  EXPECT_EQ(health.state(), NodeState::kDead);
}

TEST(Health, GoodProbeClearsSuspicion) {
  NodeHealth health;
  health.on_event(HealthEvent::kProbeOk, at(0));
  for (int round = 0; round < 10; ++round) {
    health.on_event(HealthEvent::kProbeFail, at(round));
    health.on_event(HealthEvent::kProbeFail, at(round));
    EXPECT_EQ(health.state(), NodeState::kSuspect);
    health.on_event(HealthEvent::kProbeOk, at(round));
    EXPECT_EQ(health.state(), NodeState::kAlive);
  }
}

TEST(Health, NodeThatOnlyFailsIsSuspectDespiteGoodProbes) {
  NodeHealth health;
  health.on_event(HealthEvent::kProbeOk, at(0));
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(health.on_event(HealthEvent::kErrored, at(1)));
  EXPECT_FALSE(health.on_event(HealthEvent::kAnswered, at(1)));
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(health.on_event(HealthEvent::kErrored, at(1)));
  EXPECT_FALSE(health.on_event(HealthEvent::kRefused, at(1))) << "it answers, and proves nothing";
  EXPECT_TRUE(health.on_event(HealthEvent::kErrored, at(1)));
  EXPECT_EQ(health.state(), NodeState::kSuspect);
  EXPECT_TRUE(health.failing());
  EXPECT_FALSE(health.wants_probe()) << "probes cannot tell";
  EXPECT_FALSE(health.on_event(HealthEvent::kProbeOk, at(5)));
  EXPECT_FALSE(health.on_event(HealthEvent::kRefused, at(5)));
  EXPECT_TRUE(health.on_event(HealthEvent::kAnswered, at(6)));
  EXPECT_EQ(health.state(), NodeState::kAlive);
  EXPECT_FALSE(health.failing());
}

TEST(Health, FailedTrialLengthensTheNextPause) {
  HealthOptions options;
  options.errors_for = std::chrono::seconds(10);
  options.errors_for_max = std::chrono::seconds(35);
  NodeHealth health(options);
  health.on_event(HealthEvent::kProbeOk, at(0));
  for (int i = 0; i < options.errors_max; ++i) health.on_event(HealthEvent::kErrored, at(0));
  int now = 0;
  for (const int pause : {10, 20, 35, 35}) {
    EXPECT_FALSE(health.on_event(HealthEvent::kProbeOk, at(now + pause - 1))) << pause;
    EXPECT_TRUE(health.on_event(HealthEvent::kProbeOk, at(now + pause))) << pause;
    EXPECT_EQ(health.state(), NodeState::kAlive);
    now += pause + 3;
    EXPECT_TRUE(health.on_event(HealthEvent::kErrored, at(now))) << "one more is enough";
  }
  health.on_event(HealthEvent::kAnswered, at(now));
  for (int i = 1; i < options.errors_max; ++i) EXPECT_FALSE(health.on_event(HealthEvent::kErrored, at(now)));
  EXPECT_TRUE(health.on_event(HealthEvent::kErrored, at(now)));
  EXPECT_TRUE(health.on_event(HealthEvent::kProbeOk, at(now + 10))) << "as if it were the first time";
}

TEST(Health, SuspectThatBeginsToFailIsReported) {
  NodeHealth health;
  health.on_event(HealthEvent::kProbeOk, at(0));
  health.on_event(HealthEvent::kProbeFail, at(1));
  bool changed = false;
  for (int i = 0; i < 5; ++i) changed = health.on_event(HealthEvent::kErrored, at(1));
  EXPECT_TRUE(changed);
  EXPECT_TRUE(health.failing());
}

TEST(Health, RevivedNodeBeginsAnew) {
  NodeHealth health;
  health.on_event(HealthEvent::kProbeOk, at(0));
  for (int i = 0; i < 5; ++i) health.on_event(HealthEvent::kErrored, at(1));
  for (int i = 0; i < 3; ++i) health.on_event(HealthEvent::kProbeFail, at(2));
  EXPECT_EQ(health.state(), NodeState::kDead);
  EXPECT_FALSE(health.failing());
  EXPECT_TRUE(health.on_event(HealthEvent::kProbeOk, at(3)));
  EXPECT_EQ(health.state(), NodeState::kAlive);
}

TEST(Health, DeadNodeReturnsAfterEnoughGoodProbesInARow) {
  HealthOptions options;
  options.alive_after = 2;
  NodeHealth health(options);
  health.on_event(HealthEvent::kProbeFail, at(0));
  health.on_event(HealthEvent::kProbeOk, at(1));
  health.on_event(HealthEvent::kProbeFail, at(2));
  health.on_event(HealthEvent::kProbeOk, at(3));
  EXPECT_EQ(health.state(), NodeState::kDead);
  EXPECT_TRUE(health.on_event(HealthEvent::kProbeOk, at(4)));
  EXPECT_EQ(health.state(), NodeState::kAlive);
}

TEST(Health, NotReadyNodeDrainsAndReturnsAtOnce) {
  NodeHealth health;
  health.on_event(HealthEvent::kProbeOk, at(0));
  EXPECT_TRUE(health.on_event(HealthEvent::kProbeNotReady, at(1)));
  EXPECT_EQ(health.state(), NodeState::kDraining);
  health.on_event(HealthEvent::kTransportError, at(2));
  EXPECT_EQ(health.state(), NodeState::kDraining);
  EXPECT_TRUE(health.on_event(HealthEvent::kProbeOk, at(3)));
  EXPECT_EQ(health.state(), NodeState::kAlive);
}

TEST(Health, AnsweredRequestIsASignOfLifeButRevivesNoDeadNode) {
  NodeHealth health;
  EXPECT_FALSE(health.on_event(HealthEvent::kAnswered, at(0)));
  EXPECT_EQ(health.state(), NodeState::kUnknown);
  health.on_event(HealthEvent::kProbeOk, at(0));
  for (int i = 0; i < 10; ++i) {  // too busy for probes, not for requests
    health.on_event(HealthEvent::kProbeFail, at(i));
    health.on_event(HealthEvent::kProbeFail, at(i));
    EXPECT_TRUE(health.on_event(HealthEvent::kAnswered, at(i)));
    EXPECT_EQ(health.state(), NodeState::kAlive);
  }
  for (int i = 0; i < 3; ++i) health.on_event(HealthEvent::kProbeFail, at(20));
  EXPECT_FALSE(health.on_event(HealthEvent::kAnswered, at(21)));
  EXPECT_EQ(health.state(), NodeState::kDead);
  health.on_event(HealthEvent::kProbeNotReady, at(22));
  EXPECT_FALSE(health.on_event(HealthEvent::kAnswered, at(23)))
      << "a draining worker finishing its work takes no new";
}

TEST(Health, EnoughFailuresKillAndEnoughSuccessesHealFromAnyState) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    Random random(seed);
    HealthOptions options;
    options.dead_after = 1 + static_cast<int>(random.below(5));
    options.alive_after = 1 + static_cast<int>(random.below(5));
    NodeHealth health(options);
    for (int i = 0; i < 200; ++i) health.on_event(static_cast<HealthEvent>(random.below(6)), at(i));
    for (int i = 0; i < options.dead_after; ++i) health.on_event(HealthEvent::kProbeFail, at(300));
    EXPECT_EQ(health.state(), NodeState::kDead) << "seed " << seed;
    for (int i = 0; i < options.alive_after; ++i) health.on_event(HealthEvent::kProbeOk, at(400));
    EXPECT_EQ(health.state(), NodeState::kAlive) << "seed " << seed;
  }
}

}  // namespace health_test
}  // namespace troupe::route
