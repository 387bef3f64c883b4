// The step loop over the fake model: every answer is compared with its reference, a pure function.

#include "worker/engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <deque>
#include <future>
#include <random>

#include "tests/worker/engine_harness.h"
#include "tests/worker/step_gate.h"

namespace troupe {
namespace engine_test {

using testing::Collector;
using testing::EngineHarness;
using ::testing::HasSubstr;
using testing::StepGate;

using EngineSteps = testing::WaitsOrRunsAhead;
INSTANTIATE_TEST_SUITE_P(Runner, EngineSteps, ::testing::Bool(), EngineSteps::name);

TEST_P(EngineSteps, AnswersOneRequest) {
  EngineHarness h(model());
  Collector out;
  const auto prompt = h.prompt(1, 30);
  ASSERT_TRUE(h.engine->submit(h.request(prompt, 20), out.sink()).ok());
  ASSERT_TRUE(out.wait_end());
  const auto expected = h.model.reference(prompt, {.temperature = 0}, 20);
  EXPECT_EQ(out.ids(), expected);
  EXPECT_EQ(out.text(), h.decode(expected));
  EXPECT_EQ(out.last().finish, FinishReason::kLength);
  EXPECT_EQ(out.last().usage.prompt_tokens, 30);
  EXPECT_EQ(out.last().usage.completion_tokens, 20);
  EXPECT_EQ(out.last().usage.cached_tokens, 0);
  EXPECT_TRUE(h.wait_idle());
}

TEST_P(EngineSteps, ReportsExactCachedTokens) {
  EngineHarness h(model());
  const auto persona = h.prompt(5, 50);
  for (int i = 0; i < 3; ++i) {
    auto prompt = persona;
    prompt.push_back(400 + i);
    Collector out;
    ASSERT_TRUE(h.engine->submit(h.request(prompt, 4), out.sink()).ok());
    ASSERT_TRUE(out.wait_end());
    EXPECT_EQ(out.last().usage.cached_tokens, i == 0 ? 0 : 50);
    EXPECT_EQ(out.ids(), h.model.reference(prompt, {.temperature = 0}, 4));
  }
}

// The same requests, some with a shared persona, in a KV memory too small for them: batched, chunked, cached,
// preempted. Every answer must equal the one it has alone.
TEST_P(EngineSteps, AnswersDoNotDependOnNeighbours) {
  SchedulerConfig config = EngineHarness::default_config();
  config.block_count = 60;  // 240 tokens; the fifty need up to 90 each
  config.max_num_batched_tokens = 24;
  EngineHarness h(config, model());
  std::deque<Collector> outs;
  std::vector<EngineRequest> requests;
  for (int i = 0; i < 50; ++i) {
    auto prompt = h.prompt(i % 4, 20 + (i % 4) * 10);
    for (int j = 0; j < i % 13; ++j) prompt.push_back(500 + i * 3 + j);
    requests.push_back(h.request(prompt, 10 + i % 17, static_cast<uint64_t>(i % 5)));
  }
  for (const auto& request : requests) {
    ASSERT_TRUE(h.engine->submit(request, outs.emplace_back().sink()).ok());
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    ASSERT_TRUE(outs[i].wait_end()) << "request " << i;
    const auto& r = requests[i];
    EXPECT_EQ(outs[i].ids(), h.model.reference(r.prompt, r.sampling, r.max_new_count)) << "request " << i;
    EXPECT_EQ(outs[i].text(), h.decode(outs[i].ids()));
  }
  ASSERT_TRUE(h.wait_idle());
  const LoadReport load = h.engine->load();
  EXPECT_EQ(load.kv_blocks_free, load.kv_blocks_total);
  EXPECT_EQ(load.running + load.waiting + load.pending_prefill_tokens, 0);
  EXPECT_THAT(h.metrics.text(),
              Not(HasSubstr("vllm:num_preemptions_total{engine=\"0\",model_name=\"fake\"} 0")));
}

TEST_P(EngineSteps, StopStringEndsTheTextBeforeIt) {
  EngineHarness h(model());
  const auto prompt = h.prompt(3, 10);
  const auto ids = h.model.reference(prompt, {.temperature = 0}, 60);
  const std::string text = h.decode(ids);
  const std::string stop = text.substr(text.size() / 2, 5);
  const size_t at = text.find(stop);
  // Finds the token that completes it.
  size_t token_count = 1;
  while (h.decode({ids.begin(), ids.begin() + static_cast<ptrdiff_t>(token_count)}).find(stop) ==
         std::string::npos) {
    ++token_count;
  }
  Collector out;
  auto request = h.request(prompt, 60);
  request.stop_strings = {stop, "never said"};
  ASSERT_TRUE(h.engine->submit(request, out.sink()).ok());
  ASSERT_TRUE(out.wait_end());
  EXPECT_EQ(out.text(), text.substr(0, at));
  EXPECT_EQ(out.last().finish, FinishReason::kStop);
  EXPECT_EQ(out.last().usage.completion_tokens, static_cast<int64_t>(token_count));
  EXPECT_EQ(out.ids().size(), token_count);
  EXPECT_TRUE(h.wait_idle());  // the engine stopped computing it too
}

TEST_P(EngineSteps, EndTokenIsCountedButNotShown) {
  EngineHarness h({.runs_ahead = GetParam(), .emits_eos = true});
  int seen = 0;
  for (int i = 0; i < 40; ++i) {
    const auto prompt = h.prompt(i * 11, 8);
    auto expected = h.model.reference(prompt, {.temperature = 0}, 100);
    const auto eos = std::find(expected.begin(), expected.end(), EngineHarness::kEos);
    if (eos == expected.end()) continue;
    ++seen;
    Collector ignoring;
    auto request = h.request(prompt, 100);
    request.ignore_eos = true;
    ASSERT_TRUE(h.engine->submit(request, ignoring.sink()).ok());
    ASSERT_TRUE(ignoring.wait_end());
    EXPECT_EQ(ignoring.ids(), expected);
    EXPECT_EQ(ignoring.last().finish, FinishReason::kLength);

    Collector out;
    expected.erase(eos + 1, expected.end());
    ASSERT_TRUE(h.engine->submit(h.request(prompt, 100), out.sink()).ok());
    ASSERT_TRUE(out.wait_end());
    EXPECT_EQ(out.ids(), expected);
    EXPECT_EQ(out.last().finish, FinishReason::kStop);
    EXPECT_EQ(out.last().usage.completion_tokens, static_cast<int64_t>(expected.size()));
    EXPECT_EQ(out.text(), h.decode(expected));  // special: decodes to nothing
  }
  EXPECT_GT(seen, 3);
}

TEST_P(EngineSteps, StopTokenIdEndsTheAnswerUnshown) {
  EngineHarness h(model());
  const auto prompt = h.prompt(9, 12);
  auto expected = h.model.reference(prompt, {.temperature = 0}, 30);
  auto request = h.request(prompt, 30);
  request.stop_token_ids = {expected[7]};
  request.ignore_eos = true;
  const auto first = std::find(expected.begin(), expected.end(), expected[7]);
  Collector out;
  ASSERT_TRUE(h.engine->submit(request, out.sink()).ok());
  ASSERT_TRUE(out.wait_end());
  EXPECT_EQ(out.text(), h.decode({expected.begin(), first}));
  EXPECT_EQ(out.last().finish, FinishReason::kStop);
  EXPECT_EQ(out.last().usage.completion_tokens, first - expected.begin() + 1);
}

TEST_P(EngineSteps, CancelledRequestGetsNoLastPieceAndNeighbourGetsAll) {
  StepGate gate(5);
  EngineHarness h(model(gate.hook()));
  Collector cancelled, neighbour;
  const auto prompt = h.prompt(2, 20);
  const auto id = h.engine->submit(h.request(h.prompt(1, 20), 350), cancelled.sink());
  ASSERT_TRUE(id.ok());
  ASSERT_TRUE(h.engine->submit(h.request(prompt, 100), neighbour.sink()).ok());
  ASSERT_TRUE(cancelled.wait_pieces(3));
  h.engine->cancel(*id);
  h.engine->cancel(*id);
  h.engine->cancel(12345);
  gate.open();
  ASSERT_TRUE(neighbour.wait_end());
  EXPECT_EQ(neighbour.ids(), h.model.reference(prompt, {.temperature = 0}, 100));
  ASSERT_TRUE(h.wait_idle());
  EXPECT_FALSE(cancelled.ended());
  EXPECT_EQ(h.engine->load().kv_blocks_free, h.engine->load().kv_blocks_total);
}

// Once the engine is idle, the canceller may destroy what the sink writes to.
TEST_P(EngineSteps, IsNotIdleWhileACancelledRequestsPieceIsDelivered) {
  EngineHarness h(model());
  std::promise<void> open;
  auto opened = open.get_future().share();
  std::atomic<bool> in_sink{false}, through{false};
  const auto id = h.engine->submit(h.request(h.prompt(1, 20), 30), [&, opened](EngineOutput) {
    in_sink = true;
    opened.wait_for(std::chrono::seconds(20));
    through = true;
  });
  ASSERT_TRUE(id.ok());
  while (!in_sink) std::this_thread::yield();
  h.engine->cancel(*id);
  while (h.engine->load().running > 0) std::this_thread::yield();
  EXPECT_FALSE(h.engine->idle());
  open.set_value();
  ASSERT_TRUE(h.wait_idle());
  EXPECT_TRUE(through);
}

TEST_P(EngineSteps, CountsRequestWhenLastPieceArrives) {
  EngineHarness h(model());
  std::promise<std::string> counted;
  ASSERT_TRUE(
      h.engine
          ->submit(h.request(h.prompt(1, 20), 1), [&](EngineOutput) { counted.set_value(h.metrics.text()); })
          .ok());
  const std::string finished =
      "vllm:request_success_total{engine=\"0\",finished_reason=\"length\",model_name=\"fake\"} 1\n";
  EXPECT_THAT(counted.get_future().get(), HasSubstr(finished));
}

TEST_P(EngineSteps, FailedStepFailsOnlyItsRequests) {
  std::atomic<int> step_count{0};
  EngineHarness h(model([&step_count](const Batch&) -> Status {
    return ++step_count == 6 ? absl::InternalError("the device fell over") : absl::OkStatus();
  }));
  Collector failed;
  ASSERT_TRUE(h.engine->submit(h.request(h.prompt(1, 20), 350), failed.sink()).ok());
  ASSERT_TRUE(failed.wait_end());
  EXPECT_EQ(failed.last().error.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(failed.last().error.message()), HasSubstr("fell over"));
  EXPECT_EQ(failed.last().finish, FinishReason::kNone);
  EXPECT_EQ(failed.last().usage.completion_tokens, 5);
  Collector next;
  const auto prompt = h.prompt(1, 25);
  ASSERT_TRUE(h.engine->submit(h.request(prompt, 10), next.sink()).ok());
  ASSERT_TRUE(next.wait_end());
  EXPECT_EQ(next.ids(), h.model.reference(prompt, {.temperature = 0}, 10));
  ASSERT_TRUE(h.wait_idle());
  EXPECT_EQ(h.engine->load().kv_blocks_free, h.engine->load().kv_blocks_total);
}

TEST_P(EngineSteps, StopEndsRunningRequestsAndRefusesNewOnes) {
  EngineHarness h(model([](const Batch&) -> Status {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // far from done when stopped
    return absl::OkStatus();
  }));
  std::deque<Collector> outs;
  for (int i = 0; i < 40; ++i) {  // more than run at once
    ASSERT_TRUE(h.engine->submit(h.request(h.prompt(i * 20, 30), 360), outs.emplace_back().sink()).ok());
  }
  ASSERT_TRUE(outs.front().wait_pieces(1));
  h.engine->stop();
  int cancelled = 0;
  for (const auto& out : outs) {
    EXPECT_TRUE(out.ended());
    cancelled += out.last().error.code() == absl::StatusCode::kCancelled;
  }
  EXPECT_GT(cancelled, 20);
  Collector late;
  EXPECT_EQ(h.engine->submit(h.request(h.prompt(1, 3), 1), late.sink()).status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_FALSE(h.engine->load().ready);
  h.engine->stop();
}

TEST_P(EngineSteps, RefusesImpossibleRequestsImmediately) {
  EngineHarness h(model());
  Collector out;
  for (auto&& request : {h.request({}, 1), h.request(h.prompt(1, 400), 1), h.request(h.prompt(1, 10), 0)}) {
    EXPECT_EQ(h.engine->submit(request, out.sink()).status().code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(out.piece_count(), 0);
}

TEST_P(EngineSteps, FullQueueRefusesAndShowsInLoad) {
  SchedulerConfig config = EngineHarness::default_config();
  config.max_num_seqs = 2;
  config.max_waiting = 3;
  StepGate gate;
  EngineHarness h(config, model(gate.hook()));
  std::deque<Collector> outs;
  ASSERT_TRUE(h.engine->submit(h.request(h.prompt(0, 10), 5), outs.emplace_back().sink()).ok());
  gate.wait_arrival();
  for (int i = 1; i < 5; ++i) {
    ASSERT_TRUE(h.engine->submit(h.request(h.prompt(100 * i, 10), 5), outs.emplace_back().sink()).ok());
  }
  Collector refused;
  EXPECT_EQ(h.engine->submit(h.request(h.prompt(1, 10), 5), refused.sink()).status().code(),
            absl::StatusCode::kResourceExhausted);
  const LoadReport load = h.engine->load();
  EXPECT_EQ(load.running + load.waiting, 5);
  EXPECT_EQ(load.pending_prefill_tokens, 50);
  EXPECT_FALSE(h.engine->idle());
  gate.open();
  for (auto& out : outs) ASSERT_TRUE(out.wait_end());
  ASSERT_TRUE(h.wait_idle());
  EXPECT_EQ(h.engine->load().work_tokens_total, 5 * (10 + 4));
}

TEST_P(EngineSteps, EpochsDifferBetweenEngines) {
  EngineHarness a(model()), b(model());
  EXPECT_EQ(a.engine->load().epoch.size(), 32u);
  EXPECT_NE(a.engine->load().epoch, b.engine->load().epoch);
}

TEST_P(EngineSteps, MetricsHaveVllmsNames) {
  EngineHarness h(model());
  for (int i = 0; i < 2; ++i) {
    Collector out;
    ASSERT_TRUE(h.engine->submit(h.request(h.prompt(1, 33), 5), out.sink()).ok());
    ASSERT_TRUE(out.wait_end());
  }
  ASSERT_TRUE(h.wait_idle());
  const std::string text = h.metrics.text();
  const auto has = [&](const std::string& name, const std::string& value, const std::string& more = "") {
    EXPECT_THAT(text, HasSubstr(name + "{engine=\"0\"," + more + "model_name=\"fake\"} " + value + "\n"));
  };
  has("vllm:num_requests_running", "0");
  has("vllm:num_requests_waiting", "0");
  has("vllm:kv_cache_usage_perc", "0");
  has("vllm:prefix_cache_queries_total", "66");
  has("vllm:prefix_cache_hits_total", "32");
  has("vllm:time_to_first_token_seconds_count", "2");
  has("vllm:inter_token_latency_seconds_count", "8");
  has("vllm:e2e_request_latency_seconds_count", "2");
  has("vllm:prompt_tokens_total", "66");
  has("vllm:generation_tokens_total", "10");
  has("vllm:num_preemptions_total", "0");
  has("vllm:request_success_total", "2", "finished_reason=\"length\",");
  has("vllm:request_success_total", "0", "finished_reason=\"stop\",");
  has("troupe_computed_tokens_total", "42");  // 33 + 4, then 1 + 4
}

// An occasionally slow sink fills the bounded queue between the threads: nothing is lost or reordered.
TEST_P(EngineSteps, ComputeThreadWaitsForTextOut) {
  SchedulerConfig config = EngineHarness::default_config();
  config.max_num_seqs = 1;  // 64 pending tokens
  EngineHarness h(config, model());
  Collector out;
  auto sink = out.sink();
  const auto prompt = h.prompt(4, 5);
  auto slow = [&sink](EngineOutput piece) {
    std::this_thread::sleep_for(std::chrono::microseconds(300));
    sink(std::move(piece));
  };
  ASSERT_TRUE(h.engine->submit(h.request(prompt, 390), slow).ok());
  ASSERT_TRUE(out.wait_end());
  EXPECT_EQ(out.ids(), h.model.reference(prompt, {.temperature = 0}, 390));
}

// Threads that submit, wait and cancel at random: for the sanitizers, and every answer must still be right.
TEST_P(EngineSteps, ServesManyCallersAtOnce) {
  SchedulerConfig config = EngineHarness::default_config();
  config.block_count = 100;
  std::array<std::deque<Collector>, 6> outs;  // outlive the engine: a piece may be on its way after cancel()
  EngineHarness h(config, model());
  std::atomic<int> answered{0};
  const auto caller = [&](size_t index) {
    std::mt19937_64 random(index);
    for (int i = 0; i < 25; ++i) {
      const auto prompt = h.prompt(static_cast<TokenId>(random() % 5), 10 + static_cast<int>(random() % 60));
      const int count = 1 + static_cast<int>(random() % 40);
      const auto request = h.request(prompt, count, random() % 3);
      Collector& out = outs[index].emplace_back();
      const auto id = h.engine->submit(request, out.sink());
      ASSERT_TRUE(id.ok()) << id.status();
      if (random() % 3 == 0) {
        if (random() % 2 == 0) out.wait_pieces(1);
        h.engine->cancel(*id);
        continue;
      }
      ASSERT_TRUE(out.wait_end());
      ASSERT_EQ(out.ids(), h.model.reference(prompt, request.sampling, count));
      ++answered;
    }
  };
  std::vector<std::thread> callers;
  for (size_t i = 0; i < outs.size(); ++i) callers.emplace_back(caller, i);
  for (auto& thread : callers) thread.join();
  EXPECT_GT(answered, 50);
  ASSERT_TRUE(h.wait_idle());
  EXPECT_EQ(h.engine->load().kv_blocks_free, h.engine->load().kv_blocks_total);
}

}  // namespace engine_test
}  // namespace troupe
