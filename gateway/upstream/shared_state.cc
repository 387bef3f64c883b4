#include "gateway/upstream/shared_state.h"

#include <utility>

namespace troupe {

using etcd::KeyRange;
using etcd::KeyValue;

namespace {

constexpr Duration kRetry = std::chrono::milliseconds(250);

Counter& tables(Metrics& metrics, const char* what) {
  return metrics.counter("troupe_gateway_state_tables_total", "Tables in etcd, by what became of them here.",
                         {{"result", what}});
}

}  // namespace

Gauge& state_degraded_gauge(Metrics& metrics) {
  return metrics.gauge("troupe_gateway_state_degraded",
                       "1 while etcd, where gateways share their state, cannot be reached.");
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
      shared_(name_),
      pause_(parts.executor),
      degraded_gauge_(state_degraded_gauge(parts.metrics)),
      leads_gauge_(parts.metrics.gauge("troupe_gateway_state_leader",
                                       "1 while this gateway plans the table for all of them.")),
      workers_gauge_(
          parts.metrics.gauge("troupe_gateway_state_workers", "Workers registered in etcd, as known here.")),
      gateways_gauge_(parts.metrics.gauge("troupe_gateway_state_gateways",
                                          "Gateways that share this state, as known here.")),
      written_(tables(parts.metrics, "written")),
      refused_(tables(parts.metrics, "refused")),
      adopted_(tables(parts.metrics, "adopted")),
      failed_(parts.metrics.counter("troupe_gateway_state_failures_total",
                                    "Rounds with etcd that could not be ended.")) {
  loads_.key = keys_.loads + name_;
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

// Both tasks' view put together, when it may have changed.
void SharedState::tell_state() {
  degraded_gauge_.Set(degraded() ? 1 : 0);
  workers_gauge_.Set(static_cast<double>(membership_.size()));
  const bool leads = shared_.leads(clock_.now());
  router_.set_plans(leads);
  leads_gauge_.Set(leads ? 1 : 0);
  if (std::exchange(led_, leads) != leads)
    log_.info(leads ? "state_leads" : "state_leads_no_more", {{"epoch", router_.table_version().epoch}});
  if (!keeps_ && why_.empty()) return;  // neither has come round once
  if (std::exchange(told_, degraded()) == degraded()) return;
  if (degraded()) {
    log_.warn("state_degraded", {{"why", why_}});
  } else {
    log_.info("state_shared", {{"workers", membership_.size()}, {"leader", shared_.leader()}});
  }
}

Task<void> SharedState::follow() {
  Timer timer(executor_);
  while (true) {
    const Status ended = co_await look_and_watch();
    watches_ = false;
    why_ = ended.ToString();
    failed_.Increment();
    timer.expires_after(kRetry);
    co_await timer.async_wait(use_task);
  }
}

// Until the watch ends, which it always does with an error.
Task<Status> SharedState::look_and_watch() {
  etcd::Txn txn;
  txn.reads = {KeyRange::key(keys_.leader), KeyRange::key(keys_.table), KeyRange::prefix(keys_.workers)};
  const auto all = co_await etcd_.txn(txn);
  if (!all.ok()) tell_state();
  if (!all.ok()) co_return all.status();
  take(*all);
  const auto watch = co_await etcd_.watch(txn.reads, all->revision + 1);
  if (!watch.ok()) tell_state();
  if (!watch.ok()) co_return watch.status();
  watches_ = true;
  tell_state();
  while (true) {
    const auto news = co_await (*watch)->next();
    if (!news.ok()) co_return news.status();
    if (news->canceled) co_return absl::UnavailableError("etcd: the watch was canceled");
    take(*news);
    tell_state();
  }
}

// All there is, as of one revision.
void SharedState::take(const etcd::TxnAnswer& all) {
  shared_.look_again(all.revision);
  const KeyValue* leader = nullptr;
  const KeyValue* table = nullptr;
  std::vector<std::pair<std::string, std::string>> workers;
  for (const KeyValue& kv : all.found) {
    if (kv.key == keys_.leader) leader = &kv;
    if (kv.key == keys_.table) table = &kv;
    if (kv.key.starts_with(keys_.workers)) workers.emplace_back(kv.key, kv.value);
  }
  membership_.all(workers);
  leader_is(leader, all.revision);
  table_is(table, all.revision);
}

void SharedState::take(const etcd::WatchMessage& news) {
  for (const etcd::WatchEvent& event : news.events) {
    const KeyValue& kv = event.kv;
    const KeyValue* present = event.deleted ? nullptr : &kv;
    if (kv.key == keys_.leader) {
      leader_is(present, kv.mod_revision);
    } else if (kv.key == keys_.table) {
      table_is(present, kv.mod_revision);
    } else if (event.deleted) {
      membership_.gone(kv.key);
    } else {
      membership_.registered(kv.key, kv.value);
    }
  }
}

void SharedState::leader_is(const KeyValue* key, int64_t revision) {
  if (key != nullptr) {
    shared_.leader_is(key->value, key->create_revision, revision);
  } else {
    shared_.leader_is("", 0, revision);
  }
  if (shared_.may_campaign(clock_.now())) pause_.cancel();  // now, not in a second or two
}

void SharedState::table_is(const KeyValue* key, int64_t revision) {
  if (!shared_.table_is(key == nullptr ? 0 : key->mod_revision, revision) || key == nullptr) return;
  if (const Status adopted = router_.adopt_table(key->value); adopted.ok()) {
    adopted_.Increment();
  } else {
    log_.warn("state_table_malformed", {{"why", to_std(adopted.message())}});
  }
}

}  // namespace troupe
