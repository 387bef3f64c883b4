#include "worker/config.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

namespace troupe::config_test {

constexpr const char* kExample = TROUPE_SOURCE_DIR "/configs/worker.yaml";

std::string read_example() {
  std::ifstream file(kExample);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

WorkerSettings with_model() {
  WorkerSettings settings;
  settings.runner.model_dir = "configs/demo-model/";
  return settings;
}

Status parse(WorkerSettings& settings, std::vector<const char*> args) {
  SettingsSchema schema("troupe-worker", "test");
  describe_worker_settings(schema, settings);
  args.insert(args.begin(), "troupe-worker");
  return schema.parse(static_cast<int>(args.size()), args.data()).status();
}

TEST(WorkerConfig, ExampleFileNamesEveryKeyWithItsDefault) {
  WorkerSettings from_file, defaults;
  SettingsSchema schema("troupe-worker", "test"), unread("troupe-worker", "test");
  describe_worker_settings(schema, from_file);
  describe_worker_settings(unread, defaults);
  ASSERT_TRUE(schema.load_yaml_file(kExample).ok()) << schema.load_yaml_file(kExample);
  // help() shows every key with its current value.
  EXPECT_EQ(schema.help(), unread.help());

  const std::string text = read_example();
  for (const auto& key : schema.keys()) {
    const auto dot = key.find('.');
    const std::string line = dot == std::string::npos ? "\n" + key + ":" : "\n  " + key.substr(dot + 1) + ":";
    EXPECT_NE(text.find(line), std::string::npos) << key << " is not in configs/worker.yaml";
  }
}

// tests/fixtures/old_worker.yaml is an earlier configs/worker.yaml: operators have files like it.
TEST(WorkerConfig, LoadsAnOlderFile) {
  WorkerSettings settings;
  SettingsSchema schema("troupe-worker", "test");
  describe_worker_settings(schema, settings);
  const Status status = schema.load_yaml_file(TROUPE_SOURCE_DIR "/tests/fixtures/old_worker.yaml");
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(settings.server.http.port, 31000);
  EXPECT_EQ(settings.scheduler.tpot_budget, std::chrono::milliseconds(200));
}

TEST(WorkerConfig, ReadsEveryExampleValue) {
  WorkerSettings settings;
  SettingsSchema schema("troupe-worker", "test");
  describe_worker_settings(schema, settings);
  ASSERT_TRUE(schema.load_yaml("max_num_seqs: 7\nlimits:\n  body_bytes: 4096\n", "x.yaml").ok());
  EXPECT_EQ(settings.scheduler.max_num_seqs, 7);
  EXPECT_EQ(settings.server.http.body_bytes_max, 4096);
  EXPECT_FALSE(schema.load_yaml("max_num_seq: 7\n", "x.yaml").ok());
}

TEST(WorkerConfig, FlagsHaveVllmsNames) {
  WorkerSettings s;
  const auto status = parse(s, {"--model",
                                "m",
                                "--served-model-name=x",
                                "--dtype",
                                "float32",
                                "--quantization=int8",
                                "--load-format",
                                "dummy",
                                "--max-model-len",
                                "100",
                                "--max-num-seqs=3",
                                "--max-num-batched-tokens",
                                "64",
                                "--kv-cache-tokens",
                                "320",
                                "--gpu-memory-utilization",
                                "0.5",
                                "--block-size",
                                "8",
                                "--no-enable-prefix-caching",
                                "--max-sets",
                                "9",
                                "--batching",
                                "separate",
                                "--threads",
                                "2",
                                "--port",
                                "0"});
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(s.runner.model_dir, "m");
  EXPECT_EQ(s.served_model_name, "x");
  EXPECT_EQ(s.dtype, "float32");
  EXPECT_EQ(s.runner.weight_format, WeightFormat::kInt8);
  EXPECT_EQ(s.runner.load_format, LoadFormat::kDummy);
  EXPECT_EQ(s.scheduler.max_model_len, 100);
  EXPECT_EQ(s.scheduler.max_num_seqs, 3);
  EXPECT_EQ(s.scheduler.max_num_batched_tokens, 64);
  EXPECT_EQ(s.runner.kv_cache_tokens, 320);
  EXPECT_EQ(s.runner.memory_utilization, 0.5);
  EXPECT_EQ(s.scheduler.block_size, 8);
  EXPECT_FALSE(s.scheduler.enable_prefix_caching);
  EXPECT_EQ(s.scheduler.max_sets, 9);
  EXPECT_EQ(s.scheduler.batching, Batching::kSeparate);
  EXPECT_EQ(s.runner.threads, 2);
  EXPECT_EQ(s.server.http.port, 0);
}

TEST(WorkerConfig, RefusesBadFlagsByName) {
  const std::vector<std::vector<const char*>> cases = {
      {"--port", "65536"},          {"--port", "x"},          {"--dtype", "int8"},
      {"--quantization", "int4"},   {"--max-num-seqs", "-1"}, {"--threads", "-1"},
      {"--no-such-flag", "1"},      {"--block-size", "1.5"},  {"--log-level", "loud"},
      {"--limits.body-bytes", "0"}, {"--sim-speed", "0"},     {"--batching", "both"}};
  for (const auto& args : cases) {
    WorkerSettings settings;
    const auto status = parse(settings, args);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << args[0];
    EXPECT_NE(to_std(status.message()).find(std::string_view(args[0]).substr(2)), std::string_view::npos)
        << status;
  }
}

TEST(WorkerConfig, ResolveReplacesAuto) {
  auto settings = with_model();
  ASSERT_TRUE(resolve_worker_settings(settings).ok());
  EXPECT_EQ(settings.device, "cpu");
  EXPECT_EQ(settings.served_model_name, "demo-model");
  EXPECT_GE(settings.runner.threads, 1);
}

TEST(WorkerConfig, AGpuThatCannotBeUsedEndsTheStartUnlessTheCpuIsAllowed) {
  const StatusOr<std::string> old_driver = absl::UnavailableError("the driver is old: install 580"),
                              none = absl::NotFoundError("no driver"), usable = "NVIDIA H200 (sm_90)";
  const auto after = [](const char* device, bool allow_cpu, const StatusOr<std::string>& found) {
    auto settings = with_model();
    settings.device = device;
    settings.allow_cpu = allow_cpu;
    const Status status = choose_device(settings, found);
    return status.ok() ? settings.device + "|" + settings.device_unusable
                       : std::string(to_std(status.message()));
  };
  EXPECT_EQ(after("auto", false, usable), "cuda|");
  EXPECT_EQ(after("auto", false, none), "cpu|");
  EXPECT_EQ(after("auto", true, old_driver), "cpu|the driver is old: install 580");
  EXPECT_EQ(
      after("auto", false, old_driver),
      "--device auto: this machine's GPU cannot be used: the driver is old: install 580. --device cpu, or "
      "--device auto --allow-cpu, computes on the CPU, many times slower");
  for (const bool allow_cpu : {false, true}) {
    EXPECT_EQ(after("cuda", allow_cpu, old_driver), "--device cuda: the driver is old: install 580");
    EXPECT_EQ(after("cuda", allow_cpu, none), "--device cuda: no driver");
    EXPECT_EQ(after("cuda", allow_cpu, usable), "cuda|");
  }
}

TEST(WorkerConfig, SimTakesUnsetValuesFromItsProfile) {
  WorkerSettings settings;
  settings.device = "sim";
  settings.sim_profile = "study-13b";
  settings.scheduler.max_num_seqs = 8;
  ASSERT_TRUE(resolve_worker_settings(settings).ok());
  EXPECT_EQ(settings.served_model_name, "study-13b");
  EXPECT_EQ(settings.runner.kv_cache_tokens, 120'000);
  EXPECT_EQ(settings.scheduler.max_num_batched_tokens, 2048);
  EXPECT_EQ(settings.scheduler.block_size, 16);
  EXPECT_EQ(settings.scheduler.max_num_seqs, 8);

  WorkerSettings small;
  small.device = "sim";
  small.runner.kv_cache_tokens = 1000;
  ASSERT_TRUE(resolve_worker_settings(small).ok());
  EXPECT_EQ(small.scheduler.max_model_len, 1000) << "what fits the memory";
}

TEST(WorkerConfig, ResolveRefusesImpossibleSettings) {
  const auto message_after = [](auto change) {
    auto settings = with_model();
    change(settings);
    return std::string(to_std(resolve_worker_settings(settings).message()));
  };
  EXPECT_NE(message_after([](auto& s) { s.device = "cuda"; }).find("--device cuda: "), std::string::npos);
  EXPECT_NE(message_after([](auto& s) {
              s.device = "sim";
              s.sim_profile = "abacus";
            }).find("--sim-profile: there is no profile 'abacus'"),
            std::string::npos);
  EXPECT_NE(message_after([](auto& s) { s.scheduler.max_model_len = 1; }).find("--max-model-len 1"),
            std::string::npos);
  EXPECT_NE(message_after([](auto& s) { s.runner.model_dir = ""; }).find("--model is required"),
            std::string::npos);
  EXPECT_NE(message_after([](auto& s) { s.runner.kv_cache_tokens = 8; }).find("--block-size"),
            std::string::npos);
  EXPECT_NE(message_after([](auto& s) { s.scheduler.max_num_batched_tokens = 4; }).find("--max-num-seqs"),
            std::string::npos);
  EXPECT_NE(message_after([](auto& s) {
              s.scheduler.max_model_len = 2048;
              s.runner.kv_cache_tokens = 1024;
            }).find("--max-model-len 2048"),
            std::string::npos);
}

TEST(WorkerConfig, AutoDtypeIsBfloat16OnlyWhereFaster) {
  EXPECT_EQ(choose_dtype("auto", DType::kBFloat16, true), DType::kBFloat16);
  EXPECT_EQ(choose_dtype("auto", DType::kBFloat16, false), DType::kFloat32);
  EXPECT_EQ(choose_dtype("auto", DType::kFloat16, true), DType::kFloat32);
  EXPECT_EQ(choose_dtype("float32", DType::kBFloat16, true), DType::kFloat32);
  EXPECT_EQ(choose_dtype("bfloat16", DType::kFloat32, false), DType::kBFloat16);
}

}  // namespace troupe::config_test
