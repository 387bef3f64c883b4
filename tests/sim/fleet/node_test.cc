// A node that skips through its uneventful steps must equal one that is read after every step: both get the
// same requests, and report the same at the same times.

#include "sim/fleet/node.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <random>

#include "sim/trace/block_names.h"

namespace troupe::sim {
namespace node_test {

// A node that runs out of blocks now and then.
NodeProfile small_node() {
  NodeProfile profile;
  profile.costs.overhead_us = 300;
  profile.costs.weights_us = 4200;
  profile.costs.decode_context_ns = 30;
  profile.costs.prefill_token_us = 33;
  profile.kv_cache_tokens = 6000;
  profile.block_size = 16;
  profile.max_num_seqs = 8;
  profile.max_num_batched_tokens = 512;
  profile.max_model_len = 4096;
  return profile;
}

// One node with its clock.
class DrivenNode {
 public:
  DrivenNode(bool looks_at_every_step, Batching batching, const NodeProfile& profile = small_node())
      : node(profile, {.batching = batching}), looks_at_every_step_(looks_at_every_step) {}

  void add(const SimNode::NewSimRequest& sim_request, TimePoint now) {
    go_to(now);
    expect(node.interrupt(now));
    ASSERT_TRUE(node.add(sim_request, now).ok());
    begin(now);
  }

  void set_slowdown(double factor, TimePoint now) {
    expect(node.interrupt(now));
    node.set_slowdown(factor);
  }

  // Runs the events before `until`.
  void go_to(TimePoint until) {
    while (end_ < until) {
      const TimePoint now = end_;
      end_ = TimePoint::max();
      steps_heard_of += 1;
      const std::vector<SimNode::Token>& told = node.end_step(now);
      for (const SimNode::Token& token : told) tokens.emplace_back(now, token);
      if (on_step) on_step(now, told);
      node.take_changes(changes);
      begin(now);
    }
    node.catch_up(until);
  }

  SimNode node;
  std::vector<std::pair<TimePoint, SimNode::Token>> tokens;
  std::vector<Resident> changes;
  int64_t steps_heard_of = 0;
  std::function<void(TimePoint, const std::vector<SimNode::Token>&)> on_step;

 private:
  void begin(TimePoint now) {
    expect(node.begin_step(now));
    if (looks_at_every_step_) expect(node.interrupt(now));
  }
  void expect(std::optional<TimePoint> end) {
    if (end) end_ = *end;
  }

  bool looks_at_every_step_;
  TimePoint end_ = TimePoint::max();
};

void same(const DrivenNode& a, const DrivenNode& b) {
  const route::NodeReport x = a.node.report(), y = b.node.report();
  EXPECT_EQ(x.running, y.running);
  EXPECT_EQ(x.queued, y.queued);
  EXPECT_EQ(x.work_tokens_total, y.work_tokens_total);
  EXPECT_EQ(x.kv_tokens_free, y.kv_tokens_free);
  EXPECT_EQ(a.node.stats().computed_tokens_total, b.node.stats().computed_tokens_total);
  const PromptSums& sums = b.node.prompt_sums();
  EXPECT_TRUE(check(sums).ok()) << check(sums);
  EXPECT_EQ(a.node.prompt_sums().computed, sums.computed);
  EXPECT_EQ(a.node.stats().preemptions_total, b.node.stats().preemptions_total);
  EXPECT_TRUE(a.node.verify().ok()) << a.node.verify();
  ASSERT_EQ(a.changes.size(), b.changes.size());
  for (size_t i = 0; i < a.changes.size(); ++i) {
    EXPECT_EQ(a.changes[i].name, b.changes[i].name);
    EXPECT_EQ(a.changes[i].tokens, b.changes[i].tokens);
  }
  ASSERT_EQ(a.tokens.size(), b.tokens.size());
  for (size_t i = 0; i < a.tokens.size(); ++i) {
    const auto& [at, one] = a.tokens[i];
    const auto& [other_at, other] = b.tokens[i];
    EXPECT_EQ(at, other_at);
    EXPECT_EQ(one.id, other.id);
    EXPECT_EQ(one.first, other.first);
    EXPECT_EQ(one.last, other.last);
    EXPECT_EQ(one.cached_tokens, other.cached_tokens);
    EXPECT_EQ(one.tokens, other.tokens);
    EXPECT_EQ(one.longest_gap, other.longest_gap);
  }
}

SimNode::NewSimRequest random_flight(RequestId id, std::mt19937_64& random) {
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  SimNode::NewSimRequest sim_request;
  sim_request.id = id;
  sim_request.prompt_tokens = pick(1, 900);
  sim_request.new_tokens = pick(1, 400);
  const auto persona = static_cast<uint64_t>(pick(1, 3));
  const int32_t blocks = (sim_request.prompt_tokens + sim_request.new_tokens) / 16;
  for (int32_t i = 0; i < blocks; ++i) {
    const auto depth = static_cast<uint64_t>(i);
    sim_request.blocks.push_back(block_name(i < 10 ? persona << 32 | depth : id << 40 | depth));
  }
  return sim_request;
}

class SimNodes : public ::testing::TestWithParam<Batching> {};

INSTANTIATE_TEST_SUITE_P(SimNode, SimNodes,
                         ::testing::Values(Batching::kMerged, Batching::kSeparate, Batching::kStatic));

TEST_P(SimNodes, SkippedStepsEqualSingleSteps) {
  int64_t heard_of = 0, heard_of_every = 0, evicted = 0;
  for (uint64_t seed = 1; seed <= 20 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    DrivenNode at_once(false, GetParam()), one_by_one(true, GetParam());
    TimePoint now{};
    for (RequestId id = 1; id <= 60 && !HasFailure(); ++id) {
      now += std::chrono::microseconds(std::uniform_int_distribution<int>(1, 600'000)(random));
      const SimNode::NewSimRequest sim_request = random_flight(id, random);
      at_once.add(sim_request, now);
      one_by_one.add(sim_request, now);
      now += std::chrono::microseconds(std::uniform_int_distribution<int>(1, 300'000)(random));
      at_once.go_to(now);
      one_by_one.go_to(now);
      same(at_once, one_by_one);
      const SimNode::Progress a = at_once.node.progress(id), b = one_by_one.node.progress(id);
      EXPECT_EQ(a.tokens, b.tokens);
      EXPECT_EQ(a.last, b.last);
      EXPECT_EQ(a.longest_gap, b.longest_gap);
      if (id % 10 == 0) {  // a fault begins or ends
        at_once.set_slowdown(id % 20 == 0 ? 1 : 1.5, now);
        one_by_one.set_slowdown(id % 20 == 0 ? 1 : 1.5, now);
      }
    }
    now += std::chrono::hours(1);
    at_once.go_to(now);
    one_by_one.go_to(now);
    same(at_once, one_by_one);
    EXPECT_EQ(at_once.node.report().running, 0);
    heard_of += at_once.steps_heard_of;
    heard_of_every += one_by_one.steps_heard_of;
    evicted += at_once.node.stats().evicted_blocks_total;
  }
  EXPECT_LT(heard_of * 2, heard_of_every);
  EXPECT_GT(evicted, 1'000);
}

// The values reported with each request's last token equal those observed after every step.
TEST_P(SimNodes, TokensAndGapsEqualThoseOfTheSteps) {
  struct Seen {
    int32_t new_tokens = 0, tokens = 0;
    TimePoint last{};
    Duration longest_gap{};
  };
  std::map<RequestId, Seen> seen;
  std::mt19937_64 random(3);
  NodeProfile tight = small_node();
  tight.kv_cache_tokens = 2000;
  DrivenNode node(true, GetParam(), tight);
  const auto see = [&](RequestId id, int32_t tokens, TimePoint at) {
    Seen& s = seen.at(id);
    ASSERT_LE(tokens - s.tokens, 1) << "of one step";
    if (tokens == s.tokens) return;
    if (s.tokens > 0) s.longest_gap = std::max(s.longest_gap, at - s.last);
    s.tokens = tokens;
    s.last = at;
  };
  node.on_step = [&](TimePoint at, const std::vector<SimNode::Token>& told) {
    for (const SimNode::Token& token : told) {
      if (!token.last) continue;
      see(token.id, token.tokens, at);
      EXPECT_EQ(token.tokens, seen.at(token.id).new_tokens);
      EXPECT_EQ(token.longest_gap, seen.at(token.id).longest_gap) << token.id;
      seen.erase(token.id);
    }
    for (const auto& [id, unused] : seen) see(id, node.node.progress(id).tokens, at);
  };
  TimePoint now{};
  for (RequestId id = 1; id <= 200; ++id) {
    now += std::chrono::microseconds(std::uniform_int_distribution<int>(1, 150'000)(random));
    const SimNode::NewSimRequest sim_request = random_flight(id, random);
    node.add(sim_request, now);
    seen[id].new_tokens = sim_request.new_tokens;
  }
  node.go_to(now + std::chrono::hours(1));
  EXPECT_TRUE(seen.empty());
  EXPECT_GT(node.node.stats().preemptions_total, 0);
}

// A request that is cancelled in the midst of its answer leaves the others' as they were, and nothing behind.
TEST_P(SimNodes, NothingIsReportedOfACancelledRequest) {
  DrivenNode node(false, GetParam());
  SimNode::NewSimRequest sim_request;
  sim_request.prompt_tokens = 100;
  sim_request.new_tokens = 50;
  for (sim_request.id = 1; sim_request.id <= 3; ++sim_request.id) node.add(sim_request, {});
  bool cancelled = false;
  node.on_step = [&](TimePoint, const std::vector<SimNode::Token>&) {
    if (cancelled || node.node.progress(2).tokens < 1) return;
    cancelled = true;
    node.node.cancel(2);
    node.node.cancel(7);  // unknown: ignored
  };
  node.go_to(TimePoint(std::chrono::minutes(1)));
  ASSERT_TRUE(cancelled);
  std::map<RequestId, int32_t> counts;
  for (const auto& [at, token] : node.tokens) counts[token.id] += token.tokens;
  EXPECT_EQ(counts, (std::map<RequestId, int32_t>{{1, 50}, {2, 0}, {3, 50}}));
  EXPECT_EQ(node.node.count_of([](RequestId) { return true; }), 0);
  EXPECT_EQ(node.node.report().running, 0);
  EXPECT_TRUE(node.node.verify().ok()) << node.node.verify();
  EXPECT_TRUE(check(node.node.prompt_sums()).ok());
}

}  // namespace node_test
}  // namespace troupe::sim
