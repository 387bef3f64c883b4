// Eviction. Unreferenced leaves lie in one ordered list per class, by the time they became idle. Eviction
// compares the two ends of each list by learned value: within a class the value changes with age in one
// direction over the ages that occur, more or less, so the least value is at an end; which end is learned
// too. A block is never evicted before those behind it: only leaves are listed, they lose their last block
// first, and a request that holds a block holds all before it. A pin is such a hold. Planned prefixes
// (set_planned) lie in lists of their own, from which eviction takes when all others are empty.
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

#include <algorithm>
#include <string>
#include <vector>

#include "worker/kv/prefix_cache_impl.h"

namespace troupe {

namespace {

// A planned prefix that was not used while the cache turned over this often counts as planned no more.
constexpr uint64_t kPlannedTurnovers = 4;

}  // namespace

int32_t PrefixCache::evict(int32_t count) {
  int32_t freed = 0;
  while (freed < count) {
    const RadixNodeId id = impl_->least_valuable();
    if (id < 0) break;
    freed += impl_->evict_from(id, count - freed);
  }
  return freed;
}

void PrefixCache::Impl::list(RadixNodeId id) {
  RadixNode& r = tree.run(id);
  leaves_beside(r)[class_of(r.use)].emplace(r.use.idle_since, id);
  r.listed = true;
}

void PrefixCache::Impl::unlist(RadixNodeId id) {
  RadixNode& r = tree.run(id);
  leaves_beside(r)[class_of(r.use)].erase({r.use.idle_since, id});
  r.listed = false;
}

// A lesson needs to know how much lies idle and at which ages: a sample of the cached and of the remembered
// blocks shows it.
void PrefixCache::Impl::learn() {
  constexpr size_t kSamples = 512;
  constexpr size_t kAhead = 8;  // samples whose memory is on its way: they lie far apart
  const auto sample = [&](size_t count, auto fetch, auto each) {
    const size_t step = (count + kSamples - 1) / kSamples;
    for (size_t i = step == 0 ? 0 : lesson_count % step; i < count; i += step) {
      fetch(std::min(i + kAhead * step, count - 1));
      each(i, static_cast<double>(step));
    }
  };
  sample(
      static_cast<size_t>(tree.id_end()), [&](size_t i) { tree.prefetch(static_cast<RadixNodeId>(i)); },
      [&](size_t i, double weight) {
        const RadixNode& r = tree.run(static_cast<RadixNodeId>(i));
        if (r.blocks.empty() || r.is_tail() || r.references > 0) return;
        value.record_idle(class_of(r.use), ages_of(r), weight);
      });
  sample(
      evicted.size(), [&](size_t i) { evicted.prefetch_at(i); },
      [&](size_t i, double weight) {
        const auto [count, known] = evicted.at(i, now);
        if (!known) return;
        value.record_idle(class_of(*known), {now - known->idle_since, static_cast<int32_t>(count)}, weight);
      });
  ++lesson_count;
  value.learn();
  if (planned_count > 0) retire_planned();
}

// The plan changes, and no request shows that a set is routed to another node now.
void PrefixCache::Impl::retire_planned() {
  const auto most = kPlannedTurnovers * static_cast<uint64_t>(pool->total_count());
  for (auto& list_of_class : planned_leaves) {
    while (!list_of_class.empty() && list_of_class.begin()->first + most < now) {
      const RadixNodeId id = list_of_class.begin()->second;
      unlist(id);
      tree.run(id).planned = false;
      planned_count -= 1;
      list(id);
    }
  }
}

// The hash of the index-th block on the way to the end of a run.
Hash128 PrefixCache::Impl::hash_at(RadixNodeId id, size_t index) const {
  while (static_cast<size_t>(tree.run(id).depth) > index) id = tree.run(id).parent;
  return tree.hash_of(tree.run(id), index - static_cast<size_t>(tree.run(id).depth));
}

// As many as are worth the same: while the run stays the least valuable.
int32_t PrefixCache::Impl::evict_from(RadixNodeId id, int32_t count) {
  const RadixNode& r = tree.run(id);
  const uint64_t age = now - last_idle_since(r);
  const uint64_t alike_count = age - value.same_value_from(age) + 1;
  count = static_cast<int32_t>(
      std::min<uint64_t>(alike_count, static_cast<uint64_t>(std::min(count, r.count()))));
  counts.evicted += count;
  counts.evicted_shared += r.use.shared ? count : 0;
  if (!r.is_tail()) {
    const auto first = static_cast<uint64_t>(r.count() - count);
    const auto index = static_cast<size_t>(r.depth) + first;
    gone_hashes.resize(static_cast<size_t>(count));
    tree.last_hashes(r, gone_hashes);
    evicted.add({.index = index,
                 .hashes = gone_hashes,
                 .group_hash = hash_at(id, index / GhostList::kGroup * GhostList::kGroup)},
                {.idle_since = r.use.idle_since - first,
                 .user = r.use.user,
                 .interval = r.use.interval,
                 .use_count = r.use.use_count,
                 .returning = r.use.returning,
                 .shared = r.use.shared});
  }
  cut(id, count);
  return count;
}

// The last blocks go out of the cache and onto the free list. REQUIRES: listed, and gone_hashes are theirs,
// but for a tail; or corrupt.
void PrefixCache::Impl::cut(RadixNodeId id, int32_t count) {
  const RadixNode& r = tree.run(id);
  const int32_t left = r.count() - count;
  const auto gone = std::span(r.blocks).last(static_cast<size_t>(count));
  if (residency != nullptr && !r.is_tail()) {
    residency->evicted({r.extent, r.depth + left, gone, gone_hashes});
  }
  pool->add_cached(-count);
  for (size_t i = gone.size(); i-- > 0;) pool->release(gone[i]);
  const RadixNodeId parent = r.parent;
  if (left == 0) {
    if (r.listed) unlist(id);
    planned_count -= r.planned;
  }
  tree.cut(id, count);
  if (left == 0 && parent >= 0) list_if_leaf(parent);
}

RadixNodeId PrefixCache::Impl::least_of(const Leaves& lists) {
  RadixNodeId least = -1;
  double least_value = 0;
  uint64_t least_since = 0;
  for (size_t c = 0; c < lists.size(); ++c) {
    if (lists[c].empty()) continue;
    for (const RadixNodeId id : {lists[c].begin()->second, lists[c].rbegin()->second}) {
      const uint64_t since = last_idle_since(tree.run(id));
      const double worth = value.of(static_cast<IdleClass>(c), now - since);
      if (least >= 0 && (worth > least_value || (worth == least_value && since >= least_since))) continue;
      least = id;
      least_value = worth;
      least_since = since;
    }
  }
  return least;
}

// ---------------------------------------------------------------- checks

bool PrefixCache::is_path(const LockedPrefix& path, std::span<const Hash128> hashes,
                          std::span<const BlockId> blocks) const {
  auto end = static_cast<size_t>(path.count);
  if (blocks.size() < end || (!hashes.empty() && hashes.size() < end)) return false;
  for (RadixNodeId id = path.run; id >= 0; id = impl_->tree.run(id).parent) {
    const RadixNode& r = impl_->tree.run(id);
    if (static_cast<size_t>(r.depth) + r.blocks.size() != end) return false;
    end = static_cast<size_t>(r.depth);
    if (!std::equal(r.blocks.begin(), r.blocks.end(), blocks.begin() + r.depth)) return false;
    const auto depth = static_cast<size_t>(r.depth);
    if (!hashes.empty() && impl_->tree.common_count(r, hashes.subspan(depth)) < r.blocks.size()) return false;
  }
  return end == 0;
}

Status PrefixCache::Impl::verify_leaves() const {
  size_t listed_count = 0, evictable_count = 0;
  int32_t idle_count = 0;
  int32_t planned = 0;
  for (const Leaves* lists : {&leaves, &planned_leaves}) {
    for (size_t c = 0; c < lists->size(); ++c) {
      for (const auto& [since, id] : (*lists)[c]) {
        const RadixNode& r = tree.run(id);
        if (r.blocks.empty() || !r.listed || r.use.idle_since != since || class_of(r.use) != c ||
            r.planned != (lists == &planned_leaves)) {
          return absl::InternalError("run " + std::to_string(id) + " is in the wrong list of leaves");
        }
      }
      listed_count += (*lists)[c].size();
    }
  }
  for (RadixNodeId id = 0; id < tree.id_end(); ++id) {
    const RadixNode& r = tree.run(id);
    if (r.blocks.empty()) continue;
    const bool evictable = r.references == 0 && r.is_leaf();
    planned += r.planned;
    if (evictable != r.listed) {
      return absl::InternalError("run " + std::to_string(id) + " is wrongly in or out of the leaves");
    }
    evictable_count += evictable;
    idle_count += r.references == 0 ? r.count() : 0;
  }
  if (listed_count != evictable_count || planned != planned_count) {
    return absl::InternalError("the lists of leaves have lost count");
  }
  if (idle_count == pool->cached_count()) return absl::OkStatus();
  return absl::InternalError("the cached blocks without a reference have lost count");
}

Status PrefixCache::verify(const Holds& holds, BlockSet& in_cache) const {
  const RadixTree& tree = impl_->tree;
  TROUPE_RETURN_IF_ERROR(tree.verify());
  TROUPE_RETURN_IF_ERROR(impl_->verify_leaves());
  std::vector<int32_t> references(static_cast<size_t>(tree.id_end()));
  for (const LockedPrefix& path : holds.paths) {
    for (RadixNodeId id = path.run; id >= 0; id = tree.run(id).parent) ++references[static_cast<size_t>(id)];
  }
  for (const RadixNodeId id : holds.partials) ++references[static_cast<size_t>(id)];
  std::vector<int32_t> pins(static_cast<size_t>(tree.id_end()));
  for (const Pin& pin : holds.pins) {
    for (RadixNodeId id = pin.path.run; id >= 0; id = tree.run(id).parent) ++pins[static_cast<size_t>(id)];
    if (pin.partial >= 0) ++pins[static_cast<size_t>(pin.partial)];
  }
  int32_t pinned = 0;
  for (RadixNodeId id = 0; id < tree.id_end(); ++id) {
    const int32_t pins_here = pins[static_cast<size_t>(id)];
    if (tree.run(id).references != references[static_cast<size_t>(id)] + pins_here) {
      return absl::InternalError("run " + std::to_string(id) + " has a reference without a holder");
    }
    if (tree.run(id).pins != pins_here) {
      return absl::InternalError("run " + std::to_string(id) + " is pinned by nobody");
    }
    pinned += pins_here > 0 ? tree.run(id).count() : 0;
    for (const BlockId block : tree.run(id).blocks) {
      if (!in_cache.insert(block) || impl_->pool->is_free(block)) {
        return absl::InternalError("block " + std::to_string(block) + " is cached twice, or cached and free");
      }
    }
  }
  if (pinned == impl_->pinned_count) return absl::OkStatus();
  return absl::InternalError("the pinned blocks have lost count");
}

}  // namespace troupe
