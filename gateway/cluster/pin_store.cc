#include "gateway/cluster/pin_store.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/api/prefix.h"

namespace troupe {

using etcd::KeyRange;
using etcd::KeyValue;
using etcd::Txn;
using route::PinChange;
using route::PinSync;

namespace {

constexpr Duration kPinRetry = std::chrono::milliseconds(500);

int64_t unix_now_s() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(now).count();
}

Status another_store() {
  return absl::UnavailableError("etcd: it is another one than the one that was read");
}

// Done only where the key has still this revision (0: is not there); else it answers with what there is.
Txn txn_on(const std::string& key, int64_t revision) {
  Txn txn;
  txn.compares = {{key, Txn::Compare::Of::kModRevision, revision}};
  txn.else_reads = {KeyRange::key(key)};
  return txn;
}

// nullopt: malformed.
std::optional<PinRecord> record_of(const KeyValue& kv, const Logger& log) {
  auto record = parse_pin_record(kv.value);
  if (record.ok()) return std::move(*record);
  log.warn("pin_malformed", {{"key", kv.key}, {"why", to_std(record.status().message())}});
  return std::nullopt;
}

}  // namespace

PinStore::PinStore(const EtcdOptions& etcd, const std::string& prefix, const Parts& parts)
    : keys_(StateKeys(prefix).pins),
      pins_(parts.pins),
      clock_(parts.clock),
      log_(parts.log),
      etcd_(parts.executor, etcd, parts.clock),
      writer_(parts.writer),
      changes_(parts.executor),
      follower_(parts.executor, etcd_, keys_, *this),
      failed_(parts.metrics.counter("troupe_gateway_pin_store_failures_total",
                                    "Reads and writes of pins in etcd that failed.")) {
  pins_.registry().on_change = [this](const Hash128& id, PinChange change) {
    const route::Pin* pin = pins_.registry().find(id);
    if (pin != nullptr && !pin->shared) return;
    sync_.changed(id, change);
    changes_.wake();
  };
}

PinStore::~PinStore() {
  pins_.registry().on_change = nullptr;
}

void PinStore::start(TaskGroup& group) {
  group.spawn(follower_.run());
  group.spawn(write());
}

void PinStore::begin_reading() {
  sync_.begin_reconcile();
}

void PinStore::caught_up(int64_t revision) {
  if (revision > 0) sync_.passed(revision);
  changes_.wake();
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
  if (std::exchange(fails_, false)) log_.info("pins_shared", {{"pins", pins_.registry().size()}});
}

std::vector<std::string> PinStore::reconcile(const etcd::TxnAnswer& all) {
  std::vector<PinSync::Entry> entries;
  for (const KeyValue& kv : all.found) {
    if (const auto id = id_of(kv.key)) entries.push_back({*id, kv.mod_revision, false, false});
  }
  const std::vector<Hash128> here = pins_.registry().shared();
  const PinSync::Reconciliation differences = sync_.reconcile({all.cluster, all.revision}, entries, here);
  for (const Hash128& id : differences.gone) pins_.registry().drop(id);
  if (differences.replaced) {
    log_.warn("pins_store_replaced", {{"pins", here.size()}});
    leases_.clear();
    granted_.clear();
  }
  absl::erase_if(leases_, [this](const auto& lease) { return !sync_.known(lease.first); });
  std::vector<std::string> wanted;
  for (const Hash128& id : differences.fetch) wanted.push_back(key_of(id));
  return wanted;
}

void PinStore::adopt(const Hash128& id, PinRecord record) {
  record.pin.id = id;
  record.pin.until = clock_.now() + std::chrono::seconds(record.until_unix_s - unix_now_s());
  pins_.adopt(std::move(record.pin));
}

void PinStore::take(const KeyValue& kv, bool deleted) {
  const auto id = id_of(kv.key);
  if (!id) return;
  std::optional<PinRecord> record;
  if (!deleted) record = record_of(kv, log_);
  if (!deleted && !record) return;
  const bool written_by_self = record && record->writer == writer_;
  const PinSync::ApplyResult result = sync_.observe({*id, kv.mod_revision, deleted, written_by_self});
  if (result == PinSync::ApplyResult::kStale) return;
  if (deleted) {
    leases_.erase(*id);
    if (result == PinSync::ApplyResult::kApplied) pins_.registry().drop(*id);
    return;
  }
  leases_[*id] = {kv.lease, record->until_unix_s};
  if (result == PinSync::ApplyResult::kApplied) adopt(*id, std::move(*record));
}

// Takes what etcd answers to a write that it refuses: what it has.
Task<void> PinStore::take_refusal(Hash128 id, const etcd::TxnAnswer& answer) {
  PinSync::Entry now{id, answer.revision, true, false};
  std::optional<PinRecord> record;
  leases_.erase(id);
  if (!answer.found.empty()) {
    const KeyValue& kv = answer.found.front();
    record = record_of(kv, log_);
    now = {id, kv.mod_revision, false, record && record->writer == writer_};
    if (record) leases_[id] = {kv.lease, record->until_unix_s};
  }
  if (!sync_.refused(now)) co_return;
  if (now.deleted) pins_.registry().drop(id);
  if (record) adopt(id, std::move(*record));
  co_await give_back_grant(id);
}

Task<void> PinStore::write() {
  while (true) {
    Duration rest = std::chrono::hours(24);
    while (sync_.waits()) {
      const Status done = co_await write_next();
      if (!done.ok()) {
        rest = kPinRetry;
        break;
      }
    }
    if (rest == kPinRetry) {
      co_await changes_.rest(kPinRetry, kPinRetry);
    } else {
      co_await changes_.rest(Duration::zero(), rest);
    }
  }
}

Task<void> PinStore::flush(TimePoint by) {
  if (sync_.is_under_way()) sync_.failed();
  while (sync_.waits() && clock_.now() < by) {
    const Status done = co_await write_next();
    if (!done.ok()) co_return;
  }
}

Task<Status> PinStore::write_next() {
  const auto write = sync_.begin_write();
  if (!write) co_return absl::OkStatus();
  const Status done = co_await write_one(*write);
  if (done.ok()) {
    went_well();
  } else {
    sync_.failed();
    failed(done);
  }
  co_return done;
}

// OK: sync_ has the answer.
Task<Status> PinStore::write_one(PinSync::Write write) {
  const route::Pin* const pin = pins_.registry().find(write.id);
  if (write.change == PinChange::kRemoved) {
    const Status removed = co_await remove(write);
    co_return removed;
  }
  if (write.change == PinChange::kExpired || pin == nullptr) {
    const Status looked = co_await read(write.id);
    co_return looked;
  }
  PinRecord record;
  record.pin = *pin;
  record.pin.claims = pins_.claims_of(*pin);
  record.writer = writer_;
  const Duration left = pin->until - clock_.now();
  if (pin->expires)
    record.until_unix_s = unix_now_s() + std::chrono::ceil<std::chrono::seconds>(left).count();
  const Status done = co_await put(write, std::move(record));
  co_return done;
}

// A lease that ends when the pin does: the one it has, or that was granted for a try before, or a new one.
Task<StatusOr<PinStore::Lease>> PinStore::lease_for(Hash128 id, const PinRecord& record) {
  if (!record.pin.expires) co_return Lease{};
  const auto fits = [&record](const Lease& lease) {
    return lease.id != 0 && std::abs(lease.until_unix_s - record.until_unix_s) <= 1;
  };
  if (const auto had = leases_.find(id); had != leases_.end() && fits(had->second)) co_return had->second;
  if (const auto spare = granted_.find(id); spare != granted_.end() && fits(spare->second))
    co_return spare->second;
  const int64_t until = record.until_unix_s;
  co_await give_back_grant(id);
  const auto granted = co_await etcd_.grant(std::chrono::seconds(std::max<int64_t>(until - unix_now_s(), 1)));
  if (!granted.ok()) co_return granted.status();
  const Lease lease{granted->id, until};
  granted_[id] = lease;
  co_return lease;
}

// Writes, and sync_ has the answer. False: another gateway wrote first, and sync_ has decided who yields.
Task<StatusOr<bool>> PinStore::commit(Hash128 id, const Txn& txn) {
  const auto answer = co_await etcd_.txn(txn);
  if (!answer.ok()) co_return answer.status();
  if (!sync_.is_same({answer->cluster, answer->revision})) co_return another_store();
  if (answer->succeeded) {
    sync_.done(answer->revision);
  } else {
    co_await take_refusal(id, *answer);
  }
  co_return answer->succeeded;
}

Task<Status> PinStore::put(PinSync::Write write, PinRecord record) {
  const std::string text = pin_record_json(record);
  if (text.size() > kPinRecordBytesMax) {
    pins_.registry().keep_alone(write.id);
    log_.warn("pin_not_shared", {{"prefix", prefix_id(write.id)}, {"bytes", text.size()}});
    sync_.give_up();
    co_return absl::OkStatus();
  }
  const auto had = leases_.find(write.id);
  const int64_t before = had == leases_.end() ? 0 : had->second.id;
  const auto lease = co_await lease_for(write.id, record);
  if (!lease.ok()) co_return lease.status();
  Txn txn = txn_on(key_of(write.id), write.revision);
  txn.puts = {{key_of(write.id), text, lease->id}};
  const auto done = co_await commit(write.id, txn);
  if (absl::IsNotFound(done.status())) {  // the lease has run out: the next try takes another
    leases_.erase(write.id);
    granted_.erase(write.id);
  }
  if (!done.ok() || !*done) co_return done.status();
  leases_[write.id] = *lease;
  if (const auto spare = granted_.find(write.id); spare != granted_.end() && spare->second.id == lease->id)
    granted_.erase(spare);
  // Only the last lease is left of a pin that is made again and again.
  if (before != lease->id) co_await revoke(before);
  co_return absl::OkStatus();
}

Task<Status> PinStore::remove(PinSync::Write write) {
  co_await give_back_grant(write.id);
  const auto had = leases_.find(write.id);
  const int64_t held = had == leases_.end() ? 0 : had->second.id;
  Txn txn = txn_on(key_of(write.id), write.revision);
  txn.deletes = {key_of(write.id)};
  const auto done = co_await commit(write.id, txn);
  if (!done.ok() || !*done) co_return done.status();
  if (const auto now = leases_.find(write.id); now != leases_.end() && now->second.id == held)
    leases_.erase(now);
  co_await revoke(held);
  co_return absl::OkStatus();
}

// One that ended here: another gateway may have made it last longer.
Task<Status> PinStore::read(Hash128 id) {
  Txn txn;
  txn.reads = {KeyRange::key(key_of(id))};
  const auto answer = co_await etcd_.txn(txn);
  if (!answer.ok()) co_return answer.status();
  if (!sync_.is_same({answer->cluster, answer->revision})) co_return another_store();
  co_await take_refusal(id, *answer);
  co_return absl::OkStatus();
}

Task<void> PinStore::revoke(int64_t lease) {
  if (lease == 0) co_return;
  const Status ended = co_await etcd_.revoke(lease);
  if (!ended.ok() && !absl::IsNotFound(ended)) failed(ended);  // it runs out by itself
}

Task<void> PinStore::give_back_grant(Hash128 id) {
  const auto spare = granted_.find(id);
  if (spare == granted_.end()) co_return;
  const int64_t lease = spare->second.id;
  granted_.erase(spare);
  co_await revoke(lease);
}

}  // namespace troupe
