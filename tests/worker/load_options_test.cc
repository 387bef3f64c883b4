// Runner options that follow from the settings.

#include <gtest/gtest.h>

#include "worker/load.h"

namespace troupe::load_options_test {

TEST(RunnerOptions, GraphsAndOverlapAreOnByDefault) {
  WorkerSettings settings;
  settings.device = "cuda";
  EXPECT_TRUE(runner_options(settings, {}).cuda.graphs);
  EXPECT_TRUE(runner_options(settings, {}).cuda.overlaps);
  settings.launch_overlap = false;
  EXPECT_TRUE(runner_options(settings, {}).cuda.graphs);
  EXPECT_FALSE(runner_options(settings, {}).cuda.overlaps);
  settings.launch_overlap = true;
  settings.enforce_eager = true;
  EXPECT_FALSE(runner_options(settings, {}).cuda.graphs);
  EXPECT_FALSE(runner_options(settings, {}).cuda.overlaps);
}

TEST(LoadOptions, BindsEverySettingToItsPart) {
  WorkerSettings settings;
  SettingsSchema schema("troupe-worker", "test");
  describe_worker_settings(schema, settings);
  const Status status = schema.load_yaml(
      "model: m\nthreads: 3\nquantization: int8\nload_format: dummy\nreference_ops: true\ntune_file: t\n"
      "hang_timeout_secs: 27\n"
      "disable_cascade_attn: true\nkv_cache_tokens: 4096\ngpu_memory_utilization: 0.5\nblock_size: 8\n"
      "max_num_seqs: 9\nmax_num_batched_tokens: 10\nmax_waiting: 11\nmax_model_len: 12\nmax_sets: 13\n"
      "batching: separate\nreserve_output: max\ntpot_budget_ms: 14\nenable_prefix_caching: false\n"
      "max_pinned_share: 0.75\nhand_on_conversations: false\nhost: h\nport: 15\n"
      "shutdown_notice_secs: 16\nshutdown_grace_period_secs: 17\netcd_prefix: /p\n"
      "etcd_lease_ttl_secs: 18\nlog_level: debug\n"
      "limits: {body_bytes: 1025, bodies_bytes: 1026, header_bytes: 1027, connections: 21,\n"
      "  header_timeout_ms: 22, body_timeout_ms: 23, idle_timeout_ms: 24, write_timeout_ms: 25,\n"
      "  request_timeout_ms: 26}\n",
      "f.yaml");
  ASSERT_TRUE(status.ok()) << status;
  const RunnerOptions runner = runner_options(settings, {});
  EXPECT_EQ(runner.model_dir, "m");
  EXPECT_EQ(runner.threads, 3);
  EXPECT_EQ(runner.weight_format, WeightFormat::kInt8);
  EXPECT_EQ(runner.load_format, LoadFormat::kDummy);
  EXPECT_TRUE(runner.cuda.reference_ops);
  EXPECT_EQ(runner.cuda.tune_file, "t");
  EXPECT_EQ(runner.cuda.hang_timeout, std::chrono::seconds{27});
  EXPECT_FALSE(runner.cuda.cascade);
  EXPECT_EQ(runner.kv_cache_tokens, 4096);
  EXPECT_EQ(runner.memory_utilization, 0.5);
  EXPECT_EQ(runner.block_size, 8);
  EXPECT_EQ(runner.max_num_seqs, 9);
  EXPECT_EQ(runner.max_batched_tokens, 10);
  EXPECT_EQ(runner.max_model_len, 12);
  LoadedModel model;
  model.block_count = 31;
  model.max_model_len = 32;
  const SchedulerConfig scheduler = engine_options(settings, model).scheduler;
  EXPECT_EQ(scheduler.block_size, 8);
  EXPECT_EQ(scheduler.block_count, 31);
  EXPECT_EQ(scheduler.max_num_seqs, 9);
  EXPECT_EQ(scheduler.max_num_batched_tokens, 10);
  EXPECT_EQ(scheduler.max_waiting, 11);
  EXPECT_EQ(scheduler.max_model_len, 32) << "the model's, which the runner knows";
  EXPECT_EQ(scheduler.max_sets, 13);
  EXPECT_EQ(scheduler.batching, Batching::kSeparate);
  EXPECT_EQ(scheduler.output_reserve, OutputReserve::kMax);
  EXPECT_EQ(scheduler.tpot_budget, std::chrono::milliseconds(14));
  EXPECT_FALSE(scheduler.enable_prefix_caching);
  const WorkerServer::Options server = server_options(settings);
  EXPECT_EQ(server.max_pinned_share, 0.75);
  EXPECT_FALSE(server.hand_on_conversations);
  EXPECT_EQ(server.notice, std::chrono::seconds(16));
  EXPECT_EQ(server.http.host, "h");
  EXPECT_EQ(server.http.port, 15);
  EXPECT_EQ(server.http.body_bytes_max, 1025u);
  EXPECT_EQ(server.http.bodies_bytes_max, 1026u);
  EXPECT_EQ(server.http.header_bytes_max, 1027u);
  EXPECT_EQ(server.http.connections_max, 21u);
  EXPECT_EQ(server.http.header_timeout, std::chrono::milliseconds(22));
  EXPECT_EQ(server.http.body_timeout, std::chrono::milliseconds(23));
  EXPECT_EQ(server.http.idle_timeout, std::chrono::milliseconds(24));
  EXPECT_EQ(server.http.write_timeout, std::chrono::milliseconds(25));
  EXPECT_EQ(server.generator.request_timeout, std::chrono::milliseconds(26));
  EXPECT_EQ(server.generator.requests_max, 9 + 11);
  EXPECT_EQ(settings.grace, std::chrono::seconds(17));
  EXPECT_EQ(settings.registration.prefix, "/p");
  EXPECT_EQ(settings.registration.ttl, std::chrono::seconds(18));
  EXPECT_EQ(settings.log_level, LogLevel::kDebug);
}

}  // namespace troupe::load_options_test
