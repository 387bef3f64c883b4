// Eviction compares the two ends of each list of idle leaves (idle_leaves.h) by learned value: within a class
// the value changes with age in one direction over the ages that occur, more or less, so the least value is
// at an end; which end is learned too. A block is never evicted before those behind it: only leaves are
// listed, they lose their last block first, and a request that holds a block holds all before it. A pin is
// such a hold.
//
// Costs: a run becoming or ceasing to be an evictable leaf is O(log leaves); an eviction looks at 22 leaves
// and takes as many blocks of one as are worth the same; what it remembers of them is a line of memory each.
// A lesson, once for every sixteenth of the cache that became idle: some 1,000 samples, and 20 µs when the
// next eviction asks for what it taught.
//
// Measured (hit rate of blocks; tests/worker/kv/eviction_test.cc prints them), LRU / this / Belady:
//   Zipf personas, 20 % one-shots  0.383 / 0.505 / 0.577
//   Zipf personas, 80 % one-shots  0.040 / 0.115 / 0.134
//   conversations, 30 % one-shots  0.448 / 0.554 / 0.632
//   conversations only             0.549 / 0.551 / 0.783
//   a loop larger than the cache   0.000 / 0.433 / 0.433
//   a production trace, 5k blocks  0.117 / 0.174 / 0.352
// Eight simulated nodes where KV is tight (1,000 personas, means of three seeds), hits of tokens without
// marks of what is planned / with them: residency exact, one gateway 0.551 / 0.557; gossip, eight 0.527 /
// 0.521; by plan, eight 0.529 / 0.528. The learned values keep most of it anyway; the mark makes it certain.

#include "worker/kv/eviction.h"

#include <algorithm>

namespace troupe {

int32_t Evictor::evict(int32_t count) {
  int32_t freed = 0;
  while (freed < count) {
    const RadixNodeId id = leaves_.least_valuable();
    if (id < 0) break;
    freed += evict_from(id, count - freed);
  }
  return freed;
}

// As many as are worth the same: while the run stays the least valuable.
int32_t Evictor::evict_from(RadixNodeId id, int32_t count) {
  const RadixNode& r = tree_.run(id);
  const uint64_t alike_count = history_.same_value_count(last_idle_since(r));
  count = static_cast<int32_t>(
      std::min<uint64_t>(alike_count, static_cast<uint64_t>(std::min(count, r.count()))));
  counts_.evicted += count;
  counts_.evicted_shared += r.use.shared ? count : 0;
  const auto hashes = last_hashes(r, count);
  if (!r.is_tail()) {
    const auto first = static_cast<uint64_t>(r.count() - count);
    const auto index = static_cast<size_t>(r.depth) + first;
    history_.remember({.index = index,
                       .hashes = hashes,
                       .group_hash = hash_at(id, index / GhostList::kGroup * GhostList::kGroup)},
                      r.use, r.use.idle_since - first);
  }
  cut(id, count, hashes);
  return count;
}

void Evictor::remove(RadixNodeId id) {
  const RadixNode& r = tree_.run(id);
  cut(id, r.count(), last_hashes(r, r.count()));
}

void Evictor::unpublish(RadixNodeId id) {
  RadixNode& r = tree_.run(id);
  if (residency_ != nullptr && !r.is_tail()) {
    residency_->evicted({r.extent, r.depth, r.blocks, last_hashes(r, r.count())});
  }
  r.extent = {};
}

// Valid until the next call; none where the run is partly filled.
std::span<const Hash128> Evictor::last_hashes(const RadixNode& r, int32_t count) {
  if (r.is_tail()) return {};
  hashes_.resize(static_cast<size_t>(count));
  tree_.last_hashes(r, hashes_);
  return hashes_;
}

// The hash of the index-th block on the way to the end of a run.
Hash128 Evictor::hash_at(RadixNodeId id, size_t index) const {
  while (static_cast<size_t>(tree_.run(id).depth) > index) id = tree_.run(id).parent;
  return tree_.hash_of(tree_.run(id), index - static_cast<size_t>(tree_.run(id).depth));
}

// The last blocks, with these hashes, go out of the cache and onto the free list. REQUIRES: an idle leaf.
void Evictor::cut(RadixNodeId id, int32_t count, std::span<const Hash128> hashes) {
  const RadixNode& r = tree_.run(id);
  const int32_t left = r.count() - count;
  const auto gone = std::span(r.blocks).last(static_cast<size_t>(count));
  if (residency_ != nullptr && !r.is_tail()) {
    residency_->evicted({r.extent, r.depth + left, gone, hashes});
  }
  pool_.add_cached(-count);
  for (size_t i = gone.size(); i-- > 0;) pool_.release(gone[i]);
  const RadixNodeId parent = r.parent;
  if (left == 0) {
    if (r.listed) leaves_.remove(id);
    if (r.planned) leaves_.count_planned(-1);
  }
  tree_.cut(id, count);
  if (left == 0 && parent >= 0) leaves_.add_if_idle_leaf(parent);
}

}  // namespace troupe
