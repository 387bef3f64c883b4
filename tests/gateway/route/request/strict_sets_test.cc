// Strict sets whose homes fail: the request machine, the nodes' registry and the planner as one gateway has
// them, on a virtual clock. No sockets or threads.

#include <gtest/gtest.h>

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gateway/route/fleet/node_registry.h"
#include "gateway/route/node_actions.h"
#include "gateway/route/request/request_flow.h"

namespace troupe::route {
namespace strict_sets_test {

using std::chrono::milliseconds;

constexpr int kPersonas = 24;

Failure status(int code) {
  return {FailureKind::kStatus, code};
}

RouterOptions strict(size_t sets, size_t sets_per_node, size_t nodes_per_set) {
  RouterOptions options;
  options.affinity.mode = Mode::kStrict;
  options.planner.strict_sets = sets;
  options.planner.max_sets_per_node = sets_per_node;
  options.planner.max_nodes_per_set = nodes_per_set;
  return options;
}

std::vector<NewNode> named(size_t count) {
  std::vector<NewNode> nodes;
  for (size_t i = 0; i < count; ++i) {
    const std::string id = "10.0.0." + std::to_string(i) + ":31000";
    nodes.push_back({id, "http://" + id, {"demo"}});
  }
  return nodes;
}

// Nodes that pass their probes, and answer requests or fail at all of them.
class Gateway final : public NodeSignals {
 public:
  Gateway(size_t nodes, const RouterOptions& options)
      : failures(nodes), asked(nodes), router_(options, 42), registry_({}, named(nodes)) {
    router_.update_cluster(registry_.view());
    answer_probes();
  }

  std::vector<std::optional<Failure>> failures;  // by node; nullopt: it answers
  std::vector<int> asked;                        // by node: requests

  struct Answer {
    std::optional<Action> error;  // nullopt: answered
    NodeIndex node = kNoNode;
    int attempts = 0;
  };
  Answer ask(int persona) {
    now_ += milliseconds(1);
    PrefixKey key;
    key.set = hash_bytes("persona " + std::to_string(persona));
    key.prefix_bytes = key.prompt_bytes = 1200;
    const FlowContext context{router_, budget_, *this, stall_};
    RequestFlow flow;
    flow.begin(key, "demo", 1);
    Action action = flow.choose(context, now_);
    if (action == Action::kAdmit) action = flow.admitted(context, false, now_);
    while (action == Action::kSend) {
      const NodeIndex node = flow.attempt().candidate.node;
      asked[node] += 1;
      if (!failures[node]) {
        flow.first_byte(context, false, now_);
        flow.answered(context, AnswerCounts{400, 9, 0, true}, 200, now_);
        return {std::nullopt, node, flow.attempts()};
      }
      action = flow.failed(context, *failures[node], true, {}, now_);
    }
    return {action, flow.attempt().candidate.node, flow.attempts()};
  }
  void wait(Duration time) { now_ += time; }
  void answer_probes() {
    for (NodeIndex node = 0; node < failures.size(); ++node) on_event(node, HealthEvent::kProbeOk, now_);
  }
  void plan() {
    now_ += router_.options().planner.tick;
    router_.plan(now_);
  }

  const SetTable* table() const { return router_.table().get(); }
  NodeState state(NodeIndex node) const { return router_.view().node(node).state; }
  size_t sets_at(NodeIndex node) const {
    size_t count = 0;
    for (const auto& [set, homes] : table()->sets()) count += homes.contains(node) ? 1 : 0;
    return count;
  }

  void on_event(NodeIndex node, HealthEvent event, TimePoint now) override {
    const NodeRegistry::Moment moment{now, false, router_.known().sets.size() > 0};
    for (const NodeAction& action : registry_.on_event(std::span(&node, 1), event, moment))
      perform(router_, action);
  }
  NodeStatus node_status(NodeIndex) const override { return {}; }
  void saw_heartbeat(NodeIndex) override {}
  void probe(NodeIndex, TimePoint) override {}

 private:
  Router router_;
  NodeRegistry registry_;
  RetryBudget budget_{RetryOptions{}};
  StallOptions stall_;
  TimePoint now_{std::chrono::seconds(100)};
};

TEST(StrictSets, SetMovesWhenItsOnlyHomeFails) {
  for (const Failure& failure : {Failure{FailureKind::kConnect}, status(500), status(503)}) {
    SCOPED_TRACE(failure.http_status);
    Gateway gateway(2, strict(8, 2, 1));
    const size_t sets = gateway.sets_at(0);
    ASSERT_GT(sets, 0u);
    gateway.failures[0] = failure;
    for (int round = 0; round < 2; ++round) {
      for (int persona = 0; persona < kPersonas; ++persona) {
        const Gateway::Answer answer = gateway.ask(persona);
        EXPECT_EQ(answer.error, std::nullopt);
        EXPECT_EQ(answer.node, 1u);
      }
      EXPECT_GT(gateway.asked[0], 0);
      EXPECT_LE(gateway.asked[0], static_cast<int>(sets)) << "each set has moved with its first request";
      EXPECT_EQ(gateway.sets_at(0), 0u);
    }
  }
}

// It passes its probes, so only its answers reveal it.
TEST(StrictSets, NodeThatOnlyFailsGetsNoSets) {
  Gateway gateway(3, strict(6, 6, 0));
  gateway.failures[0] = status(500);
  ASSERT_EQ(gateway.sets_at(0), 6u);
  // While none holds a set, the home that is asked first is drawn.
  for (int persona = 0; persona < 1000 && gateway.state(0) == NodeState::kAlive; ++persona) {
    EXPECT_EQ(gateway.ask(persona).error, std::nullopt);
    gateway.answer_probes();
  }
  EXPECT_EQ(gateway.state(0), NodeState::kSuspect);
  EXPECT_EQ(gateway.asked[0], HealthOptions{}.errors_max);
  EXPECT_EQ(gateway.sets_at(0), 0u) << "before the next plan";
  gateway.answer_probes();
  gateway.plan();
  for (int persona = 0; persona < kPersonas; ++persona) EXPECT_EQ(gateway.ask(persona).error, std::nullopt);
  EXPECT_EQ(gateway.asked[0], HealthOptions{}.errors_max) << "though its probes are answered";
  EXPECT_EQ(gateway.sets_at(0), 0u);
}

TEST(StrictSets, NodeThatHasFailedIsTriedAgainAndGetsItsSetsBack) {
  Gateway gateway(3, strict(6, 6, 0));
  gateway.failures[0] = status(500);
  for (int persona = 0; persona < 1000 && gateway.state(0) == NodeState::kAlive; ++persona)
    gateway.ask(persona);
  gateway.failures[0].reset();
  gateway.wait(HealthOptions{}.errors_for - milliseconds(1));
  gateway.answer_probes();
  EXPECT_EQ(gateway.state(0), NodeState::kSuspect);
  gateway.wait(milliseconds(1));
  gateway.answer_probes();
  EXPECT_EQ(gateway.state(0), NodeState::kAlive);
  gateway.plan();
  EXPECT_EQ(gateway.sets_at(0), 6u);
}

// Its load would fall on the others, which have as much.
TEST(StrictSets, FullHomeKeepsItsSets) {
  Gateway gateway(2, strict(8, 2, 1));
  gateway.failures.assign(2, status(429));
  const SetTable* const before = gateway.table();
  for (int persona = 0; persona < kPersonas; ++persona) {
    const Gateway::Answer answer = gateway.ask(persona);
    EXPECT_EQ(answer.error, Action::kForward);
    EXPECT_EQ(answer.attempts, 1);
  }
  EXPECT_EQ(gateway.table(), before);
  EXPECT_EQ(gateway.asked[0] + gateway.asked[1], kPersonas);
  EXPECT_EQ(gateway.state(0), NodeState::kAlive);
}

}  // namespace strict_sets_test
}  // namespace troupe::route
