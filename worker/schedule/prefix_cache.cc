// Unreferenced leaves lie in one ordered list a class, by the time they became idle. Eviction compares the
// two ends of each list by learned value: within a class the value changes with age in one direction over the
// ages that are there, more or less, so the least is at an end; which end is learned too. A block is never
// evicted before its children: only leaves are listed, and whoever holds a block holds all before it. Pinned
// sets, when they come, are one more class that is asked last; insert() and drop() are the two places where a
// set's residency changes.
//
// Costs: find, insert, release O(1) and a bounded look at siblings; a block becoming or ceasing to be an
// evictable leaf O(log leaves); an eviction looks at 22 leaves. A lesson: some 1,000 samples and 20 µs, once
// for every sixteenth of the cache that became idle.
//
// Measured (hit rate of blocks; tests/worker/schedule/eviction_test.cc prints them), LRU / this / Belady:
//   Zipf personas, 20 % one-shots  0.383 / 0.505 / 0.577     a loop larger than the cache  0.000 / 0.433 /
//   0.433 Zipf personas, 80 % one-shots  0.040 / 0.115 / 0.134     a production trace, 5k blocks 0.117 /
//   0.174 / 0.352 conversations, 30 % one-shots  0.448 / 0.554 / 0.632     conversations only 0.549 / 0.551 /
//   0.783

#include "worker/schedule/prefix_cache.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "worker/schedule/block_tree.h"
#include "worker/schedule/evicted_blocks.h"
#include "worker/schedule/reuse_value.h"

namespace troupe {

namespace {

// The usual time between uses: the mean of the last eight or so.
void add_use(BlockNode& n, uint64_t ticks) {
  n.interval +=
      (static_cast<float>(ticks) - n.interval) / static_cast<float>(std::min<uint32_t>(n.use_count, 8));
  if (n.use_count < 255) ++n.use_count;
}

}  // namespace

struct PrefixCache::Impl {
  Impl(BlockPool* p, int32_t block_size, Residency* r)
      : pool(p),
        residency(r),
        tree(p->total_count(), block_size),
        evicted(p->total_count()),
        value(p->total_count()) {}

  void add_node(const Block& block);
  void list(BlockId block);
  void unlist(BlockId block);
  void list_if_leaf(BlockId block) {
    if (tree.node(block).is_leaf() && pool->reference_count(block) == 0) list(block);
  }
  template <typename Node>  // or what is remembered of one
  IdleClass class_of(const Node& n) const {
    if (n.shared) return value.shared_class(static_cast<double>(n.interval));
    return n.returning ? kReturningClass : kNewClass;
  }
  void count_use(BlockNode& n, uint32_t user, bool was_idle);
  void recall(BlockNode& n, uint32_t user);
  void learn();
  void drop_covered_tails(Hash128 parent, std::span<const TokenId> by);
  void drop(BlockId block);
  BlockId least_valuable() const;
  Status verify_leaves() const;

  BlockPool* pool;
  Residency* residency;
  BlockTree tree;
  absl::flat_hash_map<Hash128, RequestId> announced;
  // By (idle_since, block): the first is the one idle for longest.
  std::array<absl::btree_set<std::pair<uint64_t, BlockId>>, kIdleClassCount> leaves;
  EvictedBlocks evicted;
  ReuseValue value;
  uint64_t now = 0;  // ticks: blocks that became idle
  size_t lesson_count = 0;
  uint64_t change_count = 0;
  Counts counts;
};

PrefixCache::PrefixCache(BlockPool* pool, int32_t block_size, Residency* residency)
    : impl_(std::make_unique<Impl>(pool, block_size, residency)) {}
PrefixCache::~PrefixCache() = default;

BlockId PrefixCache::find(Hash128 hash) const {
  return impl_->tree.find(hash);
}

int32_t PrefixCache::find_leading(std::span<const Hash128> hashes, int32_t guess) const {
  return impl_->tree.find_leading(hashes, guess);
}

void PrefixCache::find_path(std::span<const Hash128> hashes, std::vector<BlockId>& out) const {
  impl_->tree.find_path(hashes, out);
}

void PrefixCache::prefetch(Hash128 hash) const {
  impl_->tree.prefetch(hash);
  impl_->evicted.prefetch(hash);
}

void PrefixCache::prefetch(BlockId block) const {
  impl_->tree.prefetch(block);
  impl_->pool->prefetch(block);
}

PartialMatch PrefixCache::find_partial(Hash128 parent, std::span<const TokenId> ids,
                                       int32_t count_min) const {
  PartialMatch best;
  BlockId child = impl_->tree.first_child_of(parent);
  for (int i = 0; i < kCandidatesMax && child >= 0; ++i, child = impl_->tree.node(child).next_sibling) {
    const auto known = impl_->tree.ids_of(child);
    const auto end = std::mismatch(ids.begin(), ids.end(), known.begin(), known.end()).first;
    const auto count = static_cast<int32_t>(end - ids.begin());
    if (count >= count_min && count > best.count) best = {child, count};
  }
  return best;
}

void PrefixCache::acquire(BlockId block, uint64_t user) {
  Impl& c = *impl_;
  BlockNode& n = c.tree.node(block);
  const bool was_idle = c.pool->reference_count(block) == 0;
  if (was_idle && !n.is_tail()) c.value.record_hit(c.class_of(n), c.now - n.idle_since);
  if (n.listed) c.unlist(block);
  c.count_use(n, static_cast<uint32_t>(user), was_idle);
  c.pool->add_reference(block);
}

BlockId PrefixCache::insert(const Block& block) {
  Impl& c = *impl_;
  const BlockId held = find(block.hash);
  if (held >= 0) return held;
  ++c.change_count;
  c.drop_covered_tails(block.parent, block.ids);
  c.add_node(block);
  c.recall(c.tree.node(block.block), static_cast<uint32_t>(block.user));
  return block.block;
}

void PrefixCache::insert_tail(const Block& block) {
  Impl& c = *impl_;
  if (find_partial(block.parent, block.ids, static_cast<int32_t>(block.ids.size())).block >= 0) return;
  c.drop_covered_tails(block.parent, block.ids);
  c.add_node(block);
}

void PrefixCache::release(BlockId block) {
  Impl& c = *impl_;
  if (c.pool->drop_reference(block) > 0) return;
  if (!c.pool->is_cached(block)) {
    c.pool->release(block);
    return;
  }
  c.tree.node(block).idle_since = ++c.now;
  if (c.value.tick()) c.learn();
  c.list_if_leaf(block);
}

int32_t PrefixCache::evict(int32_t count) {
  Impl& c = *impl_;
  int32_t freed = 0;
  for (; freed < count; ++freed) {
    const BlockId block = c.least_valuable();
    if (block < 0) break;
    const BlockNode& n = c.tree.node(block);
    ++c.counts.evicted;
    c.counts.evicted_shared += n.shared;
    if (!n.is_tail()) {
      c.evicted.add(n.hash,
                    {.idle_since = n.idle_since,
                     .user = n.user,
                     .interval = n.interval,
                     .use_count = n.use_count,
                     .returning = n.returning,
                     .shared = n.shared},
                    c.now);
    }
    c.drop(block);
  }
  return freed;
}

void PrefixCache::announce(Hash128 hash, RequestId owner) {
  impl_->announced.try_emplace(hash, owner);
}

void PrefixCache::withdraw(Hash128 hash, RequestId owner) {
  const auto it = impl_->announced.find(hash);
  if (it == impl_->announced.end() || it->second != owner) return;
  impl_->announced.erase(it);
  ++impl_->change_count;
}

bool PrefixCache::is_announced_by_other(Hash128 hash, RequestId self) const {
  const auto it = impl_->announced.find(hash);
  return it != impl_->announced.end() && it->second != self;
}

int32_t PrefixCache::size() const {
  return impl_->tree.size();
}

int32_t PrefixCache::announced_count() const {
  return static_cast<int32_t>(impl_->announced.size());
}

uint64_t PrefixCache::change_count() const {
  return impl_->change_count;
}

const PrefixCache::Counts& PrefixCache::counts() const {
  return impl_->counts;
}

// ---------------------------------------------------------------- the leaves and their worth

void PrefixCache::Impl::add_node(const Block& block) {
  tree.add({block.block, block.hash, block.parent, block.parent_block, block.ids});
  BlockNode& n = tree.node(block.block);
  n.user = static_cast<uint32_t>(block.user);
  n.used_at = now;
  // What a returning session adds to its own is as likely to be wanted again.
  if (n.parent >= 0) {
    const BlockNode& parent = tree.node(n.parent);
    n.returning = parent.returning && !parent.shared;
  }
  pool->mark_cached(block.block, true);
}

void PrefixCache::Impl::list(BlockId block) {
  BlockNode& n = tree.node(block);
  leaves[class_of(n)].emplace(n.idle_since, block);
  n.listed = true;
}

void PrefixCache::Impl::unlist(BlockId block) {
  BlockNode& n = tree.node(block);
  leaves[class_of(n)].erase({n.idle_since, block});
  n.listed = false;
}

// REQUIRES: not listed, since its class may change.
void PrefixCache::Impl::count_use(BlockNode& n, uint32_t user, bool was_idle) {
  if (user != n.user) {
    n.user = user;
    n.shared = true;
  } else if (was_idle) {
    n.returning = true;
  }
  add_use(n, now - n.used_at);
  n.used_at = now;
}

// A block that was evicted and is still remembered is not new.
void PrefixCache::Impl::recall(BlockNode& n, uint32_t user) {
  const auto known = evicted.take(n.hash, now);
  if (!known) return;
  value.record_hit(class_of(*known), now - known->idle_since);
  const bool same_user = EvictedBlocks::is_same_user(*known, user);
  n.returning = n.returning || known->returning || same_user;
  n.shared = known->shared || !same_user;
  n.interval = known->interval;
  n.use_count = known->use_count;
  add_use(n, now - known->idle_since);
}

// The value's lesson needs to know how much lies idle, at which ages: a sample tells, of what is here and of
// what is remembered.
void PrefixCache::Impl::learn() {
  constexpr size_t kSamples = 512;
  const auto sample = [&](size_t count, auto each) {
    const size_t step = (count + kSamples - 1) / kSamples;
    for (size_t i = lesson_count % step; i < count; i += step) each(i, static_cast<double>(step));
  };
  sample(static_cast<size_t>(pool->total_count()), [&](size_t i, double weight) {
    const BlockId block = static_cast<BlockId>(i);
    if (!pool->is_cached(block) || pool->reference_count(block) > 0) return;
    const BlockNode& n = tree.node(block);
    if (!n.is_tail()) value.record_idle(class_of(n), now - n.idle_since, weight);
  });
  sample(evicted.size(), [&](size_t i, double weight) {
    const auto entry = evicted.at(i, now);
    if (entry) value.record_idle(class_of(*entry), now - entry->idle_since, weight);
  });
  ++lesson_count;
  value.learn();
}

// Tails that say no more than the sibling to come does.
void PrefixCache::Impl::drop_covered_tails(Hash128 parent, std::span<const TokenId> by) {
  if (by.empty()) return;  // no ids, no tails
  BlockId child = tree.first_child_of(parent);
  for (int i = 0; i < kCandidatesMax && child >= 0; ++i) {
    const BlockId next = tree.node(child).next_sibling;
    const auto known = tree.ids_of(child);
    if (tree.node(child).listed && tree.node(child).is_tail() && known.size() <= by.size() &&
        std::equal(known.begin(), known.end(), by.begin())) {
      drop(child);
    }
    child = next;
  }
}

// Out of the cache and onto the free list. REQUIRES: listed.
void PrefixCache::Impl::drop(BlockId block) {
  unlist(block);
  const BlockId parent = tree.node(block).parent;
  if (parent >= 0) {
    // Most likely the next to go.
    tree.prefetch(tree.node(parent).hash);
    evicted.prefetch(tree.node(parent).hash);
    if (tree.node(parent).parent >= 0) tree.prefetch(tree.node(parent).parent);
  }
  if (residency != nullptr) residency->evicted(block);
  tree.remove(block);
  pool->mark_cached(block, false);
  pool->release(block);
  if (parent >= 0) list_if_leaf(parent);
}

BlockId PrefixCache::Impl::least_valuable() const {
  BlockId least = -1;
  double least_value = 0;
  uint64_t least_since = 0;
  for (size_t c = 0; c < leaves.size(); ++c) {
    if (leaves[c].empty()) continue;
    for (const auto& [since, block] : {*leaves[c].begin(), *leaves[c].rbegin()}) {
      const double worth = value.of(static_cast<IdleClass>(c), now - since);
      if (least >= 0 && (worth > least_value || (worth == least_value && since >= least_since))) continue;
      least = block;
      least_value = worth;
      least_since = since;
    }
  }
  return least;
}

Status PrefixCache::Impl::verify_leaves() const {
  size_t listed_count = 0, evictable_count = 0;
  for (size_t c = 0; c < leaves.size(); ++c) {
    for (const auto& [since, block] : leaves[c]) {
      const BlockNode& n = tree.node(block);
      if (!pool->is_cached(block) || !n.listed || n.idle_since != since || class_of(n) != c) {
        return absl::InternalError("block " + std::to_string(block) + " is in the wrong list of leaves");
      }
    }
    listed_count += leaves[c].size();
  }
  for (BlockId block = 0; block < pool->total_count(); ++block) {
    if (!pool->is_cached(block)) continue;
    const bool evictable = pool->reference_count(block) == 0 && tree.node(block).is_leaf();
    if (evictable != tree.node(block).listed) {
      return absl::InternalError("block " + std::to_string(block) + " is wrongly in or out of the leaves");
    }
    evictable_count += evictable;
  }
  if (listed_count == evictable_count) return absl::OkStatus();
  return absl::InternalError("the lists of leaves have lost count");
}

Status PrefixCache::verify() const {
  TROUPE_RETURN_IF_ERROR(impl_->tree.verify(*impl_->pool));
  return impl_->verify_leaves();
}

}  // namespace troupe
