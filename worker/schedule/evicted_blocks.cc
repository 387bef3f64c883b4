#include "worker/schedule/evicted_blocks.h"

#include <algorithm>
#include <cmath>

namespace troupe {

namespace {

// Quarters of an octave above 1/16 of a unit, from 1 on; 0 is none.
constexpr float kStepsPerOctave = 4;
constexpr float kLeast = 1.0f / 16;
constexpr float kIntervalMax = 63;

uint64_t pack_interval(float units) {
  if (units <= 0) return 0;
  const float steps = std::round(std::log2(units / kLeast) * kStepsPerOctave) + 1;
  return static_cast<uint64_t>(std::clamp(steps, 1.0f, kIntervalMax));
}

float unpack_interval(uint64_t packed) {
  if (packed == 0) return 0;
  return kLeast * std::exp2(static_cast<float>(packed - 1) / kStepsPerOctave);
}

}  // namespace

EvictedBlocks::EvictedBlocks(int32_t block_count)
    : sets_(static_cast<size_t>(std::max(1, block_count))),
      unit_(static_cast<uint64_t>(std::max(1, block_count / 64))) {}

uint64_t EvictedBlocks::tag_of(Hash128 hash) {
  const uint64_t tag = hash.lo & 0x3ffff;
  return tag == 0 ? 1 : tag;
}

uint64_t EvictedBlocks::age_of(const Entry& entry, uint64_t now) const {
  return (now / unit_ - entry.time) & kTimeMask;
}

void EvictedBlocks::add(std::span<const Hash128> hashes, const EvictedBlock& first, uint64_t now) {
  constexpr size_t kAhead = 8;
  const auto older = [&](const Entry& a, const Entry& b) {
    if (a.tag == 0 || b.tag == 0) return a.tag == 0 && b.tag != 0;
    return age_of(a, now) > age_of(b, now);
  };
  Entry added;
  added.user = first.user & kUserMask;
  added.interval = pack_interval(first.interval / static_cast<float>(unit_)) & 63;
  added.uses = (std::clamp(first.use_count, 1u, 8u) - 1) & 7;
  added.returning = first.returning;
  added.shared = first.shared;
  for (size_t i = 0; i < std::min(kAhead, hashes.size()); ++i) prefetch(hashes[i]);
  for (size_t i = 0; i < hashes.size(); ++i) {
    if (i + kAhead < hashes.size()) prefetch(hashes[i + kAhead]);
    std::array<Entry, kWays>& entries = sets_[set_index(hashes[i])].entries;
    added.tag = tag_of(hashes[i]) & 0x3ffff;
    added.time = (first.idle_since - i) / unit_ & kTimeMask;
    *std::min_element(entries.begin(), entries.end(), older) = added;
  }
}

std::optional<EvictedBlock> EvictedBlocks::take(Hash128 hash, uint64_t now) {
  for (Entry& entry : sets_[set_index(hash)].entries) {
    if (entry.tag != tag_of(hash)) continue;
    const EvictedBlock found = unpack(entry, now);
    entry = Entry{};
    return found;
  }
  return std::nullopt;
}

std::optional<EvictedBlock> EvictedBlocks::at(size_t index, uint64_t now) const {
  const Entry& entry = sets_[index / kWays].entries[index % kWays];
  if (entry.tag == 0) return std::nullopt;
  return unpack(entry, now);
}

EvictedBlock EvictedBlocks::unpack(const Entry& entry, uint64_t now) const {
  const uint64_t age = std::min(now, age_of(entry, now) * unit_);
  return {.idle_since = now - age,
          .user = static_cast<uint32_t>(entry.user),
          .interval = unpack_interval(entry.interval) * static_cast<float>(unit_),
          .use_count = static_cast<uint32_t>(entry.uses) + 1,
          .returning = entry.returning != 0,
          .shared = entry.shared != 0};
}

}  // namespace troupe
