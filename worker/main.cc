// troupe-worker: a model behind an OpenAI-shaped HTTP API.
//
// Read main() as a table of contents: what was asked for → model → engine → server → serve until asked
// to stop. Objects are built in the order they depend on each other and end in the reverse of it.

#include <sys/time.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "common/core/log.h"
#include "common/core/memory_trimmer.h"
#include "common/core/metrics.h"
#include "common/net/file_limit.h"
#include "common/net/final_signal_guard.h"
#include "common/net/task_group.h"
#include "worker/certificates.h"
#include "worker/config.h"
#include "worker/engine/engine.h"
#include "worker/http/server.h"
#include "worker/load.h"
#include "worker/model/config.h"
#include "worker/model/logprobs_command.h"
#include "worker/registration.h"
#include "worker/text/subcommands.h"

namespace troupe {
namespace {

constexpr int kExitOk = 0, kExitFailed = 1, kExitUsage = 2;
constexpr std::string_view kVersion = "0.1.0";

// The programs inside the program that need neither engine nor server.
using Subcommand = int (*)(const std::vector<std::string>& args, std::istream& in, std::ostream& out,
                           std::ostream& err);
Subcommand find_subcommand(std::string_view name) {
  if (name == "tokenize") return tokenize_command;
  if (name == "render") return render_command;
  if (name == "logprobs") return logprobs_command;
  return nullptr;
}

// A thread in the middle of something long, as a tokenizer in a huge text, does not look up: after this time
// it is not waited for.
void end_within(std::chrono::milliseconds time) {
  std::signal(SIGALRM, [](int) { _exit(kExitOk); });
  itimerval soon{};
  soon.it_value.tv_sec = static_cast<time_t>(time.count() / 1000);
  soon.it_value.tv_usec = static_cast<suseconds_t>(time.count() % 1000 * 1000);
  setitimer(ITIMER_REAL, &soon, nullptr);
}
// In the first one streams get their last events; the second is for a step that is under way.
constexpr std::chrono::milliseconds kHurriedEnd{500};
constexpr std::chrono::seconds kEndAfterGrace{10};

// The first SIGTERM or SIGINT drains, the second ends the grace; later ones have nothing left to ask for.
// SIGHUP has certificates read again.
class Signals {
 public:
  struct Parts {
    WorkerServer& server;
    Registration* registration;  // null: it is registered nowhere
    Certificates& certificates;
    const Logger& log;
  };
  Signals(asio::io_context& io, const Parts& parts, Duration grace)
      : signals_(io, SIGTERM, SIGINT), tasks_(io.get_executor()), parts_(parts), grace_(grace) {
    signals_.add(SIGHUP);
    wait();
  }

 private:
  void wait() {
    signals_.async_wait([this](const boost::system::error_code& error, int number) {
      if (!error) on_signal(number);
    });
  }
  void on_signal(int number) {
    if (number == SIGHUP) {
      parts_.certificates.renew(parts_.server);
      return wait();
    }
    parts_.log.info(draining_ ? "stopping" : "draining", {{"signal", number}});
    if (draining_) {
      parts_.server.skip_grace_period();
      end_within(kHurriedEnd);
      signals_.clear();
      return;
    }
    draining_ = true;
    end_within(std::chrono::ceil<std::chrono::milliseconds>(grace_) + kEndAfterGrace);
    tasks_.spawn(drain());
    if (parts_.registration != nullptr) tasks_.spawn(parts_.registration->end());
    wait();
  }
  Task<void> drain() {
    const bool all_done = co_await parts_.server.drain(grace_);
    parts_.log.info("stopped", {{"all_requests_done", all_done}});
    signals_.cancel();  // the last thing the io_context waits for
  }

  asio::signal_set signals_;
  TaskGroup tasks_;
  const Parts parts_;
  const Duration grace_;
  bool draining_ = false;
};

int serve(const WorkerSettings& settings) {
  const Logger log(settings.log_level);
  const size_t files_needed = settings.server.http.connections_max * 2 + 64;
  if (const auto status = raise_file_limit(files_needed); !status.ok()) {
    log.warn("file_limit_low", {{"why", to_std(status.message())}});
  }
  Metrics metrics;
  // While loading there is nothing to drain: a signal ends the process as a drain would.
  std::signal(SIGTERM, [](int) { _exit(kExitOk); });
  std::signal(SIGINT, [](int) { _exit(kExitOk); });
  std::signal(SIGHUP, SIG_IGN);  // certificates are read afterwards
  auto model = load_model(settings, metrics, log);
  if (!model.ok()) {
    log.error("model_refused", {{"reason", to_std(model.status().message())}});
    return kExitFailed;
  }
  Certificates certificates(settings, metrics, log);
  if (const auto status = certificates.read(); !status.ok()) {
    log.error("certificates_refused", {{"reason", to_std(status.message())}});
    return kExitFailed;
  }
  const FinalSignalGuard late_signals;
  const MemoryTrimmer trimmer;
  const auto options = engine_options(settings, *model);

  // Beyond this point the model is whole and fits its memory; nothing below allocates with a request's size.
  Engine engine(std::move(model->runner), model->tokenizer.get(), options, metrics, log);
  engine.start();

  asio::io_context io(1);
  auto server_settings = server_options(settings);
  server_settings.http.tls = certificates.listener();
  WorkerServer server({io, model->served, engine, metrics, log, model->faults.get()}, server_settings);
  if (auto status = server.listen(); !status.ok()) {
    log.error("listen_failed", {{"reason", to_std(status.message())}});
    return kExitFailed;
  }
  const SteadyClock clock;
  const auto registration = make_registration(settings, server.port(), engine.load().epoch,
                                              {io.get_executor(), metrics, log, clock, certificates.etcd()});
  Signals signals(io, {server, registration.get(), certificates, log}, settings.grace);
  server.start();
  if (registration != nullptr) registration->start();
  log.info("listening", {{"host", settings.server.http.host}, {"port", server.port()}});

  // Runs until a drain has closed the last connection.
  io.run();
  return kExitOk;
}

int main_of(int argc, const char* const* argv) {
  if (argc > 1) {
    if (const auto subcommand = find_subcommand(argv[1])) {
      return subcommand({argv + 2, argv + argc}, std::cin, std::cout, std::cerr);
    }
  }
  WorkerSettings settings;
  SettingsSchema schema("troupe-worker", "Serves a model over OpenAI's HTTP API.");
  describe_worker_settings(schema, settings);
  const auto parsed = schema.parse(argc, argv);
  if (!parsed.ok()) {
    std::cerr << "troupe-worker: " << to_std(parsed.status().message()) << "\n";
    return kExitUsage;
  }
  if (parsed->help) {
    std::cout
        << schema.help()
        << "\nSubcommands (each has --help): tokenize, render, logprobs: JSON lines in, JSON lines out.\n";
    return kExitOk;
  }
  if (parsed->version) {
    std::cout << "troupe-worker " << kVersion << "\n";
    return kExitOk;
  }
  auto status = parsed->positional.empty()
                    ? resolve_worker_settings(settings)
                    : invalid_argument("'" + parsed->positional.front() +
                                       "' is no subcommand; there are tokenize, render, logprobs");
  if (!status.ok()) {
    std::cerr << "troupe-worker: " << to_std(status.message()) << "\n";
    return kExitUsage;
  }
  if (parsed->check_config) {
    // As far as can be checked without loading it: what model the folder says that it holds.
    status =
        settings.device == "sim" ? absl::OkStatus() : load_model_config(settings.runner.model_dir).status();
    if (!status.ok()) {
      std::cerr << "troupe-worker: --model: " << to_std(status.message()) << "\n";
      return kExitUsage;
    }
    std::cout << "configuration ok\n";
    return kExitOk;
  }
  return serve(settings);
}

}  // namespace
}  // namespace troupe

int main(int argc, char** argv) {
  try {
    return troupe::main_of(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "troupe-worker: %s\n", e.what());
    return troupe::kExitFailed;
  }
}
