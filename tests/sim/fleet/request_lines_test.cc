// Output of --requests: a line per request; the lines' sums equal the report.

#include "sim/fleet/request_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tests/sim/simulator_testing.h"

namespace troupe::sim {
namespace {

using namespace simulator_test;
using std::chrono::microseconds;

std::string line_of(const RequestLine& line) {
  std::string out;
  append_request_line(out, line);
  return out;
}

TEST(RequestLines, AnsweredRequestHasAllMembers) {
  RequestLine line;
  line.number = 7;
  line.arrived = microseconds(1234567);
  line.first = microseconds(1234567 + 3100);
  line.ended = microseconds(1234567 + 41000);
  line.turn = 2;
  line.prompt_tokens = 412;
  line.tokens = 24;
  line.simulated_node = 3;
  line.branch = "session";
  line.attempts = 1;
  line.expected_tokens = line.cached_tokens = 384;
  EXPECT_EQ(
      line_of(line),
      R"({"number":7,"timestamp":1234.567,"turn":2,"input_length":412,"output_length":24,"node":"n3",)"
      R"("branch":"session","attempts":1,"expected":384,"cached":384,"ttft_ms":3.100,"duration_ms":41.000})"
      "\n");
}

TEST(RequestLines, RefusedRequestSaysWhyAndHowLongItWaited) {
  RequestLine line;
  line.number = 3;
  line.prompt_tokens = 20;
  line.ended = microseconds(60'000'000);
  line.end = RequestEnd::kRefused;
  line.place.outcome = route::AdmissionOutcome::kTimedOut;
  line.place.waited = true;
  line.place.wait = std::chrono::seconds(60);
  EXPECT_EQ(line_of(line),
            R"({"number":3,"timestamp":0.000,"input_length":20,"output_length":0,"attempts":0,)"
            R"("duration_ms":60000.000,"queue_ms":60000.000,"lost":true,"refused":"timed_out","status":503})"
            "\n");
  line = {};
  line.live_status = 429;
  line.end = RequestEnd::kLost;
  EXPECT_THAT(line_of(line), testing::HasSubstr(R"("lost":true,"status":429})"));
}

TEST(RequestLines, UnreportedMembersAreAbsent) {
  RequestLine line;
  line.number = 1;
  line.prompt_tokens = 20;
  line.ended = microseconds(50);
  line.end = RequestEnd::kLost;
  EXPECT_EQ(line_of(line),
            R"({"number":1,"timestamp":0.000,"input_length":20,"output_length":0,"attempts":0,)"
            R"("duration_ms":0.050,"lost":true})"
            "\n");
  line.tokens = -1;
  EXPECT_THAT(line_of(line), testing::Not(testing::HasSubstr("output_length")));
  line.live_node = "a\"b";
  line.end = RequestEnd::kUnfinished;
  EXPECT_THAT(line_of(line), testing::HasSubstr(R"("node":"a\"b")"));
  EXPECT_THAT(line_of(line), testing::EndsWith(",\"unfinished\":true}\n"));
}

struct Sums {
  std::set<int64_t> numbers;
  int64_t lost = 0, prompt = 0, cached = 0, retried = 0;
  std::map<int32_t, int64_t> answered;  // by node
};

Sums sums_of(const PersonaWorkload& workload, SimulationOptions options, Result& result) {
  Sums sums;
  options.on_request = [&sums](const RequestLine& line) {
    EXPECT_TRUE(sums.numbers.insert(line.number).second) << line.number << " ended twice";
    EXPECT_GE(line.ended, line.first.value_or(line.arrived));
    EXPECT_GE(line.first.value_or(line.arrived), line.arrived);
    if (line.end == RequestEnd::kLost) sums.lost += 1;
    if (line.end == RequestEnd::kAnswered) sums.answered[line.simulated_node] += 1;
    sums.prompt += line.prompt_tokens;
    sums.cached += std::max<int64_t>(0, line.cached_tokens);
    sums.retried += line.attempts > 1 ? 1 : 0;
  };
  result = run_personas(workload, options);
  return sums;
}

TEST(RequestLines, SumsEqualTheReport) {
  Result result;
  const Sums sums = sums_of(kSmall, options_of(3, 2), result);
  ASSERT_GT(result.requests, 1000);
  EXPECT_EQ(static_cast<int64_t>(sums.numbers.size()), result.requests);
  EXPECT_EQ(*sums.numbers.begin(), 1);
  EXPECT_EQ(*sums.numbers.rbegin(), result.requests);
  EXPECT_EQ(sums.lost, 0);
  EXPECT_EQ(sums.prompt, result.prompt_tokens);
  EXPECT_NEAR(static_cast<double>(sums.cached) / static_cast<double>(sums.prompt), result.hit_tokens, 1e-9);
  ASSERT_EQ(result.node_series.size(), 3u);
  for (int32_t node = 0; node < 3; ++node)
    EXPECT_EQ(sums.answered.at(node), result.node_series[static_cast<size_t>(node)].requests);
}

TEST(RequestLines, LostAndRetriedRequestsOfAFaultAreIncluded) {
  SimulationOptions options = options_of(3);
  options.resume = false;
  options.faults = {{.kind = Fault::Kind::kKill, .at_s = 20, .target = 1}};
  Result result;
  const Sums sums = sums_of(kSmall, options, result);
  EXPECT_EQ(static_cast<int64_t>(sums.numbers.size()), result.requests);
  EXPECT_GT(result.lost, 0);
  EXPECT_EQ(sums.lost, result.lost);
  EXPECT_GT(sums.retried, 0);
  EXPECT_LE(sums.retried, result.retries);
}

// They resume at another node, whose cache the report's hits do not include.
TEST(RequestLines, SumsWithResumedRequestsEqualTheReport) {
  PersonaWorkload workload = kSmall;
  workload.output_tokens = 1500;
  workload.rate = 6;
  SimulationOptions options = options_of(3);
  options.faults = {{.kind = Fault::Kind::kKill, .at_s = 30, .target = 0}};
  Result result;
  const Sums sums = sums_of(workload, options, result);
  EXPECT_GT(result.faults.resumed, 0);
  EXPECT_EQ(sums.prompt, result.prompt_tokens);
  EXPECT_NEAR(static_cast<double>(sums.cached) / static_cast<double>(sums.prompt), result.hit_tokens, 1e-9);
}

// The run is the same with and without a listener.
TEST(RequestLines, WritingThemDoesNotChangeTheRun) {
  Result told;
  sums_of(kSmall, options_of(3), told);
  const Result untold = run_personas(kSmall, options_of(3));
  EXPECT_EQ(told.hit_tokens, untold.hit_tokens);
  EXPECT_EQ(told.ttft_ms.p99, untold.ttft_ms.p99);
}

// A request still being answered when the run ends is neither lost nor answered.
TEST(RequestLines, RunsEndLeavesSomeUnfinished) {
  PersonaWorkload workload = kSmall;
  workload.output_tokens = 2000;
  SimulationOptions options = options_of(1);
  options.drain_s = 0.5;
  int64_t unfinished = 0, lines = 0, tokens = 0;
  options.on_request = [&](const RequestLine& line) {
    lines += 1;
    if (line.end != RequestEnd::kUnfinished) return;
    unfinished += 1;
    tokens += line.tokens;
  };
  const Result result = run_personas(workload, options);
  EXPECT_EQ(lines, result.requests);
  EXPECT_GT(unfinished, 0);
  EXPECT_GT(tokens, 10 * unfinished) << "what they were answered so far";
}

}  // namespace
}  // namespace troupe::sim
