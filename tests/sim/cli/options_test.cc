#include "sim/cli/options.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "sim/cli/run_once.h"
#include "sim/workload/presets.h"

namespace troupe::sim::options_test {
namespace {

// Reads flags as the commands do.
struct Flags {
  RunFlags flags;
  std::optional<int> code;

  explicit Flags(std::vector<const char*> argv) {
    argv.insert(argv.begin(), "troupe-sim");
    SettingsSchema schema("troupe-sim", "");
    code = read_run_flags(schema, flags, "troupe-sim", static_cast<int>(argv.size()), argv.data());
  }
};

TEST(FleetFlags, BindEveryOptionOfTheSimulation) {
  const Flags run({"--nodes=3",
                   "--gateways=2",
                   "--seed=1000000000000",
                   "--policy=round-robin",
                   "--mode=gossip",
                   "--session-sticky",
                   "--warmup-s=4.5",
                   "--slo-ttft-ms=5",
                   "--slo-tpot-ms=6",
                   "--tpot-budget-ms=7.5",
                   "--batching=static",
                   "--drain-s=8",
                   "--network-ms=9",
                   "--report-ms=10",
                   "--residency-delay-ms=11",
                   "--gossip-ms=12",
                   "--detect-ms=13",
                   "--join-ms=14",
                   "--join-ramp-s=15",
                   "--handover-s=16",
                   "--no-resume",
                   "--profile=study-13b",
                   "--route.plan-interval-s=0.25",
                   "--route.anchors-max=64"});
  ASSERT_EQ(run.code, std::nullopt);
  const SimulationOptions& o = run.flags.options;
  EXPECT_EQ(o.nodes, 3);
  EXPECT_EQ(o.gateways, 2);
  EXPECT_EQ(o.seed, 1'000'000'000'000u);
  EXPECT_EQ(o.router.policy, "round-robin");
  EXPECT_EQ(o.router.affinity.mode, route::Mode::kGossip);
  EXPECT_FALSE(o.router.affinity.peer_ledger) << "only affinity reads it";
  EXPECT_TRUE(o.session_sticky);
  EXPECT_EQ(o.warmup_s, 4.5);
  EXPECT_EQ(o.slo_ttft_ms, 5);
  EXPECT_EQ(o.slo_tpot_ms, 6);
  EXPECT_EQ(o.scheduler.tpot_budget, std::chrono::microseconds(7500));
  EXPECT_EQ(o.scheduler.batching, Batching::kStatic);
  EXPECT_EQ(o.drain_s, 8);
  EXPECT_EQ(o.network_ms, 9);
  EXPECT_EQ(o.report_ms, 10);
  EXPECT_EQ(o.residency_delay_ms, 11);
  EXPECT_EQ(o.gossip_ms, 12);
  EXPECT_EQ(o.detect_ms, 13);
  EXPECT_EQ(o.join_ms, 14);
  EXPECT_EQ(o.join_ramp_s, 15);
  EXPECT_EQ(o.handover_s, 16);
  EXPECT_FALSE(o.resume);
  EXPECT_EQ(o.profile.name, "study-13b");
  EXPECT_EQ(o.router.planner.tick, std::chrono::milliseconds(250));
  EXPECT_EQ(o.router.sketch.anchors_max, 64u);
  EXPECT_EQ(o.router.sketch.sessions_max, 64u);
}

TEST(FleetFlags, ShareTheLedgerOnlyWithSeveralAffinityGateways) {
  EXPECT_FALSE(Flags({}).flags.options.router.affinity.peer_ledger);
  EXPECT_TRUE(Flags({"--gateways=2"}).flags.options.router.affinity.peer_ledger);
  EXPECT_FALSE(Flags({"--gateways=2", "--no-peer-ledger"}).flags.options.router.affinity.peer_ledger);
}

TEST(SourceFlags, StartFromThePresetThatLikeNames) {
  const Flags study({"--personas=7", "--block-size=32", "--context=4096", "--system-tokens=8"});
  ASSERT_EQ(study.code, std::nullopt);
  const auto of_study = workload_of(study.flags.source);
  ASSERT_TRUE(of_study.ok()) << of_study.status();
  EXPECT_EQ(of_study->personas, 7);
  EXPECT_EQ(of_study->block_tokens, 32);
  EXPECT_EQ(of_study->context_tokens, 4096);
  EXPECT_EQ(of_study->system_tokens, 8);
  EXPECT_EQ(of_study->card_tokens_max, PersonaWorkload().card_tokens_max);
  EXPECT_EQ(study.flags.source.trace_options.spread, std::chrono::seconds(3));

  const std::string other = preset_names().back();
  const std::string like = "--like=" + other;
  const Flags preset({like.c_str(), "--card-tokens-min=17", "--personas=7"});
  ASSERT_EQ(preset.code, std::nullopt);
  const auto of_preset = workload_of(preset.flags.source);
  ASSERT_TRUE(of_preset.ok()) << of_preset.status();
  EXPECT_EQ(of_preset->card_tokens_max, workload_like(other).card_tokens_max);
  EXPECT_NE(of_preset->card_tokens_max, PersonaWorkload().card_tokens_max);
  EXPECT_EQ(of_preset->card_tokens_min, 17);
  EXPECT_EQ(of_preset->personas, 7);
}

// `--trace "$FILE"` with a variable that is not set.
TEST(SourceFlags, EmptyPathIsRefusedByItsFlag) {
  for (const std::string flag :
       {"--trace", "--faults", "--api-keys", "--profile", "--report", "--requests"}) {
    const std::string joined = flag + "=";
    for (const std::vector<const char*>& argv :
         {std::vector<const char*>{flag.c_str(), ""}, {joined.c_str()}}) {
      testing::internal::CaptureStderr();
      const Flags run(argv);
      const std::string said = testing::internal::GetCapturedStderr();
      EXPECT_EQ(run.code, std::optional<int>(2)) << flag;
      EXPECT_NE(said.find("flag '" + flag + "' needs a file"), std::string::npos) << said;
    }
  }
  EXPECT_EQ(Flags({"--flash", ""}).code, std::nullopt) << "no path";
}

// tests/fixtures/old_simulator.yaml is an earlier configs/simulator.yaml: users have files like it.
TEST(SimulatorConfig, LoadsAnOlderFile) {
  const Flags run({"--config", TROUPE_SOURCE_DIR "/tests/fixtures/old_simulator.yaml"});
  ASSERT_EQ(run.code, std::nullopt);
  EXPECT_EQ(run.flags.options.nodes, 16);
  EXPECT_EQ(run.flags.options.router.policy, "affinity");
}

}  // namespace
}  // namespace troupe::sim::options_test
