#include "worker/kv/ghost_list.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace troupe {

namespace {

// Quarters of an octave of ticks, from 1 on; 0 is none.
constexpr float kStepsPerOctave = 4;

uint8_t pack_interval(float ticks) {
  if (ticks <= 0) return 0;
  const float steps = std::round(std::log2(std::max(ticks, 1.0f)) * kStepsPerOctave) + 1;
  return static_cast<uint8_t>(std::min(steps, 127.0f));
}

// The interval of every packed value: a lesson asks for hundreds.
const std::array<float, 128> kUnpacked = [] {
  std::array<float, 128> ticks{};
  for (size_t packed = 1; packed < ticks.size(); ++packed)
    ticks[packed] = std::exp2(static_cast<float>(packed - 1) / kStepsPerOctave);
  return ticks;
}();

}  // namespace

GhostList::GhostList(int32_t block_count) : set_count_(static_cast<size_t>(std::max(1, block_count / 4))) {}

GhostList::Set& GhostList::find_or_make(size_t index) {
  if (Set* const set = find(index)) return *set;
  if (sets_made_ % kChunk == 0) chunks_.push_back(std::make_unique<std::array<Set, kChunk>>());
  places_[index] = ++sets_made_;
  return *find(index);
}

void GhostList::add(const Row& row, const GhostEntry& first) {
  if (places_.empty()) places_.resize(set_count_);
  Entry added;
  added.taken = 1;
  added.user = first.user & kUserMask;
  added.interval = pack_interval(first.interval) & 127;
  added.uses = (std::clamp(first.use_count, 1u, 8u) - 1) & 7;
  added.returning = first.returning;
  added.shared = first.shared;
  const size_t count = row.hashes.size();
  for (size_t i = kGroup - row.index % kGroup; i < count; i += kGroup) prefetch(row.hashes[i]);
  Hash128 group_hash = row.group_hash;
  for (size_t begin = 0, length = 0; begin < count; begin += length) {
    const size_t place = (row.index + begin) % kGroup;
    length = std::min(kGroup - place, count - begin);
    if (place == 0) group_hash = row.hashes[begin];
    for (size_t i = 0; i < length; ++i) added.tags[place + i] = tag_of(row.hashes[begin + i]);
    added.time = static_cast<uint32_t>(first.idle_since - begin);
    added.first = place & 7;
    added.last = (place + length - 1) & 7;
    put(find_or_make(set_index(group_hash)), added);
  }
}

void GhostList::put(Set& set, const Entry& added) {
  // A tick belongs to one block alone, so the block that became idle a tick before the last of these is the
  // one behind it.
  const uint32_t time_behind = added.time - (added.last - added.first) - 1;
  Entry* oldest = &set.entries[0];
  for (Entry& entry : set.entries) {
    if (entry.taken != 0 && entry.time == time_behind && entry.first == added.last + 1u) {
      std::copy_n(added.tags.begin() + added.first, added.last - added.first + 1,
                  entry.tags.begin() + added.first);
      entry.first = added.first;
      entry.time = added.time;
      return;
    }
    if (oldest->taken == 0) continue;
    const bool is_older = static_cast<int32_t>(entry.time - oldest->time) < 0;
    if (entry.taken == 0 || is_older) oldest = &entry;
  }
  *oldest = added;
}

GhostList::Found GhostList::take(std::span<const Hash128> hashes, size_t begin, size_t end, uint64_t now) {
  if (places_.empty()) return {end - begin, {}};
  const size_t group = begin / kGroup * kGroup;
  end = std::min(end, group + kGroup);
  Set* const set = find(set_index(hashes[group]));
  if (set == nullptr) return {end - begin, {}};
  Entry* best = nullptr;
  size_t best_begin = end, best_count = 0;
  for (Entry& entry : set->entries) {
    const size_t from = std::max(begin, group + entry.first);
    const size_t to = std::min(end, group + entry.last + 1);
    size_t at = from;
    while (at < to && entry.tags[at - group] == tag_of(hashes[at])) ++at;
    if (entry.taken == 0 || at <= from || from > best_begin) continue;
    if (from == best_begin && at - from <= best_count) continue;
    best = &entry;
    best_begin = from;
    best_count = at - from;
  }
  if (best_begin > begin || best == nullptr) return {best_begin - begin, {}};
  Found found{best_count, unpack(*best, now)};
  found.block->idle_since -= begin - (group + best->first);
  const size_t rest = begin + best_count - group;  // comes back later, or a prompt parted from it
  if (rest > best->last) {
    *best = Entry{};
  } else {
    best->time -= static_cast<uint32_t>(rest - best->first);
    best->first = rest & 7;
  }
  return found;
}

GhostList::Found GhostList::at(size_t index, uint64_t now) const {
  const Set* const set = find(index / kWays);
  if (set == nullptr) return {};
  const Entry& entry = set->entries[index % kWays];
  if (entry.taken == 0) return {};
  return {static_cast<size_t>(entry.last - entry.first + 1), unpack(entry, now)};
}

GhostEntry GhostList::unpack(const Entry& entry, uint64_t now) {
  const uint64_t age = std::min(now, uint64_t{static_cast<uint32_t>(now) - entry.time});
  return {.idle_since = now - age,
          .user = entry.user,
          .interval = kUnpacked[entry.interval],
          .use_count = entry.uses + 1u,
          .returning = entry.returning != 0,
          .shared = entry.shared != 0};
}

}  // namespace troupe
