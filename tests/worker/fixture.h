#pragma once

// A whole worker inside the test: the demo model in float32, a real engine, a real server on a free port.

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <chrono>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

#include "tests/worker/spawn.h"
#include "worker/http/server.h"
#include "worker/load.h"

namespace troupe::worker_fixture {

inline WorkerSettings demo_settings() {
  WorkerSettings settings;
  settings.runner.model_dir = TROUPE_SOURCE_DIR "/configs/demo-model";
  settings.dtype = "float32";
  settings.runner.threads = 2;
  settings.server.http.port = 0;
  settings.runner.kv_cache_tokens = 16384;
  settings.log_level = LogLevel::kError;
  const auto status = resolve_worker_settings(settings);
  if (!status.ok()) throw std::runtime_error(status.ToString());
  return settings;
}

class Worker {
 public:
  explicit Worker(const WorkerSettings& settings = demo_settings())
      : log_(LogLevel::kError), model_(load(settings, metrics_, log_)), io_(1) {
    const auto options = engine_options(settings, model_);
    engine_ =
        std::make_unique<Engine>(std::move(model_.runner), model_.tokenizer.get(), options, metrics_, log_);
    engine_->start();
    const WorkerServer::Parts parts{io_, model_.served, *engine_, metrics_, log_, model_.faults.get()};
    server_ = std::make_unique<WorkerServer>(parts, server_options(settings));
    const auto status = server_->listen();
    if (!status.ok()) throw std::runtime_error(status.ToString());
    server_->start();
    thread_ = std::thread([this] { io_.run(); });
  }
  ~Worker() {
    if (!drained_) drain(std::chrono::seconds(0));
    thread_.join();
  }

  uint16_t port() const { return server_->port(); }
  Engine& engine() { return *engine_; }
  const ServedModel& model() const { return model_.served; }

  // Starts a drain; the future has its result.
  std::future<bool> start_drain(Duration grace) {
    drained_ = true;
    return test_spawn::spawn(io_.get_executor(), server_->drain(grace));
  }
  bool drain(Duration grace) { return start_drain(grace).get(); }
  void skip_grace_period() {
    asio::post(io_, [this] { server_->skip_grace_period(); });
  }

 private:
  static LoadedModel load(const WorkerSettings& settings, Metrics& metrics, const Logger& log) {
    auto model = load_model(settings, metrics, log);
    if (!model.ok()) throw std::runtime_error(model.status().ToString());
    return *std::move(model);
  }

  Logger log_;
  Metrics metrics_;
  LoadedModel model_;
  std::unique_ptr<Engine> engine_;
  asio::io_context io_;
  std::unique_ptr<WorkerServer> server_;
  std::thread thread_;
  bool drained_ = false;
};

}  // namespace troupe::worker_fixture
