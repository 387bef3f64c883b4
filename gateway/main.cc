// troupe-gateway: settings → parts → listen → until a signal → drain.

#include <unistd.h>

#include <boost/asio/basic_signal_set.hpp>
#include <boost/asio/io_context.hpp>
#include <csignal>
#include <iostream>
#include <random>
#include <span>

#include "common/net/file_limit.h"
#include "common/net/late_signals.h"
#include "gateway/gateway.h"

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

using Arguments = std::span<char*>;

// What the same command line, and the file it names, say now.
StatusOr<GatewayConfig> config_of(Arguments arguments) {
  GatewaySettings settings;
  SettingsSchema schema("troupe-gateway", "");
  describe_settings(settings, schema);
  TROUPE_RETURN_IF_ERROR(schema.parse(static_cast<int>(arguments.size()), arguments.data()).status());
  return make_config(settings);
}

Status reload(Gateway& gateway, Arguments arguments) {
  TROUPE_ASSIGN_OR_RETURN(const GatewayConfig config, config_of(arguments));
  return gateway.reload(config);
}

Task<void> reload_when_signalled(Gateway& gateway, Signals& hang_ups, Arguments arguments,
                                 const Logger& log) {
  while (true) {
    co_await hang_ups.async_wait(use_task);
    if (const Status status = reload(gateway, arguments); status.ok()) {
      log.info("reloaded", {{"api_keys", gateway.api_key_count()}});
    } else {
      log.error("not_reloaded", {{"why", to_std(status.message())}});
    }
  }
}

// A client's connection and its worker's; a probe and the residency of every worker, a message to every
// gateway; and what the process itself holds open.
size_t files_needed(const GatewayConfig& config) {
  const size_t others = config.fleet.workers.size() * 2 + config.gossip.peers.size();
  return config.main_server.connections_max * 2 + others + 64;
}

int run(const GatewayConfig& config, Arguments arguments, const Logger& log) {
  if (const Status status = raise_file_limit(files_needed(config)); !status.ok()) {
    log.warn("file_limit_low", {{"why", to_std(status.message())}});
  }
  const LateSignals late_signals;
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
  TaskGroup tasks(io.get_executor());
  tasks.spawn(serve_until_signalled(gateway, signals, log, io));
  tasks.spawn(reload_when_signalled(gateway, hang_ups, arguments, log));
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
  if (parsed->check_config) return 0;
  const Logger log(config->log_level);
  return run(*config, {argv, static_cast<size_t>(argc)}, log);
}

}  // namespace
}  // namespace troupe

int main(int argc, char** argv) {
  return troupe::main_with(argc, argv);
}
