#include "worker/input/prefix_registry.h"

#include <algorithm>
#include <string>

namespace troupe {

int64_t PrefixRegistry::whole_blocks(int64_t tokens) const {
  return (tokens + options_.block_size - 1) / options_.block_size * options_.block_size;
}

int64_t PrefixRegistry::pinned_tokens() const {
  int64_t sum = 0;
  for (const auto& [hash, entry] : entries_) {
    if (entry.is_pinned() || entry.making_pins > 0) sum += whole_blocks(entry.ask.tokens);
  }
  return sum;
}

Status PrefixRegistry::check_budget(const Ask& ask) const {
  const auto known = entries_.find(ask.hash);
  const bool counted =
      known != entries_.end() && (known->second.is_pinned() || known->second.making_pins > 0);
  const int64_t needed = whole_blocks(ask.tokens), used = pinned_tokens();
  if (!ask.pin || counted || used + needed <= options_.pinned_tokens_max) return absl::OkStatus();
  return absl::FailedPreconditionError(
      to_absl("pinned prefixes may take " + std::to_string(options_.pinned_tokens_max) +
              " tokens of KV and take " + std::to_string(used) + "; this one needs " +
              std::to_string(needed) + " more. DELETE one, or ask without 'pin'"));
}

Status PrefixRegistry::make_room() {
  if (entries_.size() < options_.prefixes_max) return absl::OkStatus();
  auto oldest = entries_.end();
  for (auto it = entries_.begin(); it != entries_.end(); ++it) {
    const Entry& entry = it->second;
    if (entry.is_pinned() || entry.making > 0) continue;
    if (oldest == entries_.end() || entry.made_at < oldest->second.made_at) oldest = it;
  }
  if (oldest == entries_.end()) {
    return absl::FailedPreconditionError(to_absl("all " + std::to_string(entries_.size()) +
                                                 " prefixes that a worker keeps are pinned; DELETE one"));
  }
  entries_.erase(oldest);
  return absl::OkStatus();
}

Status PrefixRegistry::begin(const Ask& ask) {
  if (making_count_ >= options_.making_max) {
    return absl::ResourceExhaustedError(
        to_absl(std::to_string(making_count_) + " prefixes are being computed already; try again later"));
  }
  TROUPE_RETURN_IF_ERROR(check_budget(ask));
  if (!entries_.contains(ask.hash)) TROUPE_RETURN_IF_ERROR(make_room());
  Entry& entry = entries_[ask.hash];
  if (!entry.made) entry.ask = ask;
  entry.making += 1;
  entry.making_pins += ask.pin;
  making_count_ += 1;
  return absl::OkStatus();
}

bool PrefixRegistry::finish(const Ask& ask, int64_t cached_tokens, TimePoint now) {
  Entry& entry = entries_.at(ask.hash);
  making_count_ -= 1;
  entry.making -= 1;
  entry.making_pins -= ask.pin;
  const bool was_pinned = entry.is_pinned();
  entry.ask = ask;
  entry.cached_tokens = cached_tokens;
  entry.made = true;
  entry.made_at = now;
  entry.expires.reset();
  if (ask.ttl) entry.expires = now + *ask.ttl;
  return was_pinned && !ask.pin && entry.making_pins == 0;
}

// The engine may have pinned the prefix already, if the client disconnected late.
bool PrefixRegistry::abort(const Ask& ask) {
  Entry& entry = entries_.at(ask.hash);
  making_count_ -= 1;
  entry.making -= 1;
  entry.making_pins -= ask.pin;
  const bool unpins = ask.pin && !entry.is_pinned() && entry.making_pins == 0;
  drop_if_empty(ask.hash);
  return unpins;
}

void PrefixRegistry::drop_if_empty(Hash128 hash) {
  const Entry& entry = entries_.at(hash);
  if (!entry.made && entry.making == 0) entries_.erase(hash);
}

const PrefixRegistry::Entry* PrefixRegistry::find(Hash128 hash) const {
  const auto found = entries_.find(hash);
  return found == entries_.end() || !found->second.made ? nullptr : &found->second;
}

std::vector<const PrefixRegistry::Entry*> PrefixRegistry::all() const {
  std::vector<const Entry*> all;
  for (const auto& [hash, entry] : entries_) {
    if (entry.made) all.push_back(&entry);
  }
  std::sort(all.begin(), all.end(), [](const Entry* a, const Entry* b) {
    return a->made_at != b->made_at ? a->made_at < b->made_at : a->ask.hash < b->ask.hash;
  });
  return all;
}

PrefixRegistry::Erased PrefixRegistry::erase(Hash128 hash) {
  if (find(hash) == nullptr) return Erased::kUnknown;
  Entry& entry = entries_.at(hash);
  const bool unpins = entry.is_pinned() && entry.making_pins == 0;
  entry.made = false;
  drop_if_empty(hash);
  return unpins ? Erased::kUnpin : Erased::kNothingPinned;
}

bool PrefixRegistry::unpin(Hash128 hash) {
  if (find(hash) == nullptr) return false;
  Entry& entry = entries_.at(hash);
  if (!entry.is_pinned()) return false;
  entry.ask.pin = false;
  entry.ask.ttl.reset();
  entry.expires.reset();
  return entry.making_pins == 0;
}

std::vector<Hash128> PrefixRegistry::take_expired(TimePoint now) {
  std::vector<Hash128> over, unpinned;
  for (const auto& [hash, entry] : entries_) {
    if (entry.made && entry.expires && *entry.expires <= now) over.push_back(hash);
  }
  for (const Hash128& hash : over) {
    if (erase(hash) == Erased::kUnpin) unpinned.push_back(hash);
  }
  return unpinned;
}

void PrefixRegistry::drop_lost(absl::FunctionRef<bool(Hash128)> is_pinned) {
  std::vector<Hash128> lost;
  for (const auto& [hash, entry] : entries_) {
    if (entry.is_pinned() && !is_pinned(hash)) lost.push_back(hash);
  }
  for (const Hash128& hash : lost) erase(hash);
}

std::optional<TimePoint> PrefixRegistry::next_expiry() const {
  std::optional<TimePoint> next;
  for (const auto& [hash, entry] : entries_) {
    if (entry.made && entry.expires && (!next || *entry.expires < *next)) next = entry.expires;
  }
  return next;
}

}  // namespace troupe
