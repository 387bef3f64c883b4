#include "gateway/route/placement/pin_sync.h"

#include <algorithm>
#include <utility>

namespace troupe::route {

const PinSync::Waiting* PinSync::find_waiting(const Hash128& id) const {
  const auto found = waits_.find(id);
  return found == waits_.end() ? nullptr : &found->second;
}

int64_t PinSync::revision_of(const Hash128& id) const {
  const auto found = known_.find(id);
  return found == known_.end() ? 0 : found->second;
}

// Has the change to make room for what another gateway did?
bool PinSync::yields(const Waiting& waiting, const Entry& to) {
  switch (waiting.change) {
    case PinChange::kMade:
      return false;
    case PinChange::kRemoved:
      return waiting.late && waiting.base != 0 && !to.written_by_self && !to.deleted;
    case PinChange::kPlaced:
      return !to.written_by_self;
    case PinChange::kExpired:
      return true;
  }
  return true;
}

void PinSync::note(const Entry& entry) {
  revision_ = std::max(revision_, entry.revision);
  tried_.erase(entry.id);
  if (entry.deleted) {
    known_.erase(entry.id);
    gone_[entry.id] = entry.revision;
  } else {
    known_[entry.id] = entry.revision;
    gone_.erase(entry.id);
  }
}

void PinSync::wait(const Hash128& id, PinChange change) {
  const auto [at, is_new] = waits_.try_emplace(id);
  if (is_new) waiting_.push_back(id);
  at->second = {change, revision_of(id), false};
}

void PinSync::forget(const Hash128& id) {
  if (waits_.erase(id) > 0) std::erase(waiting_, id);
}

void PinSync::changed(const Hash128& id, PinChange change) {
  const Waiting* const waiting = find_waiting(id);
  const bool pending = waiting != nullptr || is_under_way(id);
  switch (change) {
    case PinChange::kMade:
      return wait(id, change);
    case PinChange::kRemoved:
      if (!reconciled_ || known_.contains(id) || tried_.contains(id) || is_under_way(id))
        return wait(id, change);
      return forget(id);
    case PinChange::kPlaced:
      if (waiting != nullptr && waiting->change == PinChange::kMade) return;
      return wait(id, change);
    case PinChange::kExpired:
      if (pending) wait(id, change);
  }
}

std::optional<PinSync::Write> PinSync::begin_write() {
  if (waiting_.empty()) return std::nullopt;
  const Hash128 id = waiting_.front();
  under_way_ = UnderWay{id, waits_.at(id), revision_, false, std::nullopt};
  waiting_.pop_front();
  waits_.erase(id);
  return Write{id, under_way_->what.change, revision_of(id)};
}

bool PinSync::is_same(const Store& store) const {
  if (under_way_ && (under_way_->void_answer || store.revision < under_way_->from)) return false;
  return cluster_.empty() || store.cluster.empty() || store.cluster == cluster_;
}

// Unless it changed meanwhile; what a client made stays that.
void PinSync::wait_again(const UnderWay& write) {
  const auto [at, is_new] = waits_.try_emplace(write.id, write.what);
  if (is_new) return waiting_.push_back(write.id);
  if (at->second.change == PinChange::kPlaced && write.what.change == PinChange::kMade)
    at->second.change = PinChange::kMade;
}

void PinSync::done(int64_t revision) {
  const std::optional<UnderWay> write = std::exchange(under_way_, std::nullopt);
  if (!write) return;
  if (write->void_answer) return wait_again(*write);
  note({write->id, revision, write->what.change == PinChange::kRemoved, true});
  // Another wrote after it.
  if (write->news && write->news->revision > revision && find_waiting(write->id) == nullptr)
    wait(write->id, PinChange::kExpired);
}

void PinSync::failed() {
  std::optional<UnderWay> write = std::exchange(under_way_, std::nullopt);
  if (!write) return;
  const bool was_late = std::exchange(write->what.late, true);
  tried_.insert(write->id);
  if (write->news && !write->void_answer) {
    note(*write->news);
    // (News that came while the store answered are no reason for a removal to make room.)
    Waiting before = write->what;
    before.late = was_late;
    if (yields(before, *write->news)) write->what.change = PinChange::kExpired;
  }
  wait_again(*write);
}

void PinSync::give_up() {
  under_way_.reset();
}

bool PinSync::refused(const Entry& now) {
  const std::optional<UnderWay> write = std::exchange(under_way_, std::nullopt);
  if (!write) return false;
  if (write->void_answer) {
    wait_again(*write);
    return false;
  }
  note(now);
  if (write->news && write->news->revision > now.revision) {  // it was read before them
    note(*write->news);
    UnderWay again = *write;
    if (yields(again.what, *write->news)) again.what.change = PinChange::kExpired;
    wait_again(again);
    return false;
  }
  if (find_waiting(now.id) != nullptr) {
    wait_again(*write);
    if (!yields(waits_.at(now.id), now)) return false;
    forget(now.id);
    return true;
  }
  if (write->what.change == PinChange::kRemoved && now.deleted) return false;
  if (yields(write->what, now)) return true;
  wait_again(*write);
  return false;
}

PinSync::ApplyResult PinSync::observe(const Entry& entry) {
  const auto gone = gone_.find(entry.id);
  if (revision_of(entry.id) >= entry.revision || (gone != gone_.end() && gone->second >= entry.revision))
    return ApplyResult::kStale;
  if (is_under_way(entry.id)) {
    if (under_way_->news && under_way_->news->revision >= entry.revision) return ApplyResult::kStale;
    revision_ = std::max(revision_, entry.revision);
    under_way_->news = entry;
    return ApplyResult::kRecorded;
  }
  note(entry);
  const Waiting* const waiting = find_waiting(entry.id);
  if (waiting == nullptr) return ApplyResult::kApplied;
  if (yields(*waiting, entry)) {
    forget(entry.id);
    return ApplyResult::kApplied;
  }
  if (entry.deleted && waiting->change == PinChange::kRemoved) forget(entry.id);
  return ApplyResult::kRecorded;
}

void PinSync::passed(int64_t revision) {
  revision_ = std::max(revision_, revision);
  absl::erase_if(gone_, [revision](const auto& gone) { return gone.second <= revision; });
}

void PinSync::start_anew(const Store& store, std::span<const Hash128> here) {
  known_.clear();
  gone_.clear();
  tried_.clear();
  revision_ = store.revision;
  if (under_way_) {
    under_way_->void_answer = true;
    under_way_->what.base = 0;
  }
  for (auto& [id, waiting] : waits_) waiting.base = 0;
  for (const Hash128& id : here) {
    if (find_waiting(id) == nullptr) wait(id, PinChange::kPlaced);
  }
}

// A key of the store, in a complete look.
void PinSync::compare_with(const Entry& entry, Reconciliation& differences) {
  const auto gone = gone_.find(entry.id);
  if (revision_of(entry.id) >= entry.revision || (gone != gone_.end() && gone->second >= entry.revision))
    return;
  const Waiting* const waiting = find_waiting(entry.id);
  // (Its value says whose it is, for those that may yield.)
  if (waiting == nullptr || yields(*waiting, entry)) return differences.fetch.push_back(entry.id);
  if (!is_under_way(entry.id)) note(entry);
}

PinSync::Reconciliation PinSync::reconcile(const Store& store, std::span<const Entry> all,
                                           std::span<const Hash128> here) {
  Reconciliation differences;
  const bool other = !cluster_.empty() && !store.cluster.empty() && store.cluster != cluster_;
  differences.replaced = other || store.revision < asked_at_;
  if (differences.replaced) start_anew(store, here);
  if (!store.cluster.empty()) cluster_ = store.cluster;
  revision_ = std::max(revision_, store.revision);
  reconciled_ = true;
  absl::flat_hash_set<Hash128> there;
  for (const Entry& entry : all) {
    there.insert(entry.id);
    compare_with(entry, differences);
  }
  // (What is under way may be there or not: its answer says which.)
  for (const Hash128& id : here) {
    if (there.contains(id) || is_under_way(id) || revision_of(id) > store.revision) continue;
    const Waiting* const waiting = find_waiting(id);
    const bool yields_to_none = waiting != nullptr && waiting->change == PinChange::kPlaced && known(id);
    if (waiting != nullptr && !yields_to_none) continue;
    forget(id);
    differences.gone.push_back(id);
  }
  tried_.clear();
  absl::erase_if(known_, [&](const auto& known) {
    return known.second <= store.revision && !there.contains(known.first) && !is_under_way(known.first);
  });
  absl::erase_if(gone_, [&](const auto& gone) { return gone.second <= store.revision; });
  return differences;
}

}  // namespace troupe::route
