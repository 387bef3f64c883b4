// Load that servers of other kinds tell in their metrics.

#include "gateway/cluster/foreign_metrics.h"

#include "tests/gateway/gateway_fixture.h"

namespace troupe::gateway_test {
namespace {

TEST(ForeignMetrics, OfVllm) {
  const auto report = report_of_metrics(
      "# HELP vllm:num_requests_running Number of requests in model execution batches.\n"
      "# TYPE vllm:num_requests_running gauge\n"
      "vllm:num_requests_running{engine=\"0\",model_name=\"m\"} 3.0\n"
      "vllm:num_requests_running{engine=\"1\",model_name=\"m\"} 2.0\r\n"
      "vllm:num_requests_waiting{engine=\"0\",model_name=\"a } b\"} 4.0\n"
      "vllm:kv_cache_usage_perc{engine=\"0\"} 0.25\n"
      "vllm:kv_cache_usage_perc{engine=\"1\"} 0.75\n"
      "vllm:cache_config_info{block_size=\"16\",cpu_block_size=\"8\",engine=\"0\",num_gpu_blocks=\"100\"} "
      "1.0\n"
      "vllm:cache_config_info{block_size=\"16\",engine=\"1\",num_gpu_blocks=\"100\"} 1.0\n"
      "vllm:prompt_tokens_total{engine=\"0\"} 1e+03\nvllm:generation_tokens_total{engine=\"0\"} 50\n"
      "vllm:prefix_cache_hits_total{engine=\"0\"} 800\n");
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->running, 5);
  EXPECT_EQ(report->queued, 4);
  EXPECT_EQ(report->kv_tokens_total, 3200);
  EXPECT_EQ(report->kv_tokens_free, 1600);
  EXPECT_EQ(report->block_tokens, 16);
  EXPECT_EQ(report->work_tokens_total, 250);
}

TEST(ForeignMetrics, OfSglangAndLlamaCpp) {
  const auto sglang = report_of_metrics(
      "sglang:num_running_reqs{model_name=\"m\"} 7\nsglang:num_queue_reqs{model_name=\"m\"} 1\n"
      "sglang:token_usage{model_name=\"m\"} 0.5\nsglang:max_total_num_tokens{model_name=\"m\"} 1000.0\n");
  ASSERT_TRUE(sglang.has_value());
  EXPECT_EQ(sglang->running, 7);
  EXPECT_EQ(sglang->queued, 1);
  EXPECT_EQ(sglang->kv_tokens_total, 1000);
  EXPECT_EQ(sglang->kv_tokens_free, 500);
  const auto llama = report_of_metrics("llamacpp:requests_processing 2\nllamacpp:requests_deferred 9");
  ASSERT_TRUE(llama.has_value());
  EXPECT_EQ(llama->running, 2);
  EXPECT_EQ(llama->queued, 9);
  EXPECT_EQ(llama->kv_tokens_total, 0);
}

TEST(ForeignMetrics, NothingElseIsLoad) {
  for (const char* text :
       {"", "\n\n", "go_goroutines 8\n", "vllm:", "vllm:num_requests_running", "vllm:num_requests_running{",
        "vllm:num_requests_running{a=\"b\"}", "vllm:num_requests_running NaN\n",
        "vllm:num_requests_running -1\n", "vllm:num_requests_running +Inf\n",
        "vllm:num_requests_running 1e300\n", "# vllm:num_requests_running 1\n", "<!doctype html>"})
    EXPECT_FALSE(report_of_metrics(text).has_value()) << text;
  const auto odd = report_of_metrics(
      "llamacpp:requests_processing 1\nvllm:cache_config_info{num_gpu_blocks=\"None\",block_size=\"16\"} "
      "1\n");
  ASSERT_TRUE(odd.has_value());
  EXPECT_EQ(odd->kv_tokens_total, 0);
}

TEST(ForeignMetrics, SumsAreBoundedAsSamplesAre) {
  std::string text;
  for (int i = 0; i < 36'000; ++i) text += "sglang:num_running_reqs 1e15\nsglang:prompt_tokens_total 1e15\n";
  text +=
      "vllm:cache_config_info{block_size=\"9223372036854775807\",num_gpu_blocks=\"9223372036854775807\"} 1\n";
  const auto report = report_of_metrics(text);
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->running, 1'000'000'000'000'000);
  EXPECT_EQ(report->work_tokens_total, 1'000'000'000'000'000);
  EXPECT_EQ(report->block_tokens, 65'536);
  EXPECT_EQ(report->kv_tokens_total, 1'000'000'000'000'000);
}

TEST(ForeignMetrics, ExemplarsAreNoLabels) {
  const auto report = report_of_metrics(
      "vllm:num_requests_running{engine=\"0\",model_name=\"a \\\"} b\"} 3.0 # {trace_id=\"x\"} 40\n");
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->running, 3);
}

TEST(ForeignMetrics, AreTheLoadThatRoutes) {
  Loop loop;
  StubWorker busy(loop, answer_whole), idle(loop, answer_whole);
  loop.call([&] {
    busy.owned_by = "vllm";
    idle.owned_by = "sglang";
    busy.metrics = "vllm:num_requests_running 40\nvllm:num_requests_waiting 20\n";
    idle.metrics = "vllm:num_requests_running 0\nvllm:num_requests_waiting 0\n";
  });
  TestGateway gateway(loop, {busy.endpoint(), idle.endpoint()});
  EXPECT_EQ(loop.call([&] { return gateway.gateway->router().loads().at(0).others_requests; }), 60);
  EXPECT_FALSE(loop.call([&] { return gateway.gateway->fleet().is_troupe_worker(0); }));
  for (int i = 0; i < 6; ++i) {
    const Answer answer = gateway.ask(chat_body("Persona " + std::to_string(i), "x"));
    EXPECT_EQ(answer.route("node"), idle.id());
  }
}

TEST(ForeignMetrics, AreRarelyAskedForWhereThereAreNone) {
  Loop loop;
  StubWorker stub(loop, answer_whole), other(loop, answer_whole);
  loop.call([&] {
    stub.owned_by = "llamacpp";
    other.owned_by = "nobody";
  });
  TestGateway gateway(loop, {stub.endpoint(), other.endpoint()});
  EXPECT_TRUE(loop.eventually([&] { return stub.probes > 8 && other.probes > 8; }));
  EXPECT_EQ(loop.call([&] { return stub.metrics_asked; }), 1);
  EXPECT_EQ(loop.call([&] { return other.metrics_asked; }), 0) << "nothing is known of its names";
}

TEST(ForeignMetrics, AreSoonAskedForAgainAfterAFailure) {
  Loop loop;
  StubWorker stub(loop, answer_whole);
  loop.call([&] {
    stub.owned_by = "vllm";
    stub.metrics = "vllm:num_requests_running 40\n";
    stub.metrics_status = 503;
  });
  TestGateway gateway(loop, {stub.endpoint()});
  EXPECT_TRUE(loop.eventually([&] { return stub.metrics_asked > 1; }));
  loop.call([&] { stub.metrics_status = 200; });
  EXPECT_TRUE(loop.eventually([&] { return gateway.gateway->router().loads().at(0).others_requests == 40; }));
}

}  // namespace
}  // namespace troupe::gateway_test
