#include "gateway/route/leader_sync.h"

#include <algorithm>

namespace troupe::route {

using Kind = StoreCommand::Kind;

LeaderSync::LeaderSync(const Options& options, Router& router)
    : options_(options), router_(router), shared_(router.options().name.hex()) {}

StoreUpdate LeaderSync::saw_all(int64_t revision, int64_t asked, const StoreKey* leader,
                                const StoreKey* table) {
  shared_.begun_anew(revision, asked);
  saw_leader(leader, revision);
  return saw_table(table, revision);
}

void LeaderSync::saw_leader(const StoreKey* key, int64_t revision) {
  if (key != nullptr) {
    shared_.leader_is(key->has_lease ? key->value : "", key->created, revision);
  } else {
    shared_.leader_is("", 0, revision);
  }
}

StoreUpdate LeaderSync::saw_table(const StoreKey* key, int64_t revision) {
  StoreUpdate update;
  const bool heeded = key == nullptr ? shared_.table_is(0, 0, revision)
                                     : shared_.table_is(key->created, key->modified, revision);
  if (!heeded) return update;
  const TableVersion before = router_.planning().version();
  const uint64_t others = router_.planning().tables_of_other_kind();
  update.table = router_.planning().adopt_table(key->value);
  update.other_kind = router_.planning().tables_of_other_kind() != others;
  update.adopted = router_.planning().version() != before;
  behind_ = update.table.ok() && !update.other_kind && router_.planning().table_message() != key->value;
  return update;
}

StoreCommand LeaderSync::next(TimePoint now) {
  std::optional<StoreCommand> ask;
  while (!ask && stage_ != Stage::kOver) {
    switch (stage_) {
      case Stage::kLease:
        ask.emplace().kind = Kind::kKeepLease;
        break;
      case Stage::kLoads:
        ask = loads_ask();
        break;
      case Stage::kObserve:
        leads_or_may_ = shared_.holds_key() || wants_round(now);
        ask.emplace().kind = Kind::kObserve;
        ask->values = leads_or_may_;
        break;
      case Stage::kLook:
        if (looks_) ask.emplace().kind = Kind::kLook;
        break;
      case Stage::kLead:
        ask = lead_ask(now);
        break;
      case Stage::kWrite:
        ask = write_ask(now);
        break;
      case Stage::kOver:
        break;
    }
    if (!ask) stage_ = static_cast<Stage>(static_cast<int>(stage_) + 1);
  }
  asked_ = ask.value_or(StoreCommand());
  asked_at_ = shared_.revision();
  return asked_;
}

void LeaderSync::lease_kept(int64_t lease, TimePoint until) {
  if (lease_ != 0 && lease != lease_) others_return_until_ = until;
  lease_ = lease;
  shared_.lease_holds_until(until);
  stage_ = Stage::kLoads;
}

// The value is put under the lease: its key also says that this gateway is alive.
std::optional<StoreCommand> LeaderSync::loads_ask() {
  const uint32_t nodes = router_.planning().announcement().nodes;
  if (loads_lease_ == lease_ && loads_sample_ == router_.planning().own().number() && loads_nodes_ == nodes)
    return std::nullopt;
  loads_lease_ = lease_;
  loads_sample_ = router_.planning().own().number();
  loads_nodes_ = nodes;
  StoreCommand ask;
  ask.kind = Kind::kPutLoads;
  ask.lease = lease_;
  ask.value = router_.planning().loads_message();
  return ask;
}

std::optional<StoreCommand> LeaderSync::lead_ask(TimePoint now) const {
  if (!leads_or_may_) return std::nullopt;
  const TablePlanning& planning = router_.planning();
  const bool may_plan = planning.gateways().may_plan(planning.announcement(), now);
  StoreCommand ask;
  // Another gateway sees more of the fleet, and may have the key; or the key has no owner.
  if ((shared_.holds_key() && !may_plan) || shared_.may_remove_leader(now)) {
    ask.kind = Kind::kResign;
    ask.leader_created = shared_.guard().leader_created;
    return ask;
  }
  if (!may_plan || !shared_.may_campaign(now)) return std::nullopt;
  ask.kind = Kind::kCampaign;
  ask.leader_created = 0;
  ask.lease = lease_;
  ask.value = router_.options().name.hex();
  return ask;
}

// Writes the first table at once, then one every tick. A store that was begun anew may hold an older table
// than some gateway has: the leader goes by the latest there is (Gateways::may_plan), and hands it on.
std::optional<StoreCommand> LeaderSync::write_ask(TimePoint now) {
  if (!leads_or_may_ || !shared_.leads(now)) return std::nullopt;
  const SharedTable::Guard guard = shared_.guard();
  const bool first = guard.table_modified == 0 || behind_;
  if (!first && planned_at_ != TimePoint{} && now < planned_at_ + options_.plan_tick) return std::nullopt;
  planned_at_ = now;
  StoreCommand ask;
  ask.kind = Kind::kWrite;
  ask.value = router_.planning().draft_table(now, !first);
  if (ask.value.empty()) return std::nullopt;
  ask.leader_created = guard.leader_created;
  ask.table_modified = guard.table_modified;
  return ask;
}

StoreUpdate LeaderSync::answered(const StoreAnswer& answer, TimePoint now) {
  StoreUpdate update;
  switch (asked_.kind) {
    case Kind::kNothing:
    case Kind::kKeepLease:
      return update;
    case Kind::kPutLoads:
      break;
    case Kind::kObserve:
      observe(answer, update, now);
      break;
    case Kind::kLook:
      update = look(answer);
      break;
    case Kind::kCampaign:
    case Kind::kResign:
    case Kind::kWrite:
      update = settle(answer);
      break;
  }
  stage_ = static_cast<Stage>(static_cast<int>(stage_) + 1);
  // A new leader plans from the table in the store, whatever it saw before.
  if (asked_.kind == Kind::kCampaign && answer.done) {
    looks_ = true;
    stage_ = Stage::kLook;
  }
  return update;
}

void LeaderSync::failed() {
  if (asked_.kind == Kind::kPutLoads) loads_lease_ = 0;
  stage_ = Stage::kOver;
}

void LeaderSync::observe(const StoreAnswer& answer, StoreUpdate& update, TimePoint now) {
  shared_.begun_anew(answer.revision, asked_at_);
  saw_leader(answer.leader ? &*answer.leader : nullptr, answer.revision);
  const StoreKey table = answer.table.value_or(StoreKey());
  looks_ = shared_.has_stale_table(table.created, table.modified, answer.revision);
  GatewayShard there{0, static_cast<int64_t>(answer.loads.size())};
  const std::string own = router_.options().name.hex();
  there.index = std::count_if(answer.loads.begin(), answer.loads.end(),
                              [&own](const auto& loads) { return loads.first < own; });
  // A gateway that lost its lease may not be alone in it: the first to return still counts the others.
  if (there.of >= place_.of || now >= others_return_until_) place_ = there;
  router_.set_gateways(std::max(options_.gateways, place_.of));
  if (!asked_.values) return;
  for (const auto& [gateway, message] : answer.loads) {
    const auto name = Hash128::from_hex(gateway);
    Status adopted = name ? router_.planning().adopt_loads_message(*name, message, now)
                          : invalid_argument("the key ends in a gateway's name, 32 hex digits");
    if (!adopted.ok()) update.loads.emplace_back(gateway, std::move(adopted));
  }
}

StoreUpdate LeaderSync::look(const StoreAnswer& answer) {
  const auto seen = [](const std::optional<StoreKey>& key) { return key ? &*key : nullptr; };
  return saw_all(answer.revision, asked_at_, seen(answer.leader), seen(answer.table));
}

// Done: the store holds the value; not done: it holds another one.
StoreUpdate LeaderSync::settle(const StoreAnswer& answer) {
  StoreUpdate update;
  if (!answer.done) {
    update = look(answer);
    update.refused = asked_.kind == Kind::kWrite;
    return update;
  }
  shared_.begun_anew(answer.revision, asked_at_);
  StoreKey key;
  key.value = std::move(asked_.value);
  const int64_t table_created =
      shared_.guard().table_modified == 0 ? answer.revision : shared_.table_created();
  key.created = asked_.kind == Kind::kWrite ? table_created : answer.revision;
  key.modified = answer.revision;
  if (asked_.kind == Kind::kWrite) {
    update = saw_table(&key, answer.revision);
    update.written = true;
  } else {
    const bool deleted = asked_.kind == Kind::kResign;
    update.resigned = deleted && shared_.holds_key();
    update.removed_leader = deleted && !update.resigned;
    saw_leader(deleted ? nullptr : &key, answer.revision);
  }
  return update;
}

}  // namespace troupe::route
