#include "gateway/cluster/shared_state.h"

#include <algorithm>
#include <utility>

#include "common/settings/schema.h"

namespace troupe {

using etcd::KeyRange;
using etcd::KeyValue;
using route::StoreKey;

namespace {

constexpr Duration kRetry = std::chrono::milliseconds(250);

Counter& tables(Metrics& metrics, const char* what) {
  return metrics.counter("troupe_gateway_state_tables_total", "Tables in etcd, by what became of them here.",
                         {{"result", what}});
}

}  // namespace

route::StoreKey store_key(const KeyValue& kv) {
  return {kv.value, kv.create_revision, kv.mod_revision, kv.lease != 0};
}

Gauge& state_degraded_gauge(Metrics& metrics) {
  return metrics.gauge("troupe_gateway_state_degraded",
                       "1 while etcd, where gateways share their state, cannot be reached.");
}

Gauge& state_other_sets_gauge(Metrics& metrics) {
  return metrics.gauge("troupe_gateway_state_other_sets",
                       "Gateways heard through etcd that divide sets in another way; at least 1 "
                       "while the table there is none that this gateway can go by.");
}

SharedState::SharedState(const SharedStateOptions& options, const Parts& parts)
    : options_(options),
      keys_(options.prefix),
      executor_(parts.executor),
      router_(parts.router),
      clock_(parts.clock),
      log_(parts.log),
      name_(parts.router.options().name.hex()),
      etcd_(parts.executor, options.etcd, parts.clock),
      lease_(etcd_, options.lease_ttl, parts.clock),
      membership_(parts.fleet, options.workers, parts.log),
      peers_(parts.gossip, keys_.gateways + name_, parts.log),
      round_({options.plan_tick, options.gateways}, parts.router),
      pause_(parts.executor),
      degraded_gauge_(state_degraded_gauge(parts.metrics)),
      leads_gauge_(parts.metrics.gauge("troupe_gateway_state_leader",
                                       "1 while this gateway plans the table for all of them.")),
      workers_gauge_(
          parts.metrics.gauge("troupe_gateway_state_workers", "Workers registered in etcd, as known here.")),
      gateways_gauge_(parts.metrics.gauge("troupe_gateway_state_gateways",
                                          "Gateways that share this state, as known here.")),
      other_sets_gauge_(state_other_sets_gauge(parts.metrics)),
      written_(tables(parts.metrics, "written")),
      refused_(tables(parts.metrics, "refused")),
      adopted_(tables(parts.metrics, "adopted")),
      ignored_(tables(parts.metrics, "ignored")),
      failed_(parts.metrics.counter("troupe_gateway_state_failures_total",
                                    "Rounds with etcd that could not be ended.")) {
  degraded_gauge_.Set(1);
}

SharedState::~SharedState() = default;

void SharedState::start(TaskGroup& group) {
  group.spawn(keep());
  group.spawn(follow());
}

Task<void> SharedState::leave() {
  const Status ended = co_await lease_.end();
  log_.info("state_left", {{"told", ended.ok()}});
}

// Reports the state seen by both tasks, when it may have changed.
void SharedState::report_state() {
  degraded_gauge_.Set(degraded() ? 1 : 0);
  workers_gauge_.Set(static_cast<double>(membership_.size()));
  const bool leads = round_.shared().leads(clock_.now());
  router_.planning().set_plans(leads);
  leads_gauge_.Set(leads ? 1 : 0);
  report_other_sets();
  if (std::exchange(led_, leads) != leads)
    log_.info(leads ? "state_leads" : "state_leads_no_more", {{"epoch", router_.planning().version().epoch}});
  if (!keeps_ && why_.empty()) return;  // neither has completed a round
  if (std::exchange(logged_degraded_, degraded()) == degraded()) return;
  if (degraded()) {
    log_.warn("state_degraded", {{"why", why_}});
  } else {
    log_.info("state_shared", {{"workers", membership_.size()}, {"leader", round_.shared().leader()}});
  }
}

Task<void> SharedState::follow() {
  Timer timer(executor_);
  while (true) {
    const Status ended = co_await read_and_watch();
    watches_ = false;
    why_ = ended.ToString();
    failed_.Increment();
    timer.expires_after(kRetry);
    co_await timer.async_wait(use_task);
  }
}

// Runs until the watch ends, which it always does with an error.
Task<Status> SharedState::read_and_watch() {
  etcd::Txn txn;
  txn.reads = {KeyRange::key(keys_.leader), KeyRange::key(keys_.table), KeyRange::prefix(keys_.workers)};
  if (!options_.advertise_url.empty()) txn.reads.push_back(KeyRange::prefix(keys_.gateways));
  const int64_t known = round_.shared().revision();
  const auto all = co_await etcd_.txn(txn);
  if (!all.ok()) {
    membership_.unreachable();
    report_state();
    co_return all.status();
  }
  take(*all, known);
  const auto watch = co_await etcd_.watch(txn.reads, all->revision + 1);
  if (!watch.ok()) report_state();
  if (!watch.ok()) co_return watch.status();
  watches_ = true;
  report_state();
  while (true) {
    const auto news = co_await (*watch)->next();
    if (!news.ok()) co_return news.status();
    if (news->canceled) co_return absl::UnavailableError("etcd: the watch was canceled");
    take(*news);
    report_state();
  }
}

// Takes the complete state as of one revision.
void SharedState::take(const etcd::TxnAnswer& all, int64_t known) {
  std::optional<StoreKey> leader, table;
  std::vector<std::pair<std::string, std::string>> workers, gateways;
  for (const KeyValue& kv : all.found) {
    if (kv.key == keys_.leader) leader = store_key(kv);
    if (kv.key == keys_.table) table = store_key(kv);
    if (kv.key.starts_with(keys_.workers)) workers.emplace_back(kv.key, kv.value);
    if (kv.key.starts_with(keys_.gateways)) gateways.emplace_back(kv.key, kv.value);
  }
  membership_.all(workers);
  if (!options_.advertise_url.empty()) peers_.all(gateways);
  apply(round_.saw_all(all.revision, known, leader ? &*leader : nullptr, table ? &*table : nullptr));
  sync_now();
}

void SharedState::take(const etcd::WatchMessage& news) {
  for (const etcd::WatchEvent& event : news.events) {
    const KeyValue& kv = event.kv;
    const StoreKey key = store_key(kv);
    const StoreKey* present = event.deleted ? nullptr : &key;
    if (kv.key == keys_.leader) {
      round_.saw_leader(present, kv.mod_revision);
      sync_now();
    } else if (kv.key == keys_.table) {
      apply(round_.saw_table(present, kv.mod_revision));
    } else if (kv.key.starts_with(keys_.gateways)) {
      take_gateway(event);
    } else if (event.deleted) {
      membership_.gone(kv.key);
    } else {
      membership_.registered(kv.key, kv.value);
    }
  }
}

void SharedState::take_gateway(const etcd::WatchEvent& event) {
  if (event.deleted) {
    peers_.gone(event.kv.key);
  } else {
    peers_.registered(event.kv.key, event.kv.value);
  }
}

// Called when the leader is gone: acts now, not in a second or two.
void SharedState::sync_now() {
  if (round_.wants_round(clock_.now())) pause_.wake();
}

void SharedState::apply(const route::StoreUpdate& update) {
  if (update.written) written_.Increment();
  if (update.refused) refused_.Increment();
  if (update.adopted) adopted_.Increment();
  if (update.removed_leader) log_.warn("state_leader_without_lease", {{"key", keys_.leader}});
  if (update.resigned) log_.warn("state_resigns", {{"nodes", router_.planning().announcement().nodes}});
  if (!update.table.ok()) log_.warn("state_table_malformed", {{"why", to_std(update.table.message())}});
  for (const auto& [gateway, why] : update.loads)
    log_.warn("state_loads_malformed", {{"key", keys_.loads + gateway}, {"why", to_std(why.message())}});
  if (update.adopted) table_other_kind_ = false;
  if (!update.other_kind) return;
  ignored_.Increment();
  table_other_kind_ = true;
}

// Gateways under one prefix should divide sets alike; a difference is logged.
void SharedState::report_other_sets() {
  const route::GatewayAnnouncement own = router_.planning().announcement();
  int64_t differing = 0;
  for (const auto& [name, other] : router_.planning().gateways().others())
    differing += other.announcement.strict_sets != own.strict_sets ? 1 : 0;
  differing = std::max<int64_t>(differing, table_other_kind_ ? 1 : 0);
  other_sets_gauge_.Set(static_cast<double>(differing));
  const bool differs = differing > 0;
  if (std::exchange(logged_other_sets_, differs) == differs) return;
  if (!differs) {
    log_.info("state_same_sets", {{"strict_sets", own.strict_sets}});
    return;
  }
  log_.warn("state_other_sets",
            {{"here", own.strict_sets},
             {"gateways", differing},
             {"table", table_other_kind_ ? "ignored: one side is in mode strict, the other is not; give them "
                                           "one mode, or an etcd_prefix each"
                                         : "the planner's strict_sets count"}});
}

void describe(SettingsSchema& schema, SharedStateOptions& options) {
  schema.add("etcd_prefix", &options.prefix, "what the keys there begin with");
  schema.add("etcd_lease_ttl_secs", &options.lease_ttl, "a gateway that is silent for this long is gone")
      .range(2, 3600)
      .unit("seconds");
}

}  // namespace troupe
