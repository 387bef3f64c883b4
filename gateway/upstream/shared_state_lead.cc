// A gateway's own keys in etcd: its loads, the leader's where it leads, and then the table.

#include <algorithm>
#include <boost/asio/redirect_error.hpp>

#include "gateway/upstream/shared_state.h"

namespace troupe {

using etcd::KeyRange;
using etcd::KeyValue;
using etcd::Txn;

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
    tell_state();
    // Never in a hurry, whoever cuts it short.
    pause_.expires_after(kLeast);
    co_await pause_.async_wait(use_task);
    pause_.expires_after(every);
    boost::system::error_code cut_short;
    co_await pause_.async_wait(asio::redirect_error(use_task, cut_short));
  }
}

Task<Status> SharedState::keep_once() {
  const Status kept = co_await lease_.keep();
  if (!kept.ok()) co_return kept;
  shared_.lease_holds_until(lease_.holds_until());
  const Status put = co_await put_loads();
  if (!put.ok()) co_return put;
  const bool plans = shared_.holds_key() || shared_.may_campaign(clock_.now());
  const Status heard = co_await hear_gateways(plans);
  if (!heard.ok() || !plans) co_return heard;
  const bool may_plan = router_.may_plan(clock_.now());
  Status done;
  if (shared_.holds_key() && !may_plan) {
    done = co_await resign();
  } else if (may_plan && shared_.may_campaign(clock_.now())) {
    done = co_await campaign();
  }
  if (done.ok() && shared_.leads(clock_.now())) done = co_await plan();
  co_return done;
}

// Under the lease: so its key also says that this gateway is there.
Task<Status> SharedState::put_loads() {
  const uint32_t nodes = router_.news().nodes;
  if (loads_.lease == lease_.id() && samples_put_ == router_.samples() && nodes_put_ == nodes)
    co_return absl::OkStatus();
  samples_put_ = router_.samples();
  nodes_put_ = nodes;
  loads_.value = router_.loads_message();
  loads_.lease = lease_.id();
  const Status put = co_await etcd_.put(loads_);
  if (!put.ok()) loads_.lease = 0;
  co_return put;
}

Task<Status> SharedState::hear_gateways(bool with_loads) {
  Txn txn;
  txn.reads = {KeyRange::prefix(keys_.loads)};
  txn.reads.front().keys_only = !with_loads;
  const auto answer = co_await etcd_.txn(txn);
  if (!answer.ok()) co_return answer.status();
  const auto there = static_cast<int64_t>(answer->found.size());
  gateways_gauge_.Set(static_cast<double>(there));
  router_.set_gateways(std::max(options_.gateways, there));
  if (with_loads) {
    for (const KeyValue& loads : answer->found) hear(loads);
  }
  co_return absl::OkStatus();
}

void SharedState::hear(const KeyValue& loads) {
  const auto name = Hash128::from_hex(std::string_view(loads.key).substr(keys_.loads.size()));
  const Status heard = name ? router_.adopt_loads_message(*name, loads.value, clock_.now())
                            : invalid_argument("the key ends in a gateway's name, 32 hex digits");
  if (!heard.ok()) log_.warn("state_loads_malformed", {{"key", loads.key}, {"why", to_std(heard.message())}});
}

Task<Status> SharedState::campaign() {
  Txn txn;
  txn.compares = {{keys_.leader, Txn::Compare::Of::kCreateRevision, 0}};
  txn.puts = {{keys_.leader, name_, lease_.id()}};
  txn.else_reads = {KeyRange::key(keys_.leader)};
  const auto answer = co_await etcd_.txn(txn);
  if (!answer.ok()) co_return answer.status();
  if (answer->succeeded) {
    shared_.leader_is(name_, answer->revision, answer->revision);
  } else {
    leader_is(answer->found.empty() ? nullptr : &answer->found.front(), answer->revision);
  }
  tell_state();
  co_return absl::OkStatus();
}

// Somebody sees more of the fleet: the key is free for them.
Task<Status> SharedState::resign() {
  Txn txn;
  txn.compares = {{keys_.leader, Txn::Compare::Of::kCreateRevision, shared_.guard().leader_created}};
  txn.deletes = {keys_.leader};
  txn.else_reads = {KeyRange::key(keys_.leader)};
  const auto answer = co_await etcd_.txn(txn);
  if (!answer.ok()) co_return answer.status();
  log_.warn("state_resigns", {{"nodes", router_.news().nodes}});
  leader_is(answer->found.empty() ? nullptr : &answer->found.front(), answer->revision);
  co_return absl::OkStatus();
}

// The first table at once; then one every tick.
Task<Status> SharedState::plan() {
  const TimePoint now = clock_.now();
  const route::SharedTable::Guard guard = shared_.guard();
  const bool first = guard.table_modified == 0;
  if (!first && planned_at_ != TimePoint{} && now < planned_at_ + options_.plan_tick)
    co_return absl::OkStatus();
  planned_at_ = now;
  Txn txn;
  txn.puts = {{keys_.table, router_.draft_table(now, !first), 0}};
  if (txn.puts.front().value.empty()) co_return absl::OkStatus();
  txn.compares = {{keys_.leader, Txn::Compare::Of::kCreateRevision, guard.leader_created},
                  {keys_.table, Txn::Compare::Of::kModRevision, guard.table_modified}};
  txn.else_reads = {KeyRange::key(keys_.leader), KeyRange::key(keys_.table)};
  const auto answer = co_await etcd_.txn(txn);
  if (!answer.ok()) co_return answer.status();
  if (answer->succeeded) {
    written_.Increment();
    KeyValue table;
    table.value = std::move(txn.puts.front().value);
    table.mod_revision = answer->revision;
    table_is(&table, answer->revision);
  } else {
    refused_.Increment();
    take_leader_and_table(*answer);
  }
  co_return absl::OkStatus();
}

void SharedState::take_leader_and_table(const etcd::TxnAnswer& answer) {
  const KeyValue* leader = nullptr;
  const KeyValue* table = nullptr;
  for (const KeyValue& kv : answer.found) (kv.key == keys_.leader ? leader : table) = &kv;
  leader_is(leader, answer.revision);
  table_is(table, answer.revision);
}

}  // namespace troupe
