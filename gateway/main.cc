// troupe-gateway: settings → parts → listen → until a signal → drain.

#include <unistd.h>

#include <boost/asio/basic_signal_set.hpp>
#include <boost/asio/io_context.hpp>
#include <csignal>
#include <iostream>
#include <random>

#include "common/core/memory_trimmer.h"
#include "common/net/file_limit.h"
#include "common/net/final_signal_guard.h"
#include "gateway/gateway.h"
#include "gateway/reload.h"

namespace troupe {
namespace {

constexpr int kBadUsage = 2;
constexpr std::string_view kVersion = "troupe-gateway 0.1.0\n";

using Signals = asio::basic_signal_set<Executor>;

// The first SIGTERM or SIGINT drains; a second stops at once.
Task<void> serve_until_signalled(Gateway& gateway, Signals& signals, const Logger& log,
                                 asio::io_context& io) {
  const int signal = co_await signals.async_wait(use_task);
  log.info("draining", {{"signal", signal}, {"requests", gateway.proxy().requests_running()}});
  signals.async_wait([&log](const boost::system::error_code& error, int second) {
    if (error) return;
    log.warn("stopped_at_once", {{"signal", second}});
    _exit(0);
  });
  co_await gateway.drain();
  log.info("stopped");
  io.stop();
}

Task<void> reload_when_signalled(Gateway& gateway, Signals& hang_ups, Reload& reload) {
  while (true) {
    co_await hang_ups.async_wait(use_task);
    reload.run(gateway);
  }
}

int run(const GatewayConfig& config, Reload& reload, const Logger& log) {
  if (const Status status = raise_file_limit(files_needed(config)); !status.ok()) {
    log.warn("file_limit_low", {{"why", to_std(status.message())}});
  }
  const FinalSignalGuard late_signals;
  const MemoryTrimmer trimmer;
  const SteadyClock clock;
  asio::io_context io(1);
  std::random_device seed;
  Gateway gateway(io, config, clock, log, (static_cast<uint64_t>(seed()) << 32) | seed());
  Signals signals(io.get_executor());
  signals.add(SIGTERM);
  signals.add(SIGINT);
  Signals hang_ups(io.get_executor());
  hang_ups.add(SIGHUP);
  if (const Status status = gateway.start(); !status.ok()) {
    log.error("cannot_start", {{"why", to_std(status.message())}});
    return 1;
  }
  log.info("listening", {{"host", config.main_server.host},
                         {"port", gateway.port()},
                         {"metrics_port", gateway.metrics_port()},
                         {"workers", config.fleet.workers.size()}});
  if (const ExposedEndpoints doors = exposed_endpoints(config); !doors.open.empty()) {
    log.warn("open_to_all", {{"host", config.metrics_server.host},
                             {"metrics_port", gateway.metrics_port()},
                             {"open", doors.open},
                             {"closed_by", doors.close}});
  }
  TaskGroup tasks(io.get_executor());
  tasks.spawn(serve_until_signalled(gateway, signals, log, io));
  tasks.spawn(reload_when_signalled(gateway, hang_ups, reload));
  io.run();
  return 0;
}

int main_with(int argc, char** argv) {
  GatewaySettings settings;
  SettingsSchema schema("troupe-gateway", "routes role-play chat to the workers that hold its personas");
  describe_settings(settings, schema);
  const auto parsed = schema.parse(argc, argv);
  if (!parsed.ok()) {
    std::cerr << "troupe-gateway: " << parsed.status().message() << "\n";
    return kBadUsage;
  }
  if (parsed->help) {
    std::cout << schema.help();
    return 0;
  }
  if (parsed->version) {
    std::cout << kVersion;
    return 0;
  }
  if (!parsed->positional.empty()) {
    std::cerr << "troupe-gateway: '" << parsed->positional.front()
              << "': there are no commands, only flags; see --help\n";
    return kBadUsage;
  }
  const auto config = make_config(settings);
  if (!config.ok()) {
    std::cerr << "troupe-gateway: " << config.status().message() << "\n";
    return kBadUsage;
  }
  if (parsed->check_config) {
    const Status files = check_files(*config);
    if (!files.ok()) std::cerr << "troupe-gateway: " << files.message() << "\n";
    return files.ok() ? 0 : kBadUsage;
  }
  const Logger log(config->log_level);
  Reload reload(argc, argv, schema.values(), log);
  return run(*config, reload, log);
}

}  // namespace
}  // namespace troupe

int main(int argc, char** argv) {
  return troupe::main_with(argc, argv);
}
