#include "gateway/gateway.h"

#include "common/net/timer.h"

namespace troupe {

Gateway::Gateway(asio::io_context& io, const GatewayConfig& config, const Clock& clock, const Logger& log,
                 uint64_t seed)
    : io_(io),
      clock_(clock),
      log_(log),
      record_path_(config.record),
      record_salt_(hash_bytes({reinterpret_cast<const char*>(&seed), sizeof seed})),
      grace_(config.grace),
      instruments_(metrics_),
      router_(config.router, seed),
      fleet_(config.fleet, Fleet::Parts{io.get_executor(), router_, metrics_, clock, log}),
      prober_(io.get_executor(), fleet_, clock, config.prober),
      proxy_(config.proxy, Proxy::Parts{fleet_, router_, instruments_, clock, log}, seed ^ 0x5bd1e995),
      admin_(Admin::Parts{proxy_, fleet_, router_, metrics_}),
      main_server_(
          io, config.main_server, [this](Exchange& exchange) { return proxy_.handle(exchange); }, log),
      metrics_server_(
          io, config.metrics_server, [this](Exchange& exchange) { return admin_.handle(exchange); }, log),
      background_(io.get_executor()) {
  background_.on_error = [&log](std::string_view what) {
    log.error("background_task_failed", {{"what", what}});
  };
}

Status Gateway::start_record() {
  if (record_path_.empty()) return absl::OkStatus();
  const TrafficRecord::Parts parts{metrics_, clock_, log_};
  TROUPE_ASSIGN_OR_RETURN(record_, TrafficRecord::open(record_path_, parts, record_salt_));
  proxy_.record_to(*record_);
  return absl::OkStatus();
}

Status Gateway::start() {
  TROUPE_RETURN_IF_ERROR(start_record());
  TROUPE_RETURN_IF_ERROR(main_server_.listen());
  TROUPE_RETURN_IF_ERROR(metrics_server_.listen());
  prober_.start(background_);
  background_.spawn(plan_every_second());
  main_server_.start();
  metrics_server_.start();
  return absl::OkStatus();
}

Task<void> Gateway::plan_every_second() {
  Timer timer(io_.get_executor());
  while (true) {
    timer.expires_after(std::chrono::seconds(1));
    co_await timer.async_wait(use_task);
    router_.plan(clock_.now());
  }
}

Task<void> Gateway::drain() {
  proxy_.start_drain();
  co_await main_server_.drain(grace_);
  background_.close();
  background_.cancel();
  co_await background_.join();
  co_await metrics_server_.drain(std::chrono::seconds(1));
}

}  // namespace troupe
