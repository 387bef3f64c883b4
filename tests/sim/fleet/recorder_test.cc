// Figures of a run from hand-made events.

#include "sim/fleet/recorder.h"

#include <gtest/gtest.h>

namespace troupe::sim {
namespace recorder_test {

using std::chrono::milliseconds;
using std::chrono::seconds;

TraceRequest request_at(Duration at, int32_t tokens) {
  TraceRequest r;
  r.at = at;
  r.input_tokens = tokens;
  return r;
}

TEST(Percentiles, AreNearestRank) {
  std::vector<float> values;
  for (int i = 1; i <= 200; ++i) values.push_back(static_cast<float>(201 - i));
  const Percentiles p = percentiles(values);
  EXPECT_EQ(p.p50, 100);
  EXPECT_EQ(p.p90, 180);
  EXPECT_EQ(p.p99, 198);
  EXPECT_EQ(percentiles({}).p99, 0);
  EXPECT_EQ(percentiles({7}).p50, 7);
}

TEST(Recorder, CountsOnlyArrivalsAfterTheWarmUp) {
  Recorder recorder({.warmup = seconds(10), .slo_ttft_ms = 100, .slo_tpot_ms = 20, .pooled_kv_tokens = 1000});
  for (const int at : {5, 12, 13, 14}) {
    recorder.arrived(request_at(seconds(at), 100));
    recorder.first_token(
        {seconds(at), seconds(at) + milliseconds(at == 13 ? 150 : 50), 0, 100, at == 12 ? 80 : 20});
  }
  recorder.finished({seconds(5), seconds(5), seconds(6), 0, 2, {}});
  recorder.finished({seconds(12), seconds(12) + milliseconds(50), seconds(12) + milliseconds(150), 0, 11,
                     milliseconds(30)});
  recorder.finished({seconds(13), seconds(13) + milliseconds(150), seconds(14), 0, 100, milliseconds(10)});
  recorder.lost({seconds(14), seconds(20)});
  Result result;
  recorder.fill(result);
  EXPECT_EQ(result.requests, 3);
  EXPECT_EQ(result.lost, 1);
  EXPECT_EQ(result.prompt_tokens, 300);
  EXPECT_DOUBLE_EQ(result.hit_tokens, 120.0 / 300);
  EXPECT_EQ(result.ttft_ms.p50, 50);
  EXPECT_EQ(result.ttft_ms.p99, 150);
  EXPECT_NEAR(result.tpot_mean_ms, (10 + 850.0 / 99) / 2, 1e-3);
  EXPECT_DOUBLE_EQ(result.goodput, 1.0 / 3) << "one too late, one lost";
  EXPECT_FALSE(result.has_faults);
  ASSERT_EQ(result.seconds.size(), 21u);
  EXPECT_EQ(result.seconds[5].arrived, 1) << "series have the warm-up too";
}

// Two requests have one prompt: the first is never admitted, the second finds half of it.
TEST(Recorder, UnadmittedRequestCountsAsAMiss) {
  Recorder recorder({.warmup = seconds(10), .pooled_kv_tokens = 1000});
  const auto ask = [&recorder](int at) {
    TraceRequest r = request_at(seconds(at), 32);
    r.block_tokens = 16;
    r.blocks = {1, 2};
    recorder.arrived(r);
  };
  ask(9);
  recorder.lost({seconds(9), seconds(9), 32});
  ask(12);
  recorder.lost({seconds(12), seconds(13), 32});
  ask(14);
  recorder.first_token({seconds(14), seconds(15), 0, 32, 16});
  recorder.lost({seconds(14), seconds(16)});  // the stream broke off: its tokens count once
  Result result;
  recorder.fill(result);
  EXPECT_EQ(result.lost, 2);
  EXPECT_DOUBLE_EQ(result.hit_tokens, 16.0 / 64);
  EXPECT_DOUBLE_EQ(result.pooled_lru_hit, 1) << "of the same 64, which the warm-up had";
}

TEST(Recorder, ListsWhyRequestsWereLostTheMostFrequentFirst) {
  Recorder recorder({.warmup = seconds(1), .pooled_kv_tokens = 1000});
  recorder.lost({seconds(0), seconds(9), 0, "in the warm-up"});
  for (const char* why : {"a", "b", "b"}) recorder.lost({seconds(2), seconds(9), 0, why});
  for (int i = 0; i < 100; ++i)
    recorder.lost({seconds(2), seconds(9), 0, "server said " + std::to_string(i)});
  Result result;
  recorder.fill(result);
  EXPECT_EQ(result.lost, 103);
  ASSERT_EQ(result.losses.size(), 32u) << "a server's words have a bound";
  EXPECT_EQ(result.losses[0].why, "other reasons");
  EXPECT_EQ(result.losses[1].why, "b");
  EXPECT_EQ(result.losses[1].count, 2);
  int64_t all = 0;
  for (const Loss& loss : result.losses) all += loss.count;
  EXPECT_EQ(all, result.lost);
}

std::vector<Recorder::NodeStand> stands(std::initializer_list<int64_t> work, bool last_alive = true) {
  std::vector<Recorder::NodeStand> out;
  for (const int64_t w : work) out.push_back({.work_tokens = w});
  out.back().alive = last_alive;
  return out;
}

TEST(Recorder, WorkCovIsTheMeanOfTheWindows) {
  Recorder recorder({.pooled_kv_tokens = 1});
  recorder.arrived(request_at(seconds(9), 1));
  for (int second = 0; second < 10; ++second)
    recorder.second_over(second, stands({100 * (second + 1), 300 * (second + 1)}));
  Result result;
  recorder.fill(result);
  EXPECT_NEAR(result.work_cov5, 0.5, 1e-9) << "mean 200 a second, std 100";
  EXPECT_NEAR(result.work_cov, 0.5, 1e-9) << "ten seconds are all there is of a hundred";
  EXPECT_EQ(result.node_series[1].work_tokens, 3000);
  EXPECT_EQ(result.node_series[1].work_per_s[4], 300);
}

TEST(Recorder, NodeDownInAWindowIsNotInItsCov) {
  Recorder recorder({.pooled_kv_tokens = 1});
  recorder.arrived(request_at(seconds(4), 1));
  for (int second = 0; second < 5; ++second)
    recorder.second_over(second, stands({100 * (second + 1), 100 * (second + 1), 7}, second != 2));
  Result result;
  recorder.fill(result);
  EXPECT_EQ(result.work_cov5, 0);
  EXPECT_EQ(result.node_series[1].up, std::vector<bool>(5, true));
  EXPECT_EQ(result.node_series[2].up, (std::vector<bool>{true, true, false, true, true}));
}

TEST(Recorder, FaultFiguresCompareWithTheTenSecondsBefore) {
  Recorder recorder({.slo_ttft_ms = 1e9, .slo_tpot_ms = 1e9, .pooled_kv_tokens = 1});
  for (int second = 0; second < 40; ++second) {
    const bool hurt = second >= 20 && second < 24;
    recorder.arrived(request_at(seconds(second), 100));
    recorder.first_token(
        {seconds(second), seconds(second) + milliseconds(hurt ? 90 : 30), 0, 100, hurt ? 40 : 80});
    recorder.second_over(second, stands({1}));
  }
  // A straggler after the last arrival is no dip.
  recorder.first_token({seconds(39), seconds(45), 0, 100, 0});
  recorder.finished({seconds(1), seconds(1), seconds(2), 0, 5, milliseconds(900)});
  recorder.fault(seconds(20));
  recorder.resumed(seconds(1));
  recorder.finished({seconds(19), seconds(19), seconds(21), 0, 5, milliseconds(400)});
  Result result;
  recorder.fill(result);
  ASSERT_TRUE(result.has_faults);
  EXPECT_NEAR(result.faults.hit_dip.value(), 0.4, 1e-9);
  EXPECT_EQ(result.faults.t95_s, 4) << "the first three seconds that are whole again";
  EXPECT_EQ(result.faults.p99_before_ms, 30);
  EXPECT_EQ(result.faults.p99_peak_ms, 90);
  EXPECT_EQ(result.faults.p99_settled_s, 4);
  EXPECT_EQ(result.faults.stall_max_ms, 400) << "of what was over before nothing can be blamed on it";
  EXPECT_EQ(result.faults.resumed, 1);
}

// Without requests before it there is nothing to fall from or return to.
TEST(Recorder, FaultWithoutRequestsBeforeOrAfterHasNoSuchFigures) {
  const auto run = [](int fault, int traffic_from, int traffic_to) {
    Recorder recorder({.pooled_kv_tokens = 1});
    recorder.fault(seconds(fault));
    for (int second = 0; second < 40; ++second) {
      if (second >= traffic_from && second < traffic_to) {
        recorder.arrived(request_at(seconds(second), 100));
        recorder.first_token({seconds(second), seconds(second) + milliseconds(30), 0, 100, 80});
      }
      recorder.second_over(second, stands({1}));
    }
    Result result;
    recorder.fill(result);
    EXPECT_TRUE(result.has_faults);
    return result.faults;
  };
  for (const FaultFigures& early : {run(0, 0, 40), run(20, 25, 40)}) {
    EXPECT_EQ(early.hit_dip, std::nullopt);
    EXPECT_EQ(early.t95_s, std::nullopt);
    EXPECT_EQ(early.p99_before_ms, std::nullopt);
    EXPECT_EQ(early.p99_settled_s, std::nullopt);
    EXPECT_EQ(early.p99_peak_ms, 30);
  }
  const FaultFigures late = run(30, 0, 30);
  EXPECT_EQ(late.p99_before_ms, 30);
  for (const auto& none : {late.hit_dip, late.t95_s, late.p99_peak_ms, late.p99_settled_s})
    EXPECT_EQ(none, std::nullopt) << "not 'never': nobody asked";
  const FaultFigures sparse = run(20, 15, 40);
  EXPECT_EQ(sparse.p99_before_ms, 30) << "of the five seconds that had any";
  EXPECT_EQ(sparse.hit_dip, 0);
  EXPECT_EQ(sparse.t95_s, 0);
}

TEST(Recorder, RetriesPreemptionsAndResumesCountAfterTheWarmUp) {
  Recorder recorder({.warmup = seconds(2), .pooled_kv_tokens = 1});
  recorder.arrived(request_at(seconds(3), 1));
  recorder.retried(seconds(1));
  recorder.retried(seconds(2));
  recorder.resumed(seconds(1));
  recorder.resumed(seconds(3));
  recorder.resumed(seconds(4));
  recorder.fault(seconds(3));
  for (int second = 0; second < 4; ++second) {
    auto nodes = stands({1});
    nodes[0].preemptions = 10 * (second + 1);
    recorder.second_over(second, nodes);
  }
  Result result;
  recorder.fill(result);
  EXPECT_EQ(result.retries, 1);
  EXPECT_EQ(result.faults.resumed, 2);
  EXPECT_EQ(result.preemptions, 20) << "of seconds 2 and 3";
  EXPECT_EQ(result.node_series[0].preemptions, 40) << "the series have the warm-up";
}

TEST(Recorder, FaultsInTheWarmUpAreCountedAndHaveNoFigures) {
  Recorder recorder({.warmup = seconds(15), .pooled_kv_tokens = 1});
  recorder.fault(seconds(5));
  for (int second = 0; second < 40; ++second) {
    const bool hurt = second >= 5 && second < 8;
    recorder.arrived(request_at(seconds(second), 100));
    recorder.first_token({seconds(second), seconds(second) + milliseconds(hurt ? 900 : 30), 0, 100, 80});
    recorder.second_over(second, stands({1}));
  }
  Result early;
  recorder.fill(early);
  EXPECT_FALSE(early.has_faults);
  EXPECT_EQ(early.faults.in_warmup, 1);
  recorder.fault(seconds(25));
  Result late;
  recorder.fill(late);
  ASSERT_TRUE(late.has_faults);
  EXPECT_EQ(late.faults.in_warmup, 1);
  EXPECT_EQ(late.faults.p99_before_ms, 30);
  EXPECT_EQ(late.faults.p99_peak_ms, 30) << "of the second one alone";
}

TEST(Recorder, PooledBoundHasTheMemoryOfTheNodesThatAreUp) {
  Recorder recorder({.pooled_kv_tokens = 32});
  const auto ask = [&](uint64_t content) {
    TraceRequest r = request_at(seconds(1), 32);
    r.block_tokens = 16;
    r.blocks = {content, content + 1};
    recorder.arrived(r);
  };
  const auto hit = [&] {
    Result result;
    recorder.fill(result);
    return result.pooled_lru_hit * static_cast<double>(result.prompt_tokens);
  };
  ask(10);
  ask(20);
  ask(10);
  EXPECT_NEAR(hit(), 0, 1e-9) << "either of them fits, not both";
  recorder.pool_changed(64);
  ask(20);
  ask(10);
  EXPECT_NEAR(hit(), 32, 1e-9) << "a node joined";
  recorder.pool_changed(32);
  ask(20);
  EXPECT_NEAR(hit(), 32, 1e-9) << "a node died, and what was used longest ago with it";
}

TEST(Recorder, PoolOfUnknownSizeHasNoBound) {
  Recorder recorder({.pooled_kv_tokens = -1});
  for (const int at : {1, 2}) {
    TraceRequest r = request_at(seconds(at), 32);
    r.block_tokens = 16;
    r.blocks = {1, 2};
    recorder.arrived(r);
  }
  Result result;
  recorder.fill(result);
  EXPECT_FALSE(result.has_pool);
  EXPECT_EQ(result.pooled_lru_hit, 0);
  EXPECT_EQ(result.infinite_hit, 0.5);
}

TEST(Recorder, FlashCrowdIsComparedWithTheOthersAndTheMinuteBefore) {
  Recorder recorder(
      {.warmup = seconds(100), .pooled_kv_tokens = 1, .crowd_set = 7, .crowd_begin = seconds(100)});
  const auto first = [&](int at, int64_t ms, uint64_t set) {
    recorder.first_token({seconds(at), seconds(at) + milliseconds(ms), 0, 100, 0, set});
  };
  first(39, 999, 1);
  first(40, 20, 1);
  first(99, 10, 2);
  first(100, 30, 1);
  first(101, 40, 2);
  first(101, 500, 7);
  Result result;
  recorder.fill(result);
  ASSERT_TRUE(result.crowd.has_value());
  EXPECT_EQ(result.crowd->before_ms, 20);
  EXPECT_EQ(result.crowd->others_ms, 40);
  EXPECT_EQ(result.crowd->crowd_ms, 500);
}

}  // namespace recorder_test
}  // namespace troupe::sim
