// A gateway's own keys in etcd: its loads and address, and where it leads the leader's key and the table.

#include <algorithm>

#include "gateway/cluster/shared_state.h"

namespace troupe {

using etcd::KeyRange;
using etcd::KeyValue;
using etcd::Txn;
using route::StoreAnswer;
using route::StoreCommand;

Task<void> SharedState::keep() {
  const Duration every = std::min<Duration>(Duration(options_.lease_ttl) / 3, options_.plan_tick);
  constexpr Duration kLeast = std::chrono::milliseconds(50);
  while (true) {
    const Status kept = co_await keep_once();
    keeps_ = kept.ok();
    if (!kept.ok()) {
      why_ = kept.ToString();
      failed_.Increment();
    }
    membership_.tend();
    report_state();
    co_await pause_.rest(kLeast, every);
  }
}

Task<Status> SharedState::keep_once() {
  round_.begin();
  while (true) {
    const StoreCommand ask = round_.next(clock_.now());
    if (ask.kind == StoreCommand::Kind::kNothing) co_return absl::OkStatus();
    const Status done = co_await do_ask(ask);
    if (!done.ok()) round_.failed();
    if (!done.ok()) co_return done;
    report_state();
  }
}

Task<Status> SharedState::do_ask(const StoreCommand& ask) {
  StoreAnswer answer;
  if (ask.kind == StoreCommand::Kind::kKeepLease) {
    const Status kept = co_await lease_.keep();
    if (kept.ok()) round_.lease_kept(lease_.id(), lease_.holds_until());
    co_return kept;
  }
  if (ask.kind == StoreCommand::Kind::kPutLoads) {
    const Status put = co_await put_loads(ask);
    if (!put.ok()) co_return put;
  } else {
    const Txn txn = txn_of(ask);
    const auto said = co_await etcd_.txn(txn);
    if (!said.ok()) co_return said.status();
    answer = answer_of(*said);
  }
  apply(round_.answered(answer, clock_.now()));
  gateways_gauge_.Set(static_cast<double>(round_.place().of));
  co_return absl::OkStatus();
}

// The address goes with the loads: of a gateway that begins under this lease, others find both or neither.
Task<Status> SharedState::put_loads(const StoreCommand& ask) {
  Txn txn;
  txn.puts = {{keys_.loads + name_, ask.value, ask.lease}};
  if (!options_.advertise_url.empty())
    txn.puts.push_back({keys_.gateways + name_, gateway_record_json({options_.advertise_url}), ask.lease});
  const auto done = co_await etcd_.txn(txn);
  co_return done.status();
}

Txn SharedState::txn_of(const StoreCommand& ask) const {
  Txn txn;
  if (ask.leader_created)
    txn.compares.push_back({keys_.leader, Txn::Compare::Of::kCreateRevision, *ask.leader_created});
  if (ask.table_modified)
    txn.compares.push_back({keys_.table, Txn::Compare::Of::kModRevision, *ask.table_modified});
  if (!txn.compares.empty()) txn.else_reads = {KeyRange::key(keys_.leader), KeyRange::key(keys_.table)};
  switch (ask.kind) {
    case StoreCommand::Kind::kNothing:
    case StoreCommand::Kind::kKeepLease:
    case StoreCommand::Kind::kPutLoads:
      break;
    case StoreCommand::Kind::kObserve:
      txn.reads = {KeyRange::prefix(keys_.loads), KeyRange::key(keys_.leader), KeyRange::key(keys_.table)};
      txn.reads.front().keys_only = !ask.values;
      txn.reads.back().keys_only = true;
      break;
    case StoreCommand::Kind::kLook:
      txn.reads = {KeyRange::key(keys_.leader), KeyRange::key(keys_.table)};
      break;
    case StoreCommand::Kind::kCampaign:
      txn.puts = {{keys_.leader, ask.value, ask.lease}};
      break;
    case StoreCommand::Kind::kResign:
      txn.deletes = {keys_.leader};
      break;
    case StoreCommand::Kind::kWrite:
      txn.puts = {{keys_.table, ask.value, 0}};
      break;
  }
  return txn;
}

StoreAnswer SharedState::answer_of(const etcd::TxnAnswer& said) const {
  StoreAnswer answer;
  answer.revision = said.revision;
  answer.done = said.succeeded;
  for (const KeyValue& kv : said.found) {
    if (kv.key == keys_.leader) answer.leader = store_key(kv);
    if (kv.key == keys_.table) answer.table = store_key(kv);
    if (kv.key.starts_with(keys_.loads))
      answer.loads.emplace_back(kv.key.substr(keys_.loads.size()), kv.value);
  }
  return answer;
}

}  // namespace troupe
