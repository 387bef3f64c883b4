// Nodes that hang, their connections open: what the gateways' own machine makes of it on the virtual clock. A
// stream falls silent and is gone on with elsewhere, or it is waited for; its client has each token once (the
// conservation checks end the program where not).

#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "sim/fleet/simulator.h"
#include "tests/sim/simulator_testing.h"

namespace troupe::sim {
namespace simulator_stall_test {

using simulator_test::kSmall;
using simulator_test::ListSource;
using simulator_test::options_of;
using simulator_test::request;
using simulator_test::run_personas;

struct Ran {
  Result result;
  std::map<int64_t, RequestLine> lines;  // by number
  double ttft_s(int64_t number) const {
    const RequestLine& line = lines.at(number);
    return std::chrono::duration<double>(line.first.value() - line.arrived).count();
  }
  double ended_s(int64_t number) const {
    return std::chrono::duration<double>(lines.at(number).ended).count();
  }
};

Ran run(const std::vector<TraceRequest>& requests, SimulationOptions options) {
  Ran out;
  options.conservation_every = 1;
  options.on_request = [&out](const RequestLine& line) { out.lines[line.number] = line; };
  ListSource source(requests);
  out.result = simulator_test::run(source, options);
  return out;
}

// Where the request is answered while nothing goes wrong.
int32_t node_of(int64_t number, const std::vector<TraceRequest>& requests, const SimulationOptions& options) {
  return run(requests, options).lines.at(number).simulated_node;
}

Fault hang(int32_t node, double at_s, double for_s) {
  return {.kind = Fault::Kind::kStall, .at_s = at_s, .target = node, .for_s = for_s};
}

// A stream of 600 tokens, three seconds and more, and what else there is.
const TraceRequest kStream = request(0, 1600, 600, 1);

TEST(SimulatorStall, AStreamOutlastsAShortHang) {
  SimulationOptions options = options_of(2);
  options.faults = {hang(node_of(1, {kStream}, options), 1, 0.3)};
  const Ran ran = run({kStream}, options);
  EXPECT_EQ(ran.lines.at(1).attempts, 1);
  EXPECT_EQ(ran.lines.at(1).tokens, 600);
  EXPECT_EQ(ran.result.faults.resumed, 0);
  EXPECT_NEAR(ran.result.faults.stall_max_ms, 300, 10);
}

TEST(SimulatorStall, AStreamOfANodeThatHangsForLongGoesOnElsewhere) {
  SimulationOptions options = options_of(2);
  const int32_t hung = node_of(1, {kStream}, options);
  options.faults = {hang(hung, 1, 30)};
  const Ran ran = run({kStream, request(40, 64, 2, 2)}, options);
  const RequestLine& line = ran.lines.at(1);
  EXPECT_EQ(line.attempts, 2);
  EXPECT_NE(line.simulated_node, hung);
  EXPECT_EQ(line.tokens, 600) << "each once";
  EXPECT_EQ(ran.result.faults.resumed, 1);
  EXPECT_EQ(ran.result.lost, 0);
  EXPECT_LT(ran.ended_s(1), 6) << "long before the hang is over";
  // The gateway's patience, and the prompt with the part of the answer that its client has: 2,000 tokens at
  // 30,000 a second.
  EXPECT_GT(ran.result.faults.stall_max_ms, 400);
  EXPECT_LT(ran.result.faults.stall_max_ms, 400 + 80);
  const auto& work = ran.result.node_series.at(static_cast<size_t>(1 - hung)).work_per_s;
  EXPECT_EQ(std::accumulate(work.begin(), work.begin() + 10, 0.0F), 1600 + 600)
      << "all that the client has is in the prompt there, and the rest is answered";
  const NodeSeries& series = ran.result.node_series.at(static_cast<size_t>(hung));
  EXPECT_EQ(series.running.at(29), 1) << "it has the request as long as it hangs";
  EXPECT_EQ(series.running.at(32), 0) << "and sees then that it is not read";
}

TEST(SimulatorStall, WithoutResumeAStreamIsWaitedFor) {
  SimulationOptions options = options_of(2);
  options.faults = {hang(node_of(1, {kStream}, options), 1, 5)};
  options.resume = false;
  const Ran ran = run({kStream}, options);
  EXPECT_EQ(ran.lines.at(1).attempts, 1);
  EXPECT_EQ(ran.lines.at(1).tokens, 600);
  EXPECT_NEAR(ran.result.faults.stall_max_ms, 5000, 10);
}

// A conversation's second request, which comes to a node that hangs already, unseen.
const std::vector<TraceRequest> kSecondTurn{request(0, 1600, 10, 1), request(2, 1600, 10, 1)};

SimulationOptions probed_only_when_asked() {
  SimulationOptions options = options_of(3);
  options.probe.interval = std::chrono::minutes(10);
  return options;
}

TEST(SimulatorStall, ARequestWithoutAFirstByteIsSentElsewhereOnceAProbeHasFailed) {
  SimulationOptions options = probed_only_when_asked();
  const int32_t hung = node_of(2, kSecondTurn, options);
  options.faults = {hang(hung, 1, 30)};
  const Ran ran = run(kSecondTurn, options);
  EXPECT_EQ(ran.lines.at(2).attempts, 2);
  EXPECT_NE(ran.lines.at(2).simulated_node, hung);
  EXPECT_EQ(ran.lines.at(2).tokens, 10);
  EXPECT_EQ(ran.result.retries, 1);
  // Silent for 400 ms, then a second for the probe, which the next look after another 400 ms finds failed.
  EXPECT_NEAR(ran.ttft_s(2), 1.6 + 0.06, 0.02);
}

TEST(SimulatorStall, ARequestWithoutAFirstByteIsWaitedForWhereTheProbeIsAnswered) {
  SimulationOptions options = probed_only_when_asked();
  options.faults = {hang(node_of(2, kSecondTurn, options), 1, 1.8)};
  const Ran ran = run(kSecondTurn, options);
  EXPECT_EQ(ran.lines.at(2).attempts, 1) << "silent twice as long as a stream may be";
  EXPECT_EQ(ran.result.lost, 0);
  EXPECT_NEAR(ran.ttft_s(2), 0.8 + 0.005, 0.01);
}

// Streams that have brought heartbeats fall silent first: by them the node is suspect, and what waits for its
// first byte there waits for no probe.
TEST(SimulatorStall, StreamsThatFellSilentSpeakForTheNode) {
  SimulationOptions options = probed_only_when_asked();
  TraceRequest later = request(2.2, 1600, 10, 1);  // of the conversation that streams
  const std::vector<TraceRequest> requests{request(0, 1600, 600, 1), later};
  const int32_t hung = node_of(1, requests, options);
  ASSERT_EQ(node_of(2, requests, options), hung) << "else this shows nothing";
  options.faults = {hang(hung, 2, 30)};
  const Ran ran = run(requests, options);
  EXPECT_EQ(ran.lines.at(1).attempts, 2);
  EXPECT_EQ(ran.lines.at(2).attempts, 2);
  EXPECT_LT(ran.ttft_s(2), 0.5 + 0.06) << "it looked once, after 400 ms";
}

TEST(SimulatorStall, WhereAllNodesHangNothingIsLostAndEachTextIsWhole) {
  SimulationOptions options = options_of(2);
  options.faults = {hang(0, 1, 4), hang(1, 1, 4)};
  std::vector<TraceRequest> requests;
  for (uint64_t i = 0; i < 20; ++i)
    requests.push_back(request(0.1 * static_cast<double>(i), 320, 400, 1 + i));
  const Ran ran = run(requests, options);
  EXPECT_EQ(ran.result.lost, 0);
  ASSERT_EQ(ran.lines.size(), 20u);
  for (const auto& [number, line] : ran.lines) {
    EXPECT_EQ(line.end, RequestEnd::kAnswered) << number;
    EXPECT_EQ(line.tokens, 400) << number;
    EXPECT_GT(ran.ended_s(number), 5) << number << ": no node answered before";
    EXPECT_LE(line.attempts, 2) << number << ": no node is asked twice";
  }
}

TEST(SimulatorStall, AHangOfSecondsTakesTheNodeFromItsClientsUntilItAnswersProbes) {
  SimulationOptions options = options_of(4, 2);
  options.conservation_every = 512;
  options.faults = {hang(1, 20, 8)};
  const Result result = run_personas(kSmall, options);
  EXPECT_EQ(result.lost, 0);
  EXPECT_GT(result.faults.resumed, 0);
  EXPECT_LT(result.faults.stall_max_ms, 1000) << "of eight seconds";
  const auto& work = result.node_series.at(1).work_per_s;
  EXPECT_EQ(work.at(24), 0);
  EXPECT_GT(work.at(40), 0) << "it is used again";
}

TEST(SimulatorStall, ANodeThatDiesWhileItHangsIsAsDeadAsAnyOther) {
  SimulationOptions options = options_of(2);
  const int32_t hung = node_of(2, kSecondTurn, options);
  options.faults = {hang(hung, 1, 30), {.kind = Fault::Kind::kKill, .at_s = 2.1, .target = hung}};
  const Ran ran = run(kSecondTurn, options);
  EXPECT_EQ(ran.lines.at(2).attempts, 2);
  EXPECT_LT(ran.ttft_s(2), 0.1 + 0.05 + 0.06) << "its connections break: no request waits for probes";
}

// Gateways learn of a death by a refused connection, or by their probes.
TEST(SimulatorStall, ADeathIsKnownByProbesAndByRefusedConnections) {
  std::vector<TraceRequest> requests{request(0, 320, 10, 1)};
  for (const double at_s : {5.45, 20.0}) requests.push_back(request(at_s, 320, 10, 1));
  SimulationOptions options = options_of(3);
  const int32_t dead = node_of(2, requests, options);
  options.faults = {{.kind = Fault::Kind::kKill, .at_s = 5.4, .target = dead}};
  const Ran ran = run(requests, options);
  EXPECT_EQ(ran.lines.at(2).attempts, 2) << "the first that comes is refused";
  EXPECT_EQ(ran.lines.at(3).attempts, 1) << "long after, probes have found it";
  EXPECT_EQ(ran.result.lost, 0);
}

}  // namespace simulator_stall_test
}  // namespace troupe::sim
