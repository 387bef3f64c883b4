#include "tests/gateway/faults/store.h"

#include <utility>

namespace troupe::route::faults {

int64_t Store::grant(Duration ttl, TimePoint now) {
  leases_[++lease_count_] = {ttl, now + ttl};
  return lease_count_;
}

Duration Store::keep_alive(int64_t lease, TimePoint now) {
  const auto found = leases_.find(lease);
  if (found == leases_.end()) return Duration::zero();
  found->second.until = now + found->second.ttl;
  return found->second.ttl;
}

void Store::revoke(int64_t lease) {
  if (leases_.erase(lease) > 0) drop(lease);
}

void Store::expire(TimePoint now) {
  std::vector<int64_t> ended;
  for (const auto& [id, lease] : leases_) {
    if (now >= lease.until) ended.push_back(id);
  }
  for (const int64_t id : ended) revoke(id);
}

void Store::drop(int64_t lease) {
  const bool loads =
      std::erase_if(loads_, [&](const auto& entry) { return entry.second.lease == lease; }) > 0;
  if (leader_ && leader_lease_ == lease) {
    set(leader_, std::nullopt);
  } else if (loads) {
    revision_ += 1;
  }
}

void Store::set(std::optional<StoreKey>& key, std::optional<std::string> value) {
  revision_ += 1;
  if (value) {
    const int64_t created = key ? key->created : revision_;
    key = StoreKey{*std::move(value), created, revision_};
  } else {
    key.reset();
  }
  changes_.push_back({revision_, &key == &leader_, key});
  const Change change = changes_.back();
  if (on_change) on_change(change);
}

std::optional<StoreAnswer> Store::ask(const StoreCommand& ask, const std::string& asker) {
  StoreAnswer answer;
  answer.done = true;
  const bool same = (!ask.leader_created || *ask.leader_created == (leader_ ? leader_->created : 0)) &&
                    (!ask.table_modified || *ask.table_modified == (table_ ? table_->modified : 0));
  if (!same && heeds_compares) {
    answer = look();
    answer.done = false;
    return answer;
  }
  if (ask.lease != 0 && !leases_.contains(ask.lease)) return std::nullopt;
  switch (ask.kind) {
    case StoreCommand::Kind::kNothing:
    case StoreCommand::Kind::kKeepLease:
      break;
    case StoreCommand::Kind::kPutLoads:
      revision_ += 1;
      loads_[asker] = {ask.value, ask.lease};
      break;
    case StoreCommand::Kind::kLook:
      return look();
    case StoreCommand::Kind::kObserve:
      answer = look();
      if (answer.table) answer.table->value.clear();
      for (const auto& [name, loads] : loads_) answer.loads.emplace_back(name, ask.values ? loads.value : "");
      break;
    case StoreCommand::Kind::kCampaign:
      leader_lease_ = ask.lease;
      set(leader_, ask.value);
      break;
    case StoreCommand::Kind::kResign:
      set(leader_, std::nullopt);
      break;
    case StoreCommand::Kind::kWrite:
      on_write(asker, ask.value);
      set(table_, ask.value);
      break;
  }
  answer.revision = revision_;
  return answer;
}

StoreAnswer Store::look() const {
  StoreAnswer answer;
  answer.revision = revision_;
  answer.done = true;
  answer.leader = leader_;
  answer.table = table_;
  return answer;
}

void Store::begin_anew(int64_t revision) {
  lives_ += 1;
  revision_ = revision;
  leases_.clear();
  loads_.clear();
  leader_.reset();
  table_.reset();
  changes_.clear();
  kept_from_ = revision;
}

std::optional<std::vector<Store::Change>> Store::changes_from(int64_t revision) const {
  if (revision < kept_from_) return std::nullopt;
  std::vector<Change> changes;
  for (const Change& change : changes_) {
    if (change.revision >= revision) changes.push_back(change);
  }
  return changes;
}

}  // namespace troupe::route::faults
