#pragma once

// The server over an engine in which every step passes through the test's hook.

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <concepts>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "tests/worker/engine_harness.h"
#include "tests/worker/raw_http.h"
#include "tests/worker/spawn.h"
#include "worker/http/server.h"

namespace troupe::testing {

class HarnessServer {
 public:
  explicit HarnessServer(FakeRunner::Hook before_step = {}, const Generator::Options& generator = {},
                         bool hand_on_conversations = true, int64_t prompt_bytes_max = 4000)
      : HarnessServer(EngineHarness::Model{.before_step = std::move(before_step)}, generator,
                      hand_on_conversations, prompt_bytes_max) {}
  template <std::same_as<EngineHarness::Model> Model>  // which braces are not
  explicit HarnessServer(Model fake, const Generator::Options& generator = {},
                         bool hand_on_conversations = true, int64_t prompt_bytes_max = 4000)
      : harness_(std::move(fake)) {
    model_.name = "fake";
    model_.tokenizer = harness_.tokenizer.get();
    model_.config = load_model_config(TROUPE_SOURCE_DIR "/configs/demo-model").value();
    model_.total_count_max = 400;
    model_.prompt_bytes_max = prompt_bytes_max;
    WorkerServer::Options options;
    options.http.host = "127.0.0.1";
    options.http.port = 0;
    options.generator = generator;
    options.hand_on_conversations = hand_on_conversations;
    const WorkerServer::Parts parts{io_, model_, *harness_.engine, harness_.metrics, harness_.log};
    server_ = std::make_unique<WorkerServer>(parts, options);
    const auto status = server_->listen();
    EXPECT_TRUE(status.ok()) << status;
    server_->start();
    thread_ = std::thread([this] { io_.run(); });
  }
  // REQUIRES: the hook lets steps pass.
  ~HarnessServer() {
    test_spawn::spawn(io_.get_executor(), server_->drain(std::chrono::seconds(0))).get();
    thread_.join();
  }

  uint16_t port() const { return server_->port(); }
  Engine& engine() { return *harness_.engine; }

  // A completion's body without an end before max_tokens.
  static std::string body(int max_tokens, bool stream, const std::string& fields = "") {
    return R"({"model":"fake","prompt":"Once","ignore_eos":true,"max_tokens":)" + std::to_string(max_tokens) +
           R"(,"stream":)" + (stream ? "true" : "false") + fields + "}";
  }
  raw_http::Reply complete(const std::string& body, const std::vector<std::string>& headers = {}) const {
    return raw_http::ask(port(), "POST", "/v1/completions", body, headers);
  }

 private:
  EngineHarness harness_;
  ServedModel model_;
  asio::io_context io_{1};
  std::unique_ptr<WorkerServer> server_;
  std::thread thread_;
};

}  // namespace troupe::testing
