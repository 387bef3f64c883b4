#include "gateway/route/placement/pin_sync.h"

#include <algorithm>
#include <utility>

namespace troupe::route {

void PinSync::wait(const Hash128& id) {
  if (waits_.insert(id).second) waiting_.push_back(id);
}

void PinSync::changed(const Hash128& id, bool present) {
  if (present || !looked_ || known_.contains(id) || tried_.contains(id) || writes_ == id) return wait(id);
  if (waits_.erase(id) > 0) std::erase(waiting_, id);
}

std::optional<Hash128> PinSync::begin_write() {
  if (waiting_.empty()) return std::nullopt;
  writes_ = waiting_.front();
  waiting_.pop_front();
  waits_.erase(*writes_);
  return writes_;
}

void PinSync::end_write(bool done) {
  const std::optional<Hash128> id = std::exchange(writes_, std::nullopt);
  if (!id) return;
  tried_.insert(*id);
  if (!done) wait(*id);
}

bool PinSync::heard(const Entry& entry) {
  revision_ = std::max(revision_, entry.revision);
  tried_.erase(entry.id);
  const auto known = known_.find(entry.id);
  if (known != known_.end() && known->second >= entry.revision) return false;
  if (!entry.deleted) {
    known_[entry.id] = entry.revision;
  } else if (known != known_.end()) {
    known_.erase(known);
  }
  return !is_waiting(entry.id);
}

PinSync::Look PinSync::look(int64_t revision, std::span<const Entry> all, std::span<const Hash128> here) {
  Look look;
  if (revision < revision_) {
    known_.clear();
    for (const Hash128& id : here) wait(id);
  }
  revision_ = revision;
  looked_ = true;
  absl::flat_hash_set<Hash128> there;
  for (const Entry& entry : all) {
    there.insert(entry.id);
    const auto known = known_.find(entry.id);
    const bool is_new = known == known_.end() || known->second != entry.revision;
    if (!is_new) continue;
    if (is_waiting(entry.id)) {
      known_[entry.id] = entry.revision;
    } else {
      look.fetch.push_back(entry.id);
    }
  }
  // (What is under way may be there or not: its news will tell.)
  for (const Hash128& id : here) {
    if (!there.contains(id) && !is_waiting(id) && writes_ != id) look.gone.push_back(id);
  }
  tried_.clear();
  absl::erase_if(known_, [&there](const auto& known) { return !there.contains(known.first); });
  return look;
}

}  // namespace troupe::route
