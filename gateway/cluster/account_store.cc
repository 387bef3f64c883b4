#include "gateway/cluster/account_store.h"

#include <utility>

namespace troupe {

using etcd::KeyRange;
using etcd::Txn;

namespace {

// Gateways that take of one account at the same time: each try but one is in vain.
constexpr int kTriesMax = 16;
constexpr std::chrono::seconds kLease = std::chrono::hours(48);
constexpr Duration kLeaseEvery = std::chrono::hours(12);
// A request waits for it.
constexpr std::chrono::milliseconds kTimeout{250};

EtcdOptions quick(EtcdOptions options) {
  options.timeout = std::min(options.timeout, kTimeout);
  return options;
}

}  // namespace

AccountStore::AccountStore(EtcdOptions etcd, const std::string& prefix, const Parts& parts)
    : keys_(StateKeys(prefix).accounts),
      etcd_(parts.executor, quick(std::move(etcd)), parts.clock),
      clock_(parts.clock),
      failed_(
          parts.metrics.counter("troupe_gateway_account_store_failures_total",
                                "Times that etcd did not say what a client may use: each gateway then lets "
                                "its part through.")) {}

Task<Status> AccountStore::keep_lease() {
  const TimePoint now = clock_.now();
  if (lease_ != 0 && now < lease_until_) co_return absl::OkStatus();
  const auto lease = co_await etcd_.grant(kLease);
  if (!lease.ok()) co_return lease.status();
  lease_ = lease->id;
  lease_until_ = now + kLeaseEvery;
  co_return absl::OkStatus();
}

Task<StatusOr<AccountStore::Step>> AccountStore::read(std::string key) {
  Txn txn;
  txn.reads = {KeyRange::key(key)};
  const auto answer = co_await etcd_.txn(txn);
  if (!answer.ok()) co_return answer.status();
  Step step;
  if (answer->found.empty()) co_return step;
  step.revision = answer->found.front().mod_revision;
  const auto record = route::AccountRecord::parse(answer->found.front().value);
  if (record) step.record = *record;  // (a record that cannot be parsed is replaced)
  co_return step;
}

Task<StatusOr<bool>> AccountStore::exchange(std::string key, Step step) {
  Txn txn;
  txn.compares = {{key, Txn::Compare::Of::kModRevision, step.revision}};
  txn.puts = {{key, step.record.text(), lease_}};
  const auto done = co_await etcd_.txn(txn);
  if (absl::IsNotFound(done.status())) lease_ = 0;
  if (!done.ok()) co_return done.status();
  co_return done->succeeded;
}

Task<StatusOr<route::AccountGrant>> AccountStore::take(Hash128 id, route::AccountWant want,
                                                       route::AccountLimits limits, int64_t gateways) {
  const TimePoint until = clock_.now() + kTimeout;
  Status status = co_await keep_lease();
  const std::string key = keys_ + id.hex();
  for (int i = 0; status.ok() && i < kTriesMax && (i == 0 || clock_.now() < until); ++i) {
    auto step = co_await read(key);
    if (!step.ok()) {
      status = step.status();
      break;
    }
    const route::AccountRecord before = step->record;
    const route::AccountGrant grant = step->record.take(want, limits, gateways);
    if (step->record == before) co_return grant;
    const auto done = co_await exchange(key, *step);
    if (done.ok() && *done) co_return grant;
    status = done.status();
  }
  failed_.Increment();
  co_return status.ok() ? absl::AbortedError("etcd: others take of this account all the time") : status;
}

Task<void> AccountStore::give_back(Hash128 id, route::AccountGrant back) {
  const std::string key = keys_ + id.hex();
  for (int i = 0; i < kTriesMax && lease_ != 0; ++i) {
    auto step = co_await read(key);
    if (!step.ok()) co_return;
    const route::AccountRecord before = step->record;
    step->record.give_back(back);
    if (step->record == before) co_return;
    const auto done = co_await exchange(key, *step);
    if (!done.ok() || *done) co_return;
  }
}

}  // namespace troupe
