// A computation that fails in the middle of a stream, seen by the client: the server over an engine whose
// runner breaks when it is told to.

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/core/json.h"
#include "common/core/sse.h"
#include "tests/worker/engine_harness.h"
#include "tests/worker/raw_http.h"
#include "tests/worker/spawn.h"
#include "worker/server.h"

namespace troupe::broken_stream_test {

constexpr const char* kModelDir = TROUPE_SOURCE_DIR "/configs/demo-model";

// The step that computes a request's tenth token fails.
Status break_at_tenth(const Batch& batch) {
  for (const BatchItem& item : batch.items) {
    if (item.sample_position == 10) return absl::InternalError("the abacus fell over");
  }
  return absl::OkStatus();
}

class BrokenStream : public ::testing::Test {
 protected:
  void SetUp() override {
    model_.name = "fake";
    model_.tokenizer = harness_.tokenizer.get();
    model_.config = std::move(load_model_config(kModelDir)).value();
    model_.total_count_max = 400;
    model_.prompt_bytes_max = 4000;
    WorkerServer::Options options;
    options.http.host = "127.0.0.1";
    options.http.port = 0;
    const WorkerServer::Parts parts{io_, model_, *harness_.engine, harness_.metrics, harness_.log};
    server_ = std::make_unique<WorkerServer>(parts, options);
    const auto status = server_->listen();
    ASSERT_TRUE(status.ok()) << status;
    server_->start();
    thread_ = std::thread([this] { io_.run(); });
  }
  void TearDown() override {
    if (!thread_.joinable()) return;
    test_spawn::spawn(io_.get_executor(), server_->drain(std::chrono::seconds(0))).get();
    thread_.join();
  }
  raw_http::Reply complete(int max_tokens, bool stream) {
    const std::string body = R"({"model":"fake","prompt":"Once","ignore_eos":true,"max_tokens":)" +
                             std::to_string(max_tokens) + R"(,"stream":)" + (stream ? "true}" : "false}");
    return raw_http::ask(server_->port(), "POST", "/v1/completions", body);
  }

  testing::EngineHarness harness_{testing::EngineHarness::default_config(), break_at_tenth};
  ServedModel model_;
  asio::io_context io_{1};
  std::unique_ptr<WorkerServer> server_;
  std::thread thread_;
};

TEST_F(BrokenStream, EndsWithAnErrorEventAndWithoutDone) {
  const auto reply = complete(20, /*stream=*/true);
  ASSERT_EQ(reply.status, 200) << reply.body;
  std::vector<std::string> events;
  SseParser parser;
  ASSERT_TRUE(parser.feed(reply.body, [&events](const SseEvent& e) { events.push_back(e.data); }).ok());
  ASSERT_GE(events.size(), 2u);
  const auto last = parse_json(events.back());
  ASSERT_TRUE(last.ok()) << events.back();
  ASSERT_TRUE(last->as_object().contains("error")) << events.back();
  EXPECT_NE(events.back().find("the abacus fell over"), std::string::npos) << events.back();
  EXPECT_EQ(reply.body.find("[DONE]"), std::string::npos) << "the answer is not whole";
}

TEST_F(BrokenStream, WholeAnswerIs500AndTheNextRequestWorks) {
  EXPECT_EQ(complete(20, /*stream=*/false).status, 500);
  const auto reply = complete(5, /*stream=*/true);
  EXPECT_EQ(reply.status, 200);
  EXPECT_TRUE(reply.body.ends_with(kSseDone)) << reply.body;
}

}  // namespace troupe::broken_stream_test
