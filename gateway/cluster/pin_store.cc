#include "gateway/cluster/pin_store.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/api/prefix.h"
#include "common/net/timer.h"

namespace troupe {

using etcd::KeyRange;
using etcd::KeyValue;
using etcd::Txn;

namespace {

constexpr Duration kPinRetry = std::chrono::milliseconds(500);
constexpr size_t kFetchAtOnce = 8;  // values: an answer holds 32 MiB

int64_t unix_now_s() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(now).count();
}

}  // namespace

PinStore::PinStore(const EtcdOptions& etcd, const std::string& prefix, const Parts& parts)
    : keys_(StateKeys(prefix).pins),
      executor_(parts.executor),
      pins_(parts.pins),
      clock_(parts.clock),
      log_(parts.log),
      etcd_(parts.executor, etcd, parts.clock),
      changes_(parts.executor),
      failed_(parts.metrics.counter("troupe_gateway_pin_store_failures_total",
                                    "Reads and writes of pins in etcd that failed.")) {
  pins_.book().on_change = [this](const Hash128& id) {
    const route::Pin* pin = pins_.book().find(id);
    if (pin != nullptr && !pin->shared) return;
    sync_.changed(id, pin != nullptr);
    changes_.wake();
  };
}

PinStore::~PinStore() {
  pins_.book().on_change = nullptr;
}

void PinStore::start(TaskGroup& group) {
  group.spawn(follow());
  group.spawn(write());
}

std::string PinStore::key_of(const Hash128& id) const {
  return keys_ + prefix_id(id);
}

std::optional<Hash128> PinStore::id_of(std::string_view key) const {
  return key.starts_with(keys_) ? parse_prefix_id(key.substr(keys_.size())) : std::nullopt;
}

// Logged once until it goes well again.
void PinStore::failed(const Status& why) {
  failed_.Increment();
  if (std::exchange(fails_, true)) return;
  const std::string text(to_std(why.message()));
  log_.warn("pins_not_shared", {{"why", text}});
}

void PinStore::went_well() {
  if (std::exchange(fails_, false)) log_.info("pins_shared", {{"pins", pins_.book().size()}});
}

Task<void> PinStore::follow() {
  Timer timer(executor_);
  while (true) {
    const Status ended = co_await look_and_watch();
    if (ended.ok()) continue;
    failed(ended);
    timer.expires_after(kPinRetry);
    co_await timer.async_wait(use_task);
  }
}

// Runs until the watch ends. OK: it fell silent, as where no pin changes; it may be half open, so all is
// looked at again.
Task<Status> PinStore::look_and_watch() {
  Txn txn;
  txn.reads = {KeyRange::prefix(keys_)};
  txn.reads.front().keys_only = true;
  const auto all = co_await etcd_.txn(txn);
  if (!all.ok()) co_return all.status();
  std::vector<route::PinSync::Entry> entries;
  for (const KeyValue& kv : all->found) {
    if (const auto id = id_of(kv.key)) entries.push_back({*id, kv.mod_revision, false});
  }
  const std::vector<Hash128> here = pins_.book().shared();
  route::PinSync::Look look = sync_.look(all->revision, entries, here);
  for (const Hash128& id : look.gone) pins_.book().drop(id);
  const Status fetched = co_await fetch(std::move(look.fetch));
  if (!fetched.ok()) co_return fetched;
  changes_.wake();
  txn.reads.front().keys_only = false;
  const auto watch = co_await etcd_.watch(txn.reads, all->revision + 1);
  if (!watch.ok()) co_return watch.status();
  went_well();
  while (true) {
    const auto news = co_await (*watch)->next();
    if (absl::IsAborted(news.status())) co_return absl::OkStatus();
    if (!news.ok()) co_return news.status();
    if (news->canceled) co_return absl::UnavailableError("etcd: the watch was canceled");
    for (const etcd::WatchEvent& event : news->events) take(event.kv, event.deleted);
  }
}

Task<Status> PinStore::fetch(std::vector<Hash128> ids) {
  for (size_t begin = 0; begin < ids.size(); begin += kFetchAtOnce) {
    Txn txn;
    for (size_t i = begin; i < std::min(ids.size(), begin + kFetchAtOnce); ++i)
      txn.reads.push_back(KeyRange::key(key_of(ids[i])));
    const auto some = co_await etcd_.txn(txn);
    if (!some.ok()) co_return some.status();
    for (const KeyValue& kv : some->found) take(kv, false);
  }
  co_return absl::OkStatus();
}

void PinStore::take(const KeyValue& kv, bool deleted) {
  const auto id = id_of(kv.key);
  if (!id) return;
  const bool heeded = sync_.heard({*id, kv.mod_revision, deleted});
  if (deleted) {
    leases_.erase(*id);
    if (heeded) pins_.book().drop(*id);
    return;
  }
  auto record = parse_pin_record(kv.value);
  if (!record.ok()) {
    log_.warn("pin_malformed", {{"key", kv.key}, {"why", to_std(record.status().message())}});
    return;
  }
  leases_[*id] = {kv.lease, record->until_unix_s};
  if (!heeded) return;
  record->pin.id = *id;
  record->pin.until = clock_.now() + std::chrono::seconds(record->until_unix_s - unix_now_s());
  pins_.adopt(std::move(record->pin));
}

Task<void> PinStore::write() {
  while (true) {
    Duration rest = std::chrono::hours(24);
    while (const auto id = sync_.begin_write()) {
      const Status done = co_await write_one(*id);
      sync_.end_write(done.ok());
      if (!done.ok()) {
        failed(done);
        rest = kPinRetry;
        break;
      }
      went_well();
    }
    if (rest == kPinRetry) {
      co_await changes_.rest(kPinRetry, kPinRetry);
    } else {
      co_await changes_.rest(Duration::zero(), rest);
    }
  }
}

Task<Status> PinStore::write_one(Hash128 id) {
  const route::Pin* const pin = pins_.book().find(id);
  if (pin == nullptr) {
    const Status removed = co_await remove(id);
    co_return removed;
  }
  PinRecord record;
  record.pin = *pin;
  record.pin.claims = pins_.claims_of(*pin);
  const Duration left = pin->until - clock_.now();
  if (pin->expires)
    record.until_unix_s = unix_now_s() + std::chrono::ceil<std::chrono::seconds>(left).count();
  const Status done = co_await put(id, std::move(record));
  co_return done;
}

// Its lease is new where the pin's end is: of a pin that is made again and again only the last lease is left.
Task<Status> PinStore::put(Hash128 id, PinRecord record) {
  const std::string text = pin_record_json(record);
  if (text.size() > kPinRecordBytesMax) {
    pins_.book().keep_alone(id);
    log_.warn("pin_not_shared", {{"prefix", prefix_id(id)}, {"bytes", text.size()}});
    co_return absl::OkStatus();
  }
  const Lease before = leases_[id];
  Lease lease = before;
  const int64_t left_s = record.until_unix_s - unix_now_s();
  if (!record.pin.expires) {
    lease = {};
  } else if (before.id == 0 || std::abs(before.until_unix_s - record.until_unix_s) > 1) {
    const auto granted = co_await etcd_.grant(std::chrono::seconds(std::max<int64_t>(left_s, 1)));
    if (!granted.ok()) co_return granted.status();
    lease = {granted->id, record.until_unix_s};
  }
  const etcd::Put value{key_of(id), text, lease.id};
  const Status done = co_await etcd_.put(value);
  if (absl::IsNotFound(done)) leases_.erase(id);  // the lease has run out: the next try takes another
  if (!done.ok()) co_return done;
  leases_[id] = lease;
  if (before.id == 0 || before.id == lease.id) co_return absl::OkStatus();
  const Status ended = co_await etcd_.revoke(before.id);
  if (!ended.ok() && !absl::IsNotFound(ended)) failed(ended);  // it runs out by itself
  co_return absl::OkStatus();
}

Task<Status> PinStore::remove(Hash128 id) {
  Txn txn;
  txn.deletes = {key_of(id)};
  const auto lease = leases_.find(id);
  const int64_t held =
      lease == leases_.end() ? 0 : lease->second.id;  // (Another gateway may pin it meanwhile.)
  const auto done = co_await etcd_.txn(txn);
  if (!done.ok()) co_return done.status();
  if (held == 0) co_return absl::OkStatus();
  if (const auto now = leases_.find(id); now != leases_.end() && now->second.id == held) leases_.erase(now);
  const Status ended = co_await etcd_.revoke(held);
  if (!ended.ok() && !absl::IsNotFound(ended)) failed(ended);
  co_return absl::OkStatus();
}

}  // namespace troupe
