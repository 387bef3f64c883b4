// Rules of the nodes' life: events in, actions and views out.

#include "gateway/route/fleet/node_registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::route {
namespace node_registry_test {

using Kind = NodeAction::Kind;
using Moment = NodeRegistry::Moment;
using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;

TimePoint at(double seconds) {
  return TimePoint{} + std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

// A gateway that moves sets, whose router has seen some.
Moment moment(double seconds) {
  return {at(seconds), true, true};
}

NewNode named(const std::string& id) {
  return {id, "http://" + id, {"demo"}};
}

std::vector<Kind> kinds(const NodeActions& actions) {
  std::vector<Kind> all;
  for (const NodeAction& action : actions) all.push_back(action.kind);
  return all;
}

NodeActions see(NodeRegistry& registry, NodeIndex node, HealthEvent event, const Moment& when) {
  return registry.on_event(std::span(&node, 1), event, when);
}

NodeActions see(NodeRegistry& registry, NodeIndex node, HealthEvent event, double seconds = 1) {
  return see(registry, node, event, moment(seconds));
}

// Nodes a, b, …, probed before a router knew any set; so all weigh the same.
NodeRegistry registry_with(size_t nodes, NodeRegistryOptions options = {}) {
  std::vector<NewNode> all;
  for (size_t i = 0; i < nodes; ++i) all.push_back(named(std::string(1, static_cast<char>('a' + i))));
  NodeRegistry registry(options, std::move(all));
  for (NodeIndex i = 0; i < nodes; ++i) see(registry, i, HealthEvent::kProbeOk, {at(0), true, false});
  return registry;
}

const NodeView& view_of(const NodeRegistry& registry, NodeIndex node) {
  return registry.view()->node(node);
}

void die(NodeRegistry& registry, NodeIndex node, double seconds = 1) {
  for (int i = 0; i < HealthOptions{}.dead_after; ++i) see(registry, node, HealthEvent::kProbeFail, seconds);
}

// ---- health

TEST(NodeRegistry, NewNodesAreUnknownUntilTheirFirstProbe) {
  NodeRegistry registry({}, {named("a"), named("b")});
  EXPECT_EQ(registry.view()->routable_count(), 0u);
  EXPECT_EQ(view_of(registry, 1).state, NodeState::kUnknown);
  EXPECT_FALSE(registry.nodes()[1].probed());
  const NodeActions actions = see(registry, 1, HealthEvent::kProbeOk);
  EXPECT_THAT(kinds(actions), ElementsAre(Kind::kChangedState, Kind::kAdopt, Kind::kAdopt, Kind::kFillCache));
  EXPECT_EQ(actions[0].before, NodeState::kUnknown);
  EXPECT_TRUE(registry.view()->routable(1));
  EXPECT_FALSE(registry.view()->routable(0));
  EXPECT_TRUE(registry.nodes()[1].probed());
}

TEST(NodeRegistry, EventWithoutAChangeHasNoAction) {
  NodeRegistry registry = registry_with(2);
  const auto before = registry.view();
  EXPECT_THAT(see(registry, 0, HealthEvent::kProbeOk), IsEmpty());
  EXPECT_THAT(see(registry, 0, HealthEvent::kAnswered), IsEmpty());
  EXPECT_EQ(registry.view(), before);
}

TEST(NodeRegistry, FailureMakesASuspectThatIsProbedAtOnce) {
  NodeRegistry registry = registry_with(2);
  EXPECT_THAT(kinds(see(registry, 0, HealthEvent::kConnectError)),
              ElementsAre(Kind::kChangedState, Kind::kAdopt, Kind::kProbe));
  EXPECT_EQ(view_of(registry, 0).state, NodeState::kSuspect);
  EXPECT_TRUE(registry.view()->routable(0));
}

TEST(NodeRegistry, DeadNodeIsForgottenBeforeTheViewOfItsDeath) {
  NodeRegistry registry = registry_with(2);
  see(registry, 0, HealthEvent::kProbeFail);
  see(registry, 0, HealthEvent::kProbeFail);
  EXPECT_THAT(kinds(see(registry, 0, HealthEvent::kProbeFail)),
              ElementsAre(Kind::kChangedState, Kind::kForget, Kind::kDisconnect, Kind::kAdopt));
  EXPECT_EQ(view_of(registry, 0).state, NodeState::kDead);
  EXPECT_TRUE(registry.nodes()[0].known_dead());
}

TEST(NodeRegistry, FailingNodeIsShownAsFailing) {
  NodeRegistry registry = registry_with(2);
  for (int i = 1; i < HealthOptions{}.errors_max; ++i)
    EXPECT_THAT(see(registry, 0, HealthEvent::kErrored), IsEmpty());
  EXPECT_THAT(kinds(see(registry, 0, HealthEvent::kErrored)), ElementsAre(Kind::kChangedState, Kind::kAdopt));
  EXPECT_TRUE(view_of(registry, 0).failing);
  EXPECT_FALSE(registry.view()->may_be_home(0));
  EXPECT_THAT(kinds(see(registry, 0, HealthEvent::kAnswered)), Contains(Kind::kAdopt));
  EXPECT_FALSE(view_of(registry, 0).failing);
}

TEST(NodeRegistry, SameEventOfManyNodesIsOneView) {
  NodeRegistry registry({}, {named("a"), named("b"), named("c")});
  const NodeIndex all[] = {0, 1, 2};
  const NodeActions actions = registry.on_event(all, HealthEvent::kProbeOk, {at(1), true, false});
  EXPECT_EQ(std::count_if(actions.begin(), actions.end(),
                          [](const NodeAction& action) { return action.kind == Kind::kAdopt; }),
            1);
  EXPECT_EQ(registry.view()->routable_count(), 3u);
}

TEST(NodeRegistry, ActionsCarryTheViewOfTheirMoment) {
  NodeRegistry registry = registry_with(2);
  die(registry, 0);
  const NodeActions actions = see(registry, 0, HealthEvent::kProbeOk, 2);
  ASSERT_THAT(kinds(actions), ElementsAre(Kind::kChangedState, Kind::kAdopt, Kind::kAdopt, Kind::kFillCache));
  EXPECT_EQ(actions[1].view->node(0).weight, 1);
  EXPECT_DOUBLE_EQ(actions[2].view->node(0).weight, 0.1);
  EXPECT_EQ(actions[2].view, registry.view());
  EXPECT_EQ(actions[2].view->epoch(), actions[1].view->epoch() + 1);
}

TEST(NodeRegistry, ChangedOptionsCountFromThenOn) {
  NodeRegistry registry = registry_with(2);
  NodeRegistryOptions options;
  options.health.dead_after = 1;
  options.in_flight_max = 7;
  EXPECT_THAT(kinds(registry.change(options)), ElementsAre(Kind::kAdopt));
  EXPECT_EQ(view_of(registry, 1).in_flight_max, 7);
  see(registry, 0, HealthEvent::kProbeFail);
  EXPECT_EQ(view_of(registry, 0).state, NodeState::kDead);
}

TEST(NodeRegistry, OnlyOtherModelsMakeAView) {
  NodeRegistry registry = registry_with(1);
  EXPECT_THAT(registry.set_service(0, {{"demo"}}), IsEmpty());
  EXPECT_THAT(kinds(registry.set_service(0, {{"demo", "large"}})), ElementsAre(Kind::kAdopt));
  EXPECT_TRUE(registry.view()->knows_model("large"));
  registry.remove(0);
  EXPECT_THAT(registry.set_service(0, {{"late"}}), IsEmpty()) << "an answer that was under way";
  EXPECT_FALSE(registry.view()->knows_model("late"));
}

// ---- ramp

TEST(NodeRegistry, WeightRisesInSteps) {
  using std::chrono_literals::operator""s;
  using std::chrono_literals::operator""ms;
  EXPECT_DOUBLE_EQ(ramp_weight(0s, 10s), 0.1);
  EXPECT_DOUBLE_EQ(ramp_weight(-1s, 10s), 0.1);
  double last = 0;
  for (auto t = 0ms; t <= 10s; t += 10ms) {
    const double weight = ramp_weight(t, 10s);
    EXPECT_GE(weight, last);
    last = weight;
  }
  EXPECT_DOUBLE_EQ(last, 1);
  EXPECT_DOUBLE_EQ(ramp_weight(0s, 0s), 1);
}

TEST(NodeRegistry, NodeThatReturnsRampsToFullWeight) {
  NodeRegistry registry = registry_with(2);
  EXPECT_FALSE(registry.ramps());
  die(registry, 0);
  see(registry, 0, HealthEvent::kProbeOk, 100);
  EXPECT_TRUE(registry.ramps());
  EXPECT_DOUBLE_EQ(view_of(registry, 0).weight, 0.1);
  EXPECT_THAT(registry.ramp(at(100.1)), IsEmpty()) << "each step is a new view, and no more than that";
  EXPECT_THAT(kinds(registry.ramp(at(105))), ElementsAre(Kind::kAdopt));
  EXPECT_DOUBLE_EQ(view_of(registry, 0).weight, 0.5);
  EXPECT_TRUE(registry.ramps());
  registry.ramp(at(110));
  EXPECT_DOUBLE_EQ(view_of(registry, 0).weight, 1);
  EXPECT_FALSE(registry.ramps());
  EXPECT_DOUBLE_EQ(view_of(registry, 1).weight, 1);
}

TEST(NodeRegistry, NothingRampsWhereNoSetsAreKnownOrNoTimeIsGiven) {
  NodeRegistry registry = registry_with(2);
  EXPECT_FALSE(registry.ramps()) << "the fleet's start";
  NodeRegistryOptions options;
  options.ramp = Duration::zero();
  registry.change(options);
  die(registry, 0);
  EXPECT_THAT(kinds(see(registry, 0, HealthEvent::kProbeOk)), Contains(Kind::kFillCache));
  EXPECT_FALSE(registry.ramps());
  EXPECT_DOUBLE_EQ(view_of(registry, 0).weight, 1);
}

TEST(NodeRegistry, NothingIsComputedAheadWithoutAMigrator) {
  NodeRegistry registry = registry_with(2);
  die(registry, 0);
  EXPECT_THAT(kinds(see(registry, 0, HealthEvent::kProbeOk, {at(2), false, true})),
              ElementsAre(Kind::kChangedState, Kind::kAdopt));
  EXPECT_DOUBLE_EQ(view_of(registry, 0).weight, 1);
}

TEST(NodeRegistry, ClearedSuspicionIsNoEmptyCache) {
  NodeRegistry registry = registry_with(2);
  see(registry, 0, HealthEvent::kProbeFail);
  EXPECT_THAT(kinds(see(registry, 0, HealthEvent::kProbeOk)), ElementsAre(Kind::kChangedState, Kind::kAdopt));
}

TEST(NodeRegistry, NewCacheEpochForgetsTheNodeAndFillsIt) {
  NodeRegistry registry = registry_with(2);
  EXPECT_THAT(registry.saw_cache_epoch(0, "first", moment(1)), IsEmpty());
  EXPECT_THAT(registry.saw_cache_epoch(0, "first", moment(1)), IsEmpty());
  EXPECT_THAT(kinds(registry.saw_cache_epoch(0, "second", moment(2))),
              ElementsAre(Kind::kForget, Kind::kAdopt, Kind::kFillCache));
  EXPECT_DOUBLE_EQ(view_of(registry, 0).weight, 0.1);
  // Its return makes it ramp, not the epoch that a dead or leaving node tells.
  die(registry, 0);
  EXPECT_THAT(kinds(registry.saw_cache_epoch(0, "third", moment(3))), ElementsAre(Kind::kForget));
  registry.drain(1, moment(3));
  registry.saw_cache_epoch(1, "one", moment(3));
  EXPECT_THAT(kinds(registry.saw_cache_epoch(1, "two", moment(3))), ElementsAre(Kind::kForget));
}

// ---- drain

TEST(NodeRegistry, DrainedNodeLeavesAndIsAskedNoMoreOnceItHasLeft) {
  NodeRegistry registry = registry_with(2);
  const NodeActions actions = registry.drain(0, moment(1));
  ASSERT_THAT(kinds(actions), ElementsAre(Kind::kDrains, Kind::kAdopt, Kind::kMoveSets));
  EXPECT_EQ(actions[2].node, 0u);
  EXPECT_EQ(actions[2].until, TimePoint::max());
  EXPECT_TRUE(registry.nodes()[0].leaving());
  EXPECT_TRUE(registry.view()->routable(0)) << "for the sets that have not moved";
  EXPECT_FALSE(registry.view()->may_be_home(0));
  EXPECT_EQ(registry.nodes()[0].state(), NodeState::kDraining) << "an operator's word counts at once";
  EXPECT_THAT(registry.drain(0, moment(2)), IsEmpty());
  EXPECT_THAT(kinds(registry.handover_done(0)), ElementsAre(Kind::kAdopt));
  EXPECT_FALSE(registry.view()->routable(0));
  EXPECT_EQ(view_of(registry, 0).state, NodeState::kDraining);
  // Good probes do not end it; an operator does.
  EXPECT_THAT(see(registry, 0, HealthEvent::kProbeOk), IsEmpty());
  const auto added = registry.add(named("a"));
  ASSERT_TRUE(added.ok());
  EXPECT_THAT(kinds(added->actions), ElementsAre(Kind::kStay, Kind::kAdopt, Kind::kFollow));
  EXPECT_FALSE(added->connect || added->replaces);
  EXPECT_EQ(view_of(registry, 0).state, NodeState::kAlive);
}

TEST(NodeRegistry, DrainWithoutAMigratorIsAtOnce) {
  NodeRegistry registry = registry_with(2);
  EXPECT_THAT(kinds(registry.drain(0, {at(1), false, true})), ElementsAre(Kind::kDrains, Kind::kAdopt));
  EXPECT_FALSE(registry.nodes()[0].leaving());
  EXPECT_EQ(view_of(registry, 0).state, NodeState::kDraining);
}

TEST(NodeRegistry, DrainedDeadNodeHasNothingToMove) {
  NodeRegistry registry = registry_with(2);
  die(registry, 0);
  EXPECT_THAT(kinds(registry.drain(0, moment(2))), ElementsAre(Kind::kDrains, Kind::kAdopt));
  EXPECT_EQ(registry.nodes()[0].state(), NodeState::kDead);
  see(registry, 0, HealthEvent::kProbeOk, 3);
  EXPECT_EQ(view_of(registry, 0).state, NodeState::kDraining);
}

TEST(NodeRegistry, NoticeGivesTheNodesSetsThatLongToMove) {
  NodeRegistry registry = registry_with(2);
  const NodeActions actions = registry.saw_notice(0, std::chrono::seconds(30), moment(1));
  ASSERT_THAT(kinds(actions), ElementsAre(Kind::kGaveNotice, Kind::kAdopt, Kind::kMoveSets));
  EXPECT_EQ(actions[2].until, at(31));
  EXPECT_TRUE(view_of(registry, 0).leaving);
  EXPECT_THAT(registry.saw_notice(0, std::chrono::seconds(29), moment(2)), IsEmpty()) << "said already";
  registry.handover_done(0);
  EXPECT_EQ(view_of(registry, 0).state, NodeState::kDraining);
}

TEST(NodeRegistry, SetsThatMoveAreNotAskedToMoveAgain) {
  NodeRegistry registry = registry_with(2);
  registry.drain(0, moment(1));
  EXPECT_THAT(kinds(registry.saw_notice(0, std::chrono::seconds(30), moment(2))),
              ElementsAre(Kind::kGaveNotice, Kind::kAdopt));
  EXPECT_TRUE(registry.nodes()[0].leaving());
  // An operator's change of mind does not end the node's own notice.
  EXPECT_THAT(kinds(registry.add(named("a"))->actions), ElementsAre(Kind::kAdopt, Kind::kFollow));
  EXPECT_TRUE(registry.nodes()[0].leaving());
}

TEST(NodeRegistry, NoticeOfANodeThatCannotBeAskedIsJustNotReady) {
  NodeRegistry registry = registry_with(2);
  die(registry, 0);
  EXPECT_THAT(kinds(registry.saw_notice(0, std::chrono::seconds(30), moment(2))),
              ElementsAre(Kind::kChangedState, Kind::kAdopt));
  EXPECT_EQ(view_of(registry, 0).state, NodeState::kDraining);
  EXPECT_THAT(kinds(registry.saw_notice(1, std::chrono::seconds(30), {at(2), false, true})),
              ElementsAre(Kind::kChangedState, Kind::kAdopt))
      << "its sets are not moved";
  EXPECT_FALSE(view_of(registry, 1).leaving);
}

TEST(NodeRegistry, GoodProbeAfterANoticeIsAnotherProgramThere) {
  NodeRegistry registry = registry_with(2);
  registry.saw_notice(0, std::chrono::seconds(30), moment(1));
  EXPECT_THAT(kinds(see(registry, 0, HealthEvent::kProbeOk, 2)),
              ElementsAre(Kind::kStay, Kind::kAdopt, Kind::kAdopt, Kind::kFillCache));
  EXPECT_FALSE(view_of(registry, 0).leaving);
  EXPECT_EQ(view_of(registry, 0).state, NodeState::kAlive);
  EXPECT_DOUBLE_EQ(view_of(registry, 0).weight, 0.1);
}

TEST(NodeRegistry, DeathEndsTheLeaving) {
  NodeRegistry registry = registry_with(2);
  registry.saw_notice(0, std::chrono::seconds(30), moment(1));
  die(registry, 0, 2);
  EXPECT_FALSE(registry.nodes()[0].leaving());
  EXPECT_EQ(view_of(registry, 0).state, NodeState::kDead);
  EXPECT_FALSE(view_of(registry, 0).leaving);
  see(registry, 0, HealthEvent::kProbeOk, 3);
  EXPECT_EQ(view_of(registry, 0).state, NodeState::kAlive);
  EXPECT_THAT(kinds(registry.drain(0, moment(4))), Contains(Kind::kMoveSets)) << "of its next life";
}

TEST(NodeRegistry, LeavingNodeThatWasNotReadyForAMomentGoesOnLeaving) {
  NodeRegistry registry = registry_with(2);
  registry.drain(0, moment(1));
  see(registry, 0, HealthEvent::kProbeNotReady, 2);
  EXPECT_FALSE(registry.view()->routable(0));
  EXPECT_THAT(kinds(see(registry, 0, HealthEvent::kProbeOk, 3)), Not(Contains(Kind::kFillCache)))
      << "what it has still moves away";
  EXPECT_TRUE(view_of(registry, 0).leaving);
}

TEST(NodeRegistry, RetiredNodeIsRemovedOnceItHasLeft) {
  NodeRegistry registry = registry_with(2);
  EXPECT_THAT(kinds(registry.retire(0, moment(1))),
              ElementsAre(Kind::kDrains, Kind::kAdopt, Kind::kMoveSets));
  EXPECT_TRUE(registry.nodes()[0].member());
  EXPECT_THAT(kinds(registry.handover_done(0)),
              ElementsAre(Kind::kStay, Kind::kDisconnect, Kind::kForget, Kind::kRemoved, Kind::kAdopt));
  EXPECT_FALSE(registry.nodes()[0].member());
}

TEST(NodeRegistry, RetiredNodeIsRemovedAtOnceWhereNothingMoves) {
  NodeRegistry registry = registry_with(3);
  EXPECT_THAT(kinds(registry.retire(0, {at(1), false, true})), Contains(Kind::kRemoved));
  registry.drain(1, moment(1));
  registry.handover_done(1);
  EXPECT_THAT(kinds(registry.retire(1, moment(2))), Contains(Kind::kRemoved))
      << "an operator drained it before";
  registry.retire(2, moment(3));
  EXPECT_TRUE(registry.nodes()[2].member());
  die(registry, 2, 4);
  EXPECT_FALSE(registry.nodes()[2].member()) << "it died before its sets had moved";
}

TEST(NodeRegistry, RetiredNodeThatIsAddedAgainStays) {
  NodeRegistry registry = registry_with(2);
  registry.retire(0, moment(1));
  EXPECT_THAT(kinds(registry.add(named("a"))->actions), Contains(Kind::kStay));
  EXPECT_FALSE(registry.nodes()[0].leaving());
  EXPECT_EQ(view_of(registry, 0).state, NodeState::kAlive);
  die(registry, 0, 2);
  EXPECT_TRUE(registry.nodes()[0].member());
}

// ---- membership and slots

TEST(NodeRegistry, RemovedNodeIsGoneForAllWhoLook) {
  NodeRegistry registry = registry_with(2);
  EXPECT_EQ(registry.find("a"), NodeIndex{0});
  EXPECT_THAT(kinds(registry.remove(0)),
              ElementsAre(Kind::kStay, Kind::kDisconnect, Kind::kForget, Kind::kRemoved, Kind::kAdopt));
  EXPECT_EQ(registry.find("a"), std::nullopt);
  EXPECT_EQ(registry.find_slot("a"), NodeIndex{0});
  EXPECT_EQ(view_of(registry, 0).state, NodeState::kDead);
  EXPECT_THAT(view_of(registry, 0).models, IsEmpty());
  EXPECT_FALSE(registry.nodes()[0].known_dead()) << "it was not probed";
  EXPECT_THAT(see(registry, 0, HealthEvent::kConnectError), IsEmpty()) << "an answer that was under way";
  EXPECT_THAT(registry.saw_notice(0, std::chrono::seconds(3), moment(1)), IsEmpty());
}

TEST(NodeRegistry, RemovedNodeComesBackToItsSlotAsAStranger) {
  NodeRegistry registry = registry_with(2);
  registry.saw_notice(0, std::chrono::seconds(30), moment(1));
  registry.remove(0);
  const auto added = registry.add(named("a"));
  ASSERT_TRUE(added.ok());
  EXPECT_EQ(added->node, 0u);
  EXPECT_FALSE(added->connect || added->replaces);
  EXPECT_EQ(view_of(registry, 0).state, NodeState::kUnknown);
  EXPECT_FALSE(registry.nodes()[0].probed());
  EXPECT_THAT(kinds(see(registry, 0, HealthEvent::kProbeOk)), Not(Contains(Kind::kStay)))
      << "its notice is over";
  EXPECT_EQ(registry.add(named("c"))->node, 2u) << "the slot is taken again";
}

TEST(NodeRegistry, NodeAtAnotherUrlIsConnectedAnew) {
  NodeRegistry registry = registry_with(1);
  NewNode tls = named("a");
  tls.url = "https://a";
  const auto added = registry.add(tls);
  EXPECT_EQ(added->node, 0u);
  EXPECT_TRUE(added->connect);
  EXPECT_FALSE(added->replaces);
  EXPECT_EQ(view_of(registry, 0).url, "https://a");
  EXPECT_EQ(view_of(registry, 0).state, NodeState::kAlive);
}

TEST(NodeRegistry, SlotOfARemovedNodeIsTheNextOnes) {
  NodeRegistry registry = registry_with(3);
  die(registry, 0);
  see(registry, 0, HealthEvent::kProbeOk, 2);
  registry.saw_cache_epoch(0, "epoch", moment(2));
  ASSERT_TRUE(registry.ramps());
  registry.remove(0);
  const auto added = registry.add(named("x"));
  EXPECT_EQ(added->node, 0u);
  EXPECT_TRUE(added->connect && added->replaces);
  EXPECT_THAT(kinds(added->actions), ElementsAre(Kind::kAdopt, Kind::kFollow));
  EXPECT_EQ(view_of(registry, 0).id, "x");
  EXPECT_EQ(view_of(registry, 0).state, NodeState::kUnknown);
  EXPECT_EQ(view_of(registry, 0).weight, 1);
  EXPECT_FALSE(registry.ramps());
  EXPECT_TRUE(registry.nodes()[0].cache_epoch.empty());
  EXPECT_EQ(registry.find_slot("a"), std::nullopt);
  const auto back = registry.add(named("a"));
  EXPECT_EQ(back->node, 3u);
  EXPECT_TRUE(back->connect);
  EXPECT_FALSE(back->replaces);
}

TEST(NodeRegistry, SlotWaitsForAllThatWasUnderWayAtTheRemoval) {
  NodeRegistry registry = registry_with(3);
  NodeSlots& slots = registry.slots();
  const auto early = slots.begin_hold();
  registry.remove(0);
  const auto late = slots.begin_hold();
  EXPECT_EQ(registry.add(named("x"))->node, 3u);
  slots.end_hold(early);
  EXPECT_EQ(registry.add(named("y"))->node, 0u) << "the later hold cannot mean the removed node";
  registry.remove(1);
  EXPECT_EQ(registry.add(named("z"))->node, 4u);
  slots.end_hold(late);
  EXPECT_EQ(registry.add(named("w"))->node, 1u);
}

TEST(NodeRegistry, SlotWithAListenerIsNotReused) {
  NodeRegistry registry = registry_with(2);
  registry.slots().listens(0, true);
  registry.remove(0);
  EXPECT_EQ(registry.add(named("x"))->node, 2u);
  registry.slots().listens(0, false);
  EXPECT_EQ(registry.add(named("y"))->node, 0u);
}

TEST(NodeRegistry, LongestFreeSlotIsTakenFirst) {
  NodeRegistry registry = registry_with(3);
  const auto first = registry.slots().begin_hold();
  registry.remove(2);
  const auto second = registry.slots().begin_hold();
  registry.remove(0);
  registry.slots().end_hold(first);
  registry.slots().end_hold(second);
  EXPECT_EQ(registry.add(named("x"))->node, 2u);
  EXPECT_EQ(registry.add(named("y"))->node, 0u);
}

TEST(NodeRegistry, NoMoreNodesThanSlots) {
  NodeRegistryOptions options;
  options.nodes_max = 3;
  NodeRegistry registry = registry_with(2, options);
  EXPECT_EQ(registry.slots().room(), 1u);
  EXPECT_TRUE(registry.add(named("x")).ok());
  const auto before = registry.view();
  EXPECT_EQ(registry.add(named("y")).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(registry.view(), before);
  const auto hold = registry.slots().begin_hold();
  registry.remove(0);
  EXPECT_EQ(registry.slots().room(), 0u);
  EXPECT_FALSE(registry.add(named("y")).ok());
  registry.slots().end_hold(hold);
  EXPECT_EQ(registry.slots().room(), 1u);
  EXPECT_TRUE(registry.add(named("y")).ok());
}

// ---- first look

TEST(NodeRegistry, FirstLookIsOverWhenAllOfTheStartHaveBeenProbed) {
  NodeRegistry registry({}, {named("a"), named("b"), named("c"), named("d")});
  EXPECT_FALSE(registry.initial_probing().over());
  see(registry, 0, HealthEvent::kProbeFail);
  see(registry, 1, HealthEvent::kProbeNotReady);
  see(registry, 2, HealthEvent::kConnectError);
  registry.remove(3);
  EXPECT_FALSE(registry.initial_probing().over()) << "a request's failure is no probe";
  see(registry, 2, HealthEvent::kProbeOk);
  EXPECT_TRUE(registry.initial_probing().over());
  ASSERT_TRUE(registry.add(named("e")).ok());
  EXPECT_TRUE(registry.initial_probing().over()) << "a later node is nothing to wait for";
}

TEST(NodeRegistry, FirstLookWaitsForMembersNotYetListed) {
  NodeRegistry registry({}, {});
  registry.initial_probing().await_members();
  EXPECT_FALSE(registry.initial_probing().over());
  ASSERT_TRUE(registry.add(named("a")).ok());
  registry.initial_probing().members_known();
  EXPECT_FALSE(registry.initial_probing().over()) << "its members are known, and not probed";
  registry.saw_notice(0, std::chrono::seconds(3), moment(1));
  EXPECT_TRUE(registry.initial_probing().over());
}

}  // namespace node_registry_test
}  // namespace troupe::route
