// Reports as their readers parse them: promised names with their values, and no parts that were not asked
// for.

#include "sim/report/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/json/json.h"
#include "sim/fleet/simulator.h"
#include "sim/workload/workload.h"

namespace troupe::sim {
namespace report_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

bj::object parsed(const std::string& json) {
  EXPECT_TRUE(json.ends_with("}\n"));
  const auto value = parse_json(json);
  EXPECT_TRUE(value.ok()) << value.status();
  return value.ok() ? value->as_object() : bj::object();
}

std::vector<std::string> keys_of(const bj::value& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.as_object()) keys.emplace_back(key);
  return keys;
}

double number(const bj::value& value) {
  return value.to_number<double>();
}

// All figures differ, so that none can stand in another's place.
Result by_hand() {
  Result r;
  r.policy = "affinity";
  r.mode = "gossip";
  r.profile = "study";
  r.nodes = 2;
  r.gateways = 3;
  r.seed = 99;
  r.requests = 1000;
  r.lost = 7;
  r.prompt_tokens = 123'456;
  r.hit_tokens = 0.81;
  r.pooled_lru_hit = 0.82;
  r.infinite_hit = 0.93;
  r.work_cov = 0.04;
  r.work_cov5 = 0.05;
  r.ttft_ms = {11, 22, 33};
  r.tpot_mean_ms = 5.5;
  r.tpot_p99_ms = 6.5;
  r.goodput = 0.995;
  r.duration_s = 60;
  r.preemptions = 4;
  r.retries = 5;
  r.seconds = {{.arrived = 3, .finished = 2, .lost = 1, .prompt_tokens = 200, .hit_tokens = 50, .waiting = 8},
               {.ttft_p50_ms = 12.5F, .ttft_p99_ms = 44}};
  r.node_series = {{.id = "n0",
                    .requests = 17,
                    .prompt_tokens = 400,
                    .hit_tokens = 300,
                    .work_tokens = 5000,
                    .preemptions = 4,
                    .work_per_s = {100, 200},
                    .running = {1, 2},
                    .kv_used = {0.25, 0.5},
                    .up = {true, false}}};
  r.simulated_requests = 2000;
  r.wall_s = 4;
  r.decision_us = 1.5;
  r.events = 31'000;
  return r;
}

TEST(Report, HasTheFiguresOfARunByName) {
  const bj::object report = parsed(report_json(by_hand()));
  EXPECT_EQ(report.at("policy").as_string(), "affinity");
  EXPECT_EQ(report.at("mode").as_string(), "gossip");
  EXPECT_EQ(report.at("profile").as_string(), "study");
  const std::vector<std::pair<const char*, double>> figures{{"nodes", 2},
                                                            {"gateways", 3},
                                                            {"seed", 99},
                                                            {"requests", 1000},
                                                            {"lost", 7},
                                                            {"prompt_tokens", 123'456},
                                                            {"hit_tokens", 0.81},
                                                            {"pooled_lru_hit", 0.82},
                                                            {"infinite_hit", 0.93},
                                                            {"work_cov", 0.04},
                                                            {"work_cov5", 0.05},
                                                            {"goodput", 0.995},
                                                            {"duration_s", 60},
                                                            {"preemptions", 4},
                                                            {"retries", 5}};
  for (const auto& [name, value] : figures) {
    ASSERT_TRUE(report.contains(name)) << name;
    EXPECT_EQ(number(report.at(name)), value) << name;
  }
  EXPECT_EQ(report.at("ttft_ms"), bj::value({{"p50", 11}, {"p90", 22}, {"p99", 33}}));
  EXPECT_EQ(number(report.at("tpot_ms").at("mean")), 5.5);
  EXPECT_EQ(number(report.at("tpot_ms").at("p99")), 6.5);
}

TEST(Report, HasSeriesOfSecondsAndNodesAsColumns) {
  const bj::object report = parsed(report_json(by_hand()));
  const bj::object& seconds = report.at("per_second").as_object();
  EXPECT_THAT(keys_of(seconds), ElementsAre("arrived", "finished", "lost", "hit_tokens", "ttft_p50_ms",
                                            "ttft_p99_ms", "waiting"));
  for (const auto& [name, column] : seconds) EXPECT_EQ(column.as_array().size(), 2u) << name;
  EXPECT_EQ(number(seconds.at("arrived").at(0)), 3);
  EXPECT_EQ(number(seconds.at("hit_tokens").at(0)), 0.25);
  EXPECT_EQ(number(seconds.at("ttft_p99_ms").at(1)), 44);
  EXPECT_EQ(number(seconds.at("waiting").at(0)), 8);
  ASSERT_EQ(report.at("per_node").as_array().size(), 1u);
  const bj::object& node = report.at("per_node").at(0).as_object();
  EXPECT_THAT(keys_of(node), ElementsAre("id", "requests", "hit_tokens", "work_tokens", "preemptions",
                                         "work_per_s", "running", "kv_used", "up"));
  EXPECT_EQ(number(node.at("up").at(0)), 1);
  EXPECT_EQ(number(node.at("up").at(1)), 0);
  EXPECT_EQ(node.at("id").as_string(), "n0");
  EXPECT_EQ(number(node.at("hit_tokens")), 0.75);
  EXPECT_EQ(number(node.at("work_tokens")), 5000);
  EXPECT_EQ(number(node.at("kv_used").at(1)), 0.5);
}

TEST(Report, LeavesOutAbsentParts) {
  Result r = by_hand();
  r.policy = "round-robin";
  r.mode = "";
  const bj::object report = parsed(report_json(r));
  for (const char* name :
       {"mode", "faults", "faults_in_warmup", "crowd_ttft_p99_ms", "skipped_lines", "losses"})
    EXPECT_FALSE(report.contains(name)) << name;
  r.skipped_lines = 0;
  EXPECT_EQ(number(parsed(report_json(r)).at("skipped_lines")), 0) << "asked for, and none was bad";
}

TEST(Report, HasTheFiguresOfFaultsAndOfACrowd) {
  Result r = by_hand();
  r.has_faults = true;
  r.faults = {.hit_dip = 0.04,
              .t95_s = 2,
              .p99_before_ms = 100,
              .p99_peak_ms = 220,
              .p99_settled_s = 3,
              .stall_max_ms = 60.5,
              .resumed = 12};
  r.faults.in_warmup = 2;
  r.crowd = CrowdFigures{.before_ms = 21, .crowd_ms = 31, .others_ms = 41};
  const bj::object report = parsed(report_json(r));
  const bj::object& faults = report.at("faults").as_object();
  EXPECT_THAT(keys_of(faults), ElementsAre("hit_dip", "t95_s", "p99_before_ms", "p99_peak_ms",
                                           "p99_settled_s", "stall_max_ms", "resumed"));
  std::vector<double> values;
  for (const auto& [name, value] : faults) values.push_back(number(value));
  EXPECT_THAT(values, ElementsAre(0.04, 2, 100, 220, 3, 60.5, 12));
  EXPECT_EQ(number(report.at("faults_in_warmup")), 2);
  EXPECT_EQ(report.at("crowd_ttft_p99_ms"), bj::value({{"before", 21}, {"crowd", 31}, {"others", 41}}));
}

TEST(Report, BoundOfAPoolOfUnknownSizeIsNull) {
  Result r = by_hand();
  EXPECT_THAT(table_text(std::span(&r, 1)), HasSubstr(" 0.8100  0.8200 "));
  r.has_pool = false;
  EXPECT_TRUE(parsed(report_json(r)).at("pooled_lru_hit").is_null());
  EXPECT_THAT(table_text(std::span(&r, 1)), HasSubstr(" 0.8100       - "));
}

TEST(Report, FaultWithoutAComparisonIsNull) {
  Result r = by_hand();
  r.has_faults = true;
  r.faults.p99_peak_ms = 220;
  r.faults.stall_max_ms = 60.5;
  r.faults.resumed = 12;
  const bj::object report = parsed(report_json(r));
  const bj::object& faults = report.at("faults").as_object();
  EXPECT_EQ(faults, bj::value({{"hit_dip", nullptr},
                               {"t95_s", nullptr},
                               {"p99_before_ms", nullptr},
                               {"p99_peak_ms", 220},
                               {"p99_settled_s", nullptr},
                               {"stall_max_ms", 60.5},
                               {"resumed", 12}}));
  EXPECT_THAT(table_text(std::span(&r, 1)), HasSubstr("to compare hits with, p99 – → 220 ms"));
  r.faults.hit_dip = 0.04;
  r.faults.t95_s = -1;
  EXPECT_THAT(table_text(std::span(&r, 1)), HasSubstr("hit dip 0.040, never back to 95 %"));
}

TEST(Report, ComparisonsAndTimingsHaveOneEntryARun) {
  std::vector<Result> results{by_hand(), by_hand()};
  results[1].policy = "round-robin";
  results[1].requests = 5;
  const bj::object compared = parsed(comparison_json(results));
  EXPECT_THAT(keys_of(compared), ElementsAre("runs"));
  ASSERT_EQ(compared.at("runs").as_array().size(), 2u);
  EXPECT_EQ(compared.at("runs").at(0), bj::value(parsed(report_json(results[0]))));
  EXPECT_EQ(number(compared.at("runs").at(1).at("requests")), 5);
  const bj::object timed = parsed(timing_json(results));
  ASSERT_EQ(timed.at("runs").as_array().size(), 2u);
  const bj::object& run = timed.at("runs").at(1).as_object();
  EXPECT_EQ(run.at("policy").as_string(), "round-robin");
  EXPECT_EQ(number(run.at("decision_us")), 1.5);
  EXPECT_EQ(number(run.at("simulated_requests_per_s")), 500);
  EXPECT_EQ(number(run.at("wall_s")), 4);
  EXPECT_EQ(number(run.at("events")), 31'000);
  EXPECT_FALSE(parsed(report_json(results[0])).contains("decision_us")) << "a report is equal to the byte";
}

TEST(Report, HasTheGatewaysQueueWhereThereIsOne) {
  Result r = by_hand();
  EXPECT_FALSE(parsed(report_json(r)).contains("queue"));
  EXPECT_EQ(table_text(std::span(&r, 1)).find("queue"), std::string::npos);
  r.queue = QueueFigures{.waited = 70,
                         .wait_mean_ms = 210,
                         .wait_ms = {.p50 = 120, .p90 = 400, .p99 = 900},
                         .refused_429 = 8,
                         .refused_503 = 2,
                         .refused = {{"queue_full", 8}, {"timed_out", 2}}};
  const bj::object report = parsed(report_json(r));
  const bj::object& queue = report.at("queue").as_object();
  EXPECT_EQ(number(queue.at("waited")), 70);
  EXPECT_EQ(queue.at("wait_ms"), bj::value({{"mean", 210}, {"p50", 120}, {"p90", 400}, {"p99", 900}}));
  EXPECT_EQ(number(queue.at("refused_429")), 8);
  EXPECT_EQ(number(queue.at("refused_503")), 2);
  EXPECT_EQ(queue.at("refused"), bj::value({{"queue_full", 8}, {"timed_out", 2}}));
  const std::string text = table_text(std::span(&r, 1));
  EXPECT_NE(text.find("queue: 70 waited, p50 120, p99 900 ms; refused: 8 queue_full, 2 timed_out\n"),
            std::string::npos)
      << text;
}

TEST(Report, CapacityReportHasTheAnswerAndItsRun) {
  const CapacityAnswer answer{
      .rate = 123.5,
      .load = 1.25,
      .steps = {{.load = 1, .rate = 100, .goodput = 1, .ttft_p99_ms = 50, .holds = true},
                {.load = 2, .rate = 200, .goodput = 0.5, .ttft_p99_ms = 900}}};
  bj::object report = parsed(capacity_json(answer, by_hand()));
  EXPECT_EQ(number(report.at("sustainable_rate")), 123.5);
  EXPECT_EQ(number(report.at("load")), 1.25);
  ASSERT_EQ(report.at("steps").as_array().size(), 2u);
  const bj::object& failed = report.at("steps").at(1).as_object();
  EXPECT_THAT(keys_of(failed),
              ElementsAre("load", "rate", "goodput", "ttft_p99_ms", "tpot_p99_ms", "verdict"));
  EXPECT_EQ(number(failed.at("rate")), 200);
  EXPECT_EQ(failed.at("verdict").as_string(), "fails");
  EXPECT_EQ(report.at("steps").at(0).at("verdict").as_string(), "holds");
  for (const char* name : {"sustainable_rate", "load", "steps"}) report.erase(name);
  EXPECT_EQ(report, parsed(report_json(by_hand())));
}

TEST(Report, NodesReportHasTheAnswerAndItsRun) {
  const NodesAnswer answer{3,
                           "3 nodes are \"enough\"",
                           {{.rate = 100, .goodput = 1, .holds = true, .tpot_p99_ms = 7, .nodes = 3}}};
  bj::object report = parsed(nodes_json(answer, by_hand()));
  EXPECT_EQ(number(report.at("nodes_needed")), 3);
  EXPECT_EQ(report.at("answer").as_string(), "3 nodes are \"enough\"");
  EXPECT_THAT(keys_of(report.at("steps").at(0)),
              ElementsAre("nodes", "rate", "goodput", "ttft_p99_ms", "tpot_p99_ms", "verdict"));
  EXPECT_EQ(number(report.at("steps").at(0).at("nodes")), 3);
  for (const char* name : {"nodes_needed", "answer", "steps"}) report.erase(name);
  EXPECT_EQ(report, parsed(report_json(by_hand())));
}

TEST(Report, SaysWhyRequestsWereLost) {
  Result r = by_hand();
  r.losses = {{"too long for the nodes", 5}, {"its node stood still", 2}};
  const bj::object report = parsed(report_json(r));
  EXPECT_EQ(report.at("losses").at(0), bj::value({{"why", "too long for the nodes"}, {"count", 5}}));
  EXPECT_EQ(number(report.at("losses").at(1).at("count")), 2);
  EXPECT_THAT(table_text(std::span(&r, 1)),
              HasSubstr("\n  lost: 5 too long for the nodes, 2 its node stood still\n"));
}

// A real run's report: shares are shares, series are as long as the run, and sums agree.
TEST(Report, ReportOfASimulatedDeathIsComplete) {
  SimulationOptions options;
  options.profile = *load_node_profile("study");
  options.nodes = 3;
  options.warmup_s = 10;
  options.faults = {{.kind = Fault::Kind::kKill, .at_s = 20, .target = 1}};
  const PersonaWorkload workload{
      .personas = 50, .card_tokens = 500, .turns = 4, .think_s = 5, .rate = 40, .duration_s = 40};
  const auto result = simulate(**PersonaSource::make(workload, 1), options);
  ASSERT_TRUE(result.ok()) << result.status();
  const bj::object report = parsed(report_json(*result));
  EXPECT_THAT(keys_of(report),
              IsSupersetOf({"policy", "mode", "nodes", "gateways", "seed", "requests", "lost", "ttft_ms",
                            "tpot_ms", "faults", "per_second", "per_node"}));
  for (const char* share : {"hit_tokens", "pooled_lru_hit", "infinite_hit", "goodput"}) {
    EXPECT_GT(number(report.at(share)), 0.3) << share;
    EXPECT_LE(number(report.at(share)), 1) << share;
  }
  double arrived = 0;
  const bj::array& each_second = report.at("per_second").at("arrived").as_array();
  for (size_t second = 10; second < each_second.size(); ++second) arrived += number(each_second[second]);
  EXPECT_EQ(number(report.at("requests")), arrived) << "those after the warm-up";
  EXPECT_EQ(report.at("per_node").as_array().size(), 3u);
  for (const bj::value& node : report.at("per_node").as_array())
    EXPECT_EQ(node.at("work_per_s").as_array().size(), each_second.size());
  const bj::value& faults = report.at("faults");
  EXPECT_GT(number(faults.at("resumed")), 0);
  EXPECT_GE(number(faults.at("stall_max_ms")), 50) << "detect_ms";
  EXPECT_GT(number(faults.at("p99_peak_ms")), 0);
}

}  // namespace report_test
}  // namespace troupe::sim
