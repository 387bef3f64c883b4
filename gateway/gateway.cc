#include "gateway/gateway.h"

#include <algorithm>

#include "common/net/timer.h"
#include "gateway/access/tenant.h"

namespace troupe {

namespace {

constexpr Duration kFlushSpansWithin = std::chrono::seconds(5);
constexpr Duration kFlushPinsWithin = std::chrono::seconds(2);
constexpr Duration kShareLimitsEvery = std::chrono::milliseconds(100);

// Gives the router a name that is unique to this gateway's life.
route::RouterOptions named(route::RouterOptions options, uint64_t seed) {
  options.name = chain_hash(Hash128{seed, 0}, std::string_view("gateway"));
  return options;
}

// Names of workers that nobody outside can guess addresses from.
FleetOptions with_names(FleetOptions options, uint64_t seed) {
  if (!options.name_salt) options.name_salt = chain_hash(Hash128{seed, 1}, std::string_view("worker"));
  return options;
}

// Counts and logs requests that the HTTP layer refuses, which never reach the proxy.
HttpServerOptions told(HttpServerOptions options, Instruments& instruments,
                       const RequestObservers& observers) {
  options.on_refused = [&instruments, &observers](const HttpRefusal& refusal) {
    instruments.malformed(refusal.status);
    observers.malformed(refusal);
  };
  return options;
}

std::unique_ptr<SharedState> make_state(const GatewayConfig& config, const SharedState::Parts& parts) {
  state_degraded_gauge(parts.metrics);  // alerts look at them, also without shared state
  state_other_sets_gauge(parts.metrics);
  if (config.state.etcd.members.empty()) return nullptr;
  return std::make_unique<SharedState>(config.state, parts);
}

// (Limits of keys may come with a reload.)
std::unique_ptr<AccountStore> make_account_store(const GatewayConfig& config,
                                                 const AccountStore::Parts& parts) {
  if (config.state.etcd.members.empty()) return nullptr;
  return std::make_unique<AccountStore>(config.state.etcd, config.state.prefix, parts);
}

std::unique_ptr<ModerationHook> make_moderation(const GatewayConfig& config, Executor executor,
                                                Metrics& metrics, const Clock& clock) {
  if (!config.proxy.moderation.enabled()) return nullptr;
  return std::make_unique<ModerationHook>(config.proxy.moderation, executor, metrics, clock);
}

}  // namespace

Gateway::Gateway(asio::io_context& io, const GatewayConfig& config, const Clock& clock, const Logger& log,
                 uint64_t seed)
    : io_(io),
      clock_(clock),
      log_(log),
      key_files_{config.api_keys, config.tenant_secret, config.user_salt},
      telemetry_(config.telemetry),
      record_settings_{config.record, config.record_salt.value_or(
                                          hash_bytes({reinterpret_cast<const char*>(&seed), sizeof seed}))},
      tls_(config.tls),
      grace_(config.grace),
      notice_(config.notice),
      plan_tick_(config.router.planner.tick),
      gateways_min_(config.gossip.rules.gateways),
      instruments_(metrics_),
      api_keys_(metrics_),
      router_(named(config.router, seed), seed),
      fleet_(with_names(config.fleet, seed), Fleet::Parts{io.get_executor(), router_, metrics_, clock, log}),
      texts_(config.migrator.text_bytes),
      prefixes_{{config.migrator, {io.get_executor(), fleet_, router_, texts_, metrics_, clock, log}},
                {config.pins, {io.get_executor(), fleet_, router_, metrics_, clock, log}},
                {config.personas, {io.get_executor(), metrics_, clock, log}}},
      watch_{{io.get_executor(), fleet_, log, config.fleet.names, config.fleet.client},
             {io.get_executor(), fleet_, clock, config.prober}},
      residency_reader_(config.residency, {io.get_executor(), fleet_, router_, metrics_, clock, log}),
      gossip_(config.gossip, {io.get_executor(), router_, metrics_, clock, log}),
      state_(make_state(config, {io.get_executor(), fleet_, router_, gossip_, metrics_, clock, log})),
      admission_queue_(config.admission_queue, {io.get_executor(), router_, metrics_, clock}),
      keeping_{nullptr, make_account_store(config, {io.get_executor(), metrics_, clock}),
               make_moderation(config, io.get_executor(), metrics_, clock)},
      accounts_(config.proxy.accounts, {io.get_executor(), metrics_, background_, keeping_.store.get()}),
      proxy_(config.proxy,
             Proxy::Parts{fleet_, router_, instruments_, observers_, admission_queue_, accounts_, clock, log},
             seed ^ 0x5bd1e995),
      admin_(Admin::Parts{proxy_, fleet_, router_, metrics_, gossip_, residency_reader_,
                          prefixes_.personas.registry(), clock}),
      main_server_(
          io, main_listener(config.main_server),
          [this](Exchange& exchange) { return proxy_.handle(exchange); }, log),
      metrics_server_(
          io, metrics_listener(config.metrics_server),
          [this](Exchange& exchange) { return admin_.handle(exchange); }, log),
      background_(io.get_executor()) {
  if (config.migrator.enabled) proxy_.keep_texts(texts_);
  if (keeping_.moderation != nullptr) proxy_.moderate_by(*keeping_.moderation);
  share_pins(config);
  if (state_ != nullptr) prefixes_.personas.share(config.state.etcd, config.state.prefix);
  proxy_.keep_personas(prefixes_.personas.registry(), prefixes_.personas.keeper());
  proxy_.keep_pins(prefixes_.pins.registry(), prefixes_.store == nullptr);
  admin_.demands_certificates(config.metrics_demands_certificates);
  admin_.answer_to(config.admin_hosts);
  admin_.add_only(config.workers_addable);
  fleet_.on_replaced = [this](route::NodeIndex node) { gossip_.forget_node(node); };
  background_.on_error = [&log](std::string_view what) {
    log.error("background_task_failed", {{"what", what}});
  };
}

void Gateway::share_pins(const GatewayConfig& config) {
  prefixes_.pins.salt_of = [this](const std::string& owner) -> std::optional<std::string> {
    const auto client = api_keys_.of_owner(owner);
    if (client == nullptr || client->tenant_salt().empty()) return std::nullopt;
    return salt_within(client->tenant_salt(), "");
  };
  if (state_ == nullptr) {
    if (!config.pins.file.empty()) {
      const PinFile::Parts parts{io_.get_executor(), prefixes_.pins, clock_, log_};
      prefixes_.file = std::make_unique<PinFile>(config.pins.file, parts);
    }
    return prefixes_.pins.import_from_workers(config.api_keys.empty());
  }
  const PinStore::Parts parts{io_.get_executor(),          prefixes_.pins, metrics_, clock_, log_,
                              router_.options().name.hex()};
  prefixes_.store = std::make_unique<PinStore>(config.state.etcd, config.state.prefix, parts);
  prefixes_.pins.shard = [this] { return state_->place(); };
}

// Clients without a key may not send bodies.
HttpServerOptions Gateway::main_listener(HttpServerOptions options) {
  options.wants_body = [this](const HttpRequest& head) { return proxy_.wants_body(head); };
  return listener(told(std::move(options), instruments_, observers_), "main");
}

HttpServerOptions Gateway::metrics_listener(HttpServerOptions options) {
  options.wants_body = [this](const HttpRequest& head) { return admin_.wants_body(head); };
  return listener(std::move(options), "metrics");
}

HttpServerOptions Gateway::listener(HttpServerOptions options, const char* name) {
  options.handshakes_failed = &metrics_.counter(
      "troupe_gateway_tls_handshakes_failed_total",
      "Connections of clients that came to no TLS, or to none in time.", {{"listener", name}});
  return options;
}

void Gateway::use(const GatewayTls& tls) {
  tls_.upstream->context = tls.upstream->context;
  tls_.etcd->context = tls.etcd->context;
  export_tls_expiry(metrics_, "troupe_gateway", "listener", tls.listener.get());
  export_tls_expiry(metrics_, "troupe_gateway", "upstream", tls.upstream->context.get());
  export_tls_expiry(metrics_, "troupe_gateway", "etcd", tls.etcd->context.get());
}

Status Gateway::start_record() {
  if (record_settings_.path.empty()) return absl::OkStatus();
  const TrafficRecorder::Parts parts{metrics_, clock_, log_};
  TROUPE_ASSIGN_OR_RETURN(record_,
                          TrafficRecorder::open(record_settings_.path, parts, record_settings_.salt));
  proxy_.record_to(*record_);
  return absl::OkStatus();
}

Status Gateway::start_observers() {
  if (telemetry_.access_log != kAccessLogOff) {
    const AccessLog::Parts parts{metrics_, clock_, log_};
    TROUPE_ASSIGN_OR_RETURN(access_log_, AccessLog::open(telemetry_.access_log, parts));
    observers_.log_to(*access_log_);
  }
  if (telemetry_.otlp) {
    const SpanExporter::Parts parts{io_.get_executor(), metrics_, clock_, log_};
    exporter_ = std::make_unique<SpanExporter>(*telemetry_.otlp, parts);
    observers_.export_to(*exporter_);
    observers_.sample(telemetry_.sample_ratio);
  }
  if (telemetry_.usage.enabled()) {
    const UsageExport::Parts parts{metrics_, clock_, log_, key_files_.user_salt};
    TROUPE_ASSIGN_OR_RETURN(keeping_.usage, UsageExport::open(telemetry_.usage, parts));
    proxy_.export_to(*keeping_.usage);
    admin_.show_usage(*keeping_.usage);
  }
  return absl::OkStatus();
}

void Gateway::reopen_logs() {
  if (keeping_.usage != nullptr) keeping_.usage->reopen();
  if (access_log_ != nullptr) access_log_->reopen();
}

Status Gateway::change(const GatewayConfig& config) {
  TROUPE_RETURN_IF_ERROR(fleet_.can_change(config.fleet));
  TROUPE_RETURN_IF_ERROR(load_keys());
  grace_ = config.grace;
  notice_ = config.notice;
  plan_tick_ = config.router.planner.tick;
  main_server_.change(config.main_server);
  metrics_server_.change(config.metrics_server);
  admin_.demands_certificates(config.metrics_demands_certificates);
  admin_.answer_to(config.admin_hosts);
  admin_.add_only(config.workers_addable);
  admission_queue_.change(config.admission_queue);
  proxy_.change(config.proxy);
  observers_.sample(config.telemetry.sample_ratio);
  watch_.prober.change(config.prober);
  prefixes_.migrator.change(config.migrator.deadline);
  prefixes_.pins.registry().change(config.pins);
  prefixes_.personas.registry().change(config.personas);
  router_.change(config.router.affinity, config.router.planner);
  use(config.tls);
  fleet_.change(config.fleet);
  watch_.names.change(config.fleet.names);
  return absl::OkStatus();
}

Status Gateway::load_keys() {
  if (key_files_.api_keys.empty()) return absl::OkStatus();
  return api_keys_.load(key_files_.api_keys, key_files_.tenant_secret, clock_.now());
}

Status Gateway::start() {
  use(tls_);
  TROUPE_RETURN_IF_ERROR(load_keys());
  if (!key_files_.api_keys.empty()) {
    proxy_.require_keys(api_keys_);
    admin_.ask_for(api_keys_);
  }
  TROUPE_RETURN_IF_ERROR(start_record());
  TROUPE_RETURN_IF_ERROR(start_observers());
  if (prefixes_.file != nullptr) TROUPE_RETURN_IF_ERROR(prefixes_.file->load());
  const auto owner_of = [this](const std::string& tenant) { return api_keys_.owner_of_tenant(tenant); };
  TROUPE_RETURN_IF_ERROR(prefixes_.personas.load(owner_of));
  TROUPE_RETURN_IF_ERROR(main_server_.listen());
  TROUPE_RETURN_IF_ERROR(metrics_server_.listen());
  prefixes_.migrator.start(background_);
  prefixes_.pins.start(background_);
  if (prefixes_.store != nullptr) prefixes_.store->start(background_);
  prefixes_.personas.start(background_);
  if (prefixes_.file != nullptr) prefixes_.file->start(background_);
  watch_.names.start(background_);
  watch_.prober.start(background_);
  residency_reader_.start(background_);
  gossip_.start(background_);
  if (state_ != nullptr) state_->start(background_);
  if (exporter_ != nullptr) exporter_->start(background_);
  background_.spawn(plan_by_and_by());
  background_.spawn(share_limits());
  admission_queue_.start(background_);
  main_server_.start();
  metrics_server_.start();
  return absl::OkStatus();
}

// Called at least every second, so the router sees when there is a first set to plan for.
Task<void> Gateway::plan_by_and_by() {
  Timer timer(io_.get_executor());
  while (true) {
    timer.expires_after(std::min<Duration>(plan_tick_, std::chrono::seconds(1)));
    co_await timer.async_wait(use_task);
    plan();
  }
}

// Sets this gateway's shard of the fleet's limits, among the live gateways: by etcd's leases, or by gossip;
// without either, the configured number. (One that is cut off from the others enforces the whole.)
Task<void> Gateway::share_limits() {
  Gauge& sharing = metrics_.gauge("troupe_gateway_limits_shared_by",
                                  "Gateways, this one included, that enforce a part of each limit.");
  Timer timer(io_.get_executor());
  route::GatewayShard shared;
  while (true) {
    route::GatewayShard place = router_.planning().gateways().place(router_.options().name, clock_.now());
    if (state_ != nullptr && state_->place().of >= place.of) place = state_->place();
    place = route::of_at_least(place, gateways_min_);
    sharing.Set(static_cast<double>(place.of));
    if (place != shared) {
      if (place.of != shared.of) log_.info("limits_shared", {{"gateways", place.of}});
      api_keys_.share(place, clock_.now());
      admission_queue_.share(place);
      accounts_.share(place);
      shared = place;
    }
    timer.expires_after(kShareLimitsEvery);
    co_await timer.async_wait(use_task);
  }
}

// Plans from the workers' own counts where they report them, else from this gateway's traffic.
void Gateway::plan() {
  const TimePoint now = clock_.now();
  // Gateways that share the table add up what each has sent.
  if (state_ != nullptr || !fleet_.reports_set_loads()) {
    router_.plan(now);
  } else if (planned_at_ == TimePoint{} || now >= planned_at_ + plan_tick_) {
    route::SetLoads loads = fleet_.take_set_loads(now);
    if (loads.sets.empty() && planned_at_ == TimePoint{}) return;  // the first sets are planned for at once
    planned_at_ = now;
    router_.plan(now, std::move(loads));
  }
}

Task<void> Gateway::give_notice(TimePoint until) {
  if (clock_.now() >= until) co_return;
  Timer timer(io_.get_executor());
  timer.expires_at(until);
  co_await timer.async_wait(use_task);
}

Task<void> Gateway::drain() {
  const TimePoint begin = clock_.now(), by = begin + grace_;
  proxy_.give_notice();
  main_server_.close_after_answers();
  co_await give_notice(begin + std::min(notice_, grace_));
  const Duration left = std::max<Duration>(by - clock_.now(), Duration::zero());
  proxy_.start_drain(left);
  co_await main_server_.drain(left);
  // Uses what is left of the grace; a sick collector does not keep a finished gateway.
  const TimePoint spans_by = std::min<TimePoint>(by, clock_.now() + kFlushSpansWithin);
  if (exporter_ != nullptr) co_await exporter_->flush(spans_by);
  background_.close();
  background_.cancel();
  co_await background_.join();
  if (prefixes_.store != nullptr) co_await prefixes_.store->flush(clock_.now() + kFlushPinsWithin);
  prefixes_.file.reset();  // writes what changed last
  if (state_ != nullptr) co_await state_->leave();
  co_await metrics_server_.drain(std::chrono::seconds(1));
}

}  // namespace troupe
