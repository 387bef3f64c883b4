// PrefixCache: look-up, holds and insertion. The cost of each is one of runs, however many blocks they have,
// except for copying token ids and for asking the ghost list about blocks that come back.

#include "worker/kv/prefix_cache.h"

#include <algorithm>
#include <string>

#include "common/core/check.h"
#include "worker/kv/prefix_cache_impl.h"

namespace troupe {

namespace {

// The usual time between uses: the mean of the last eight or so.
void add_use(RunUse& use, uint64_t ticks) {
  use.interval +=
      (static_cast<float>(ticks) - use.interval) / static_cast<float>(std::min<uint32_t>(use.use_count, 8));
  if (use.use_count < 255) ++use.use_count;
}

}  // namespace

PrefixCache::PrefixCache(BlockPool* pool, int32_t block_size, Residency* residency)
    : impl_(std::make_unique<Impl>(pool, block_size, residency)) {}
PrefixCache::~PrefixCache() = default;

PrefixCache::Match PrefixCache::find(std::span<const Hash128> hashes) const {
  const RadixTree& tree = impl_->tree;
  Match match;
  while (!hashes.empty()) {
    const RadixNodeId next = tree.find_child(match.run, hashes[0]);
    if (next < 0) break;
    const RadixNode& r = tree.run(next);
    RadixTree::prefetch_rest(r);
    // A hash stands for all before it, too: where the last is the same, all are.
    const size_t count = std::min(r.blocks.size(), hashes.size());
    const Hash128& last = count == r.blocks.size() ? r.last_hash : tree.hash_of(r, count - 1);
    const bool all = last == hashes[count - 1];
    const size_t common = all ? count : tree.common_count(r, hashes);
    match = {match.count + static_cast<int32_t>(common), next, static_cast<int32_t>(common)};
    if (common < r.blocks.size()) break;
    hashes = hashes.subspan(common);
  }
  return match;
}

int32_t PrefixCache::unreferenced_count(const Match& match) const {
  int32_t count = 0, here = match.run_count;
  for (RadixNodeId id = match.run; id >= 0 && run_state(id) == RunState::kIdle;) {
    count += here;
    id = impl_->tree.run(id).parent;
    if (id >= 0) here = impl_->tree.run(id).count();
  }
  return count;
}

PrefixCache::RunState PrefixCache::run_state(RadixNodeId run) const {
  const RadixNode& r = impl_->tree.run(run);
  if (r.corrupt) return RunState::kCorrupt;
  return r.references > 0 ? RunState::kReferenced : RunState::kIdle;
}

PartialMatch PrefixCache::find_partial(const Match& match, Hash128 root, std::span<const TokenId> ids,
                                       int32_t count_min) const {
  const RadixTree& tree = impl_->tree;
  PartialMatch best;
  const auto compare = [&](RadixNodeId run, int32_t index) {
    const auto known = tree.ids_of(run, index);
    const auto end = std::mismatch(ids.begin(), ids.end(), known.begin(), known.end()).first;
    const auto count = static_cast<int32_t>(end - ids.begin());
    if (count < count_min || count <= best.count) return;
    best = {tree.run(run).blocks[static_cast<size_t>(index)], count, run};
  };
  if (match.run >= 0 && match.run_count < tree.run(match.run).count()) {
    compare(match.run, match.run_count);
    return best;
  }
  RadixNodeId child = tree.first_child_of(match.run, root);
  for (int i = 0; i < kCandidatesMax && child >= 0; child = tree.run(child).next_sibling) {
    if (tree.run(child).corrupt) continue;
    compare(child, 0);
    ++i;
  }
  return best;
}

LockedPrefix PrefixCache::hold(const Match& match, uint64_t user, std::vector<BlockId>& out) {
  Impl& c = *impl_;
  out.resize(static_cast<size_t>(match.count));
  if (match.run < 0) return {};
  const bool whole = match.run_count == c.tree.run(match.run).count();
  const RadixNodeId last = whole ? match.run : c.split(match.run, match.run_count);
  for (RadixNodeId id = last; id >= 0; id = c.tree.run(id).parent) {
    c.take(id, static_cast<uint32_t>(user));
    const RadixNode& r = c.tree.run(id);
    std::copy(r.blocks.begin(), r.blocks.end(), out.begin() + r.depth);
  }
  return {last, match.count};
}

RadixNodeId PrefixCache::hold_partial(const PartialMatch& partial, uint64_t user) {
  Impl& c = *impl_;
  const RadixNodeId run = c.tree.run(partial.run).count() > 1 ? c.split(partial.run, 1) : partial.run;
  c.take(run, static_cast<uint32_t>(user));
  return run;
}

void PrefixCache::drop(RadixNodeId run) {
  impl_->drop(run);
}

void PrefixCache::fetch_ahead(const LockedPrefix& path) const {
  if (path.run >= 0) impl_->tree.prefetch(path.run);
}

void PrefixCache::insert(LockedPrefix& path, const Blocks& blocks) {
  Impl& c = *impl_;
  while (static_cast<size_t>(path.count) < blocks.blocks.size()) {
    const RadixNodeId known = c.tree.find_child(path.run, blocks.hashes[static_cast<size_t>(path.count)]);
    if (known < 0) {
      c.add(path, blocks);
      return;
    }
    c.adopt(path, known, blocks);
  }
}

bool PrefixCache::insert_tail(const LockedPrefix& path, const Tail& tail) {
  Impl& c = *impl_;
  if (path.run >= 0 && c.tree.run(path.run).corrupt) return false;
  const int32_t run_count = path.run >= 0 ? c.tree.run(path.run).count() : 0;
  const auto id_count = static_cast<int32_t>(tail.ids.size());
  if (find_partial({path.count, path.run, run_count}, tail.root, tail.ids, id_count).block >= 0) return false;
  c.drop_covered_tails(path, tail.root, tail.ids);
  const RadixNodeId id = c.tree.add(path.run, tail.root, {{}, {&tail.block, 1}, tail.ids});
  c.tree.run(id).use = c.first_use(path, static_cast<uint32_t>(tail.user));
  c.idle(id);
  return true;
}

void PrefixCache::discard(std::span<const Hash128> hashes, Hash128 root, std::span<const TokenId> ids) {
  Impl::Discard{*impl_}.chain(find(hashes), root, ids);
}

void PrefixCache::release(const LockedPrefix& path, bool drew) {
  for (RadixNodeId id = path.run; id >= 0;) {
    RadixNode& r = impl_->tree.run(id);
    const RadixNodeId before = r.parent;
    if (drew) r.trust = Impl::kTrust;
    impl_->drop(id);
    id = before;
  }
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
  return impl_->tree.block_count();
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

// ---------------------------------------------------------------- who holds what

// The back keeps its place among the leaves, which is by the idle time of its first block.
RadixNodeId PrefixCache::Impl::split(RadixNodeId id, int32_t count) {
  const bool listed = tree.run(id).listed;
  if (listed) unlist(id);
  const RadixNodeId front = tree.split(id, count);
  planned_count += tree.run(front).planned;
  tree.run(id).use.idle_since -= static_cast<uint64_t>(count);
  if (listed) list(id);
  return front;
}

void PrefixCache::Impl::take(RadixNodeId id, uint32_t user) {
  RadixNode& r = tree.run(id);
  const bool was_idle = r.references++ == 0;
  if (was_idle) {
    if (!r.is_tail()) value.record_hits(class_of(r.use), ages_of(r));
    pool->add_cached(-r.count());
  }
  if (r.listed) unlist(id);
  if (user != r.use.user) {
    r.use.user = user;
    r.use.shared = true;
  } else if (was_idle) {
    r.use.returning = true;
  }
  add_use(r.use, now - r.use.used_at);
  r.use.used_at = now;
}

void PrefixCache::Impl::drop(RadixNodeId id) {
  RadixNode& r = tree.run(id);
  TROUPE_CHECK(r.references > 0, "run " + std::to_string(id) + " is dropped without a reference");
  if (--r.references == 0) idle(id);
}

// The blocks of a run become idle from the last one to the first, a tick each; corrupt ones are freed.
void PrefixCache::Impl::idle(RadixNodeId id) {
  RadixNode& r = tree.run(id);
  if (r.corrupt) {
    pool->add_cached(r.count());
    cut(id, r.count());
    return;
  }
  now += static_cast<uint64_t>(r.count());
  r.use.idle_since = now;
  pool->add_cached(r.count());
  for (int lessons = value.tick(r.count()); lessons > 0; --lessons) learn();
  list_if_leaf(id);
}

// ---------------------------------------------------------------- what comes in

// The use of a block that comes behind a path for the first time.
RunUse PrefixCache::Impl::first_use(const LockedPrefix& path, uint32_t user) const {
  RunUse use;
  if (path.run >= 0) use = use_behind(tree.run(path.run).use);
  use.user = user;
  use.used_at = now;
  return use;
}

// A block that a returning session adds behind its own is as likely to be wanted again.
RunUse PrefixCache::Impl::use_behind(const RunUse& before) const {
  RunUse use;
  use.user = before.user;
  use.used_at = now;
  use.returning = before.returning && !before.shared;
  return use;
}

// A block that was evicted and is still remembered is not new.
void PrefixCache::Impl::recall(RunUse& use, const GhostList::Found& found) {
  const GhostEntry& known = *found.block;
  value.record_hits(class_of(known), {now - known.idle_since, static_cast<int32_t>(found.count)});
  const bool same_user = GhostList::is_same_user(known, use.user);
  use.returning = use.returning || known.returning || same_user;
  use.shared = known.shared || !same_user;
  use.interval = known.interval;
  use.use_count = static_cast<uint8_t>(known.use_count);
  add_use(use, now - known.idle_since);
}

bool PrefixCache::Impl::alike(const RunUse& a, const RunUse& b) const {
  return a.user == b.user && a.shared == b.shared && a.returning == b.returning && class_of(a) == class_of(b);
}

// Cached blocks take the place of the request's own, which are freed.
void PrefixCache::Impl::adopt(LockedPrefix& path, RadixNodeId known, const Blocks& blocks) {
  const auto begin = static_cast<size_t>(path.count);
  const auto own = blocks.blocks.subspan(begin);
  const size_t count = tree.common_count(tree.run(known), blocks.hashes.subspan(begin, own.size()));
  const auto taken = static_cast<int32_t>(count);
  const RadixNodeId id = taken < tree.run(known).count() ? split(known, taken) : known;
  take(id, static_cast<uint32_t>(blocks.user));
  for (size_t i = 0; i < count; ++i) {
    pool->release(own[i]);
    own[i] = tree.run(id).blocks[i];
  }
  path = {id, path.count + taken};
}

// Inserts blocks that are not cached, in rows of blocks that were used alike.
void PrefixCache::Impl::add(LockedPrefix& path, const Blocks& blocks) {
  ++change_count;
  const auto begin = static_cast<size_t>(path.count);
  const size_t end = blocks.blocks.size();
  if (!blocks.ids.empty()) drop_covered_tails(path, blocks.root, blocks.ids.subspan(begin * block_size));
  constexpr size_t kGroup = GhostList::kGroup;
  for (size_t i = begin / kGroup * kGroup; i < end; i += kGroup) evicted.prefetch(blocks.hashes[i]);
  RunUse use = first_use(path, static_cast<uint32_t>(blocks.user)), row;
  for (size_t at = begin; at < end;) {
    const auto found = evicted.take(blocks.hashes, at, end, now);
    if (found.block) recall(use, found);
    if (at > begin && !alike(row, use)) place(path, blocks, {row, at});
    if (at == static_cast<size_t>(path.count)) row = use;
    at += found.count;
    use = use_behind(use);
  }
  place(path, blocks, {row, end});
}

// Appends a row to the path's run where nothing else hangs on that run or ends there, else adds a run.
void PrefixCache::Impl::place(LockedPrefix& path, const Blocks& blocks, const Row& row) {
  const auto begin = static_cast<size_t>(path.count);
  const size_t count = row.end - begin;
  RadixTree::Blocks added{blocks.hashes.subspan(begin, count), blocks.blocks.subspan(begin, count), {}};
  if (!blocks.ids.empty()) added.ids = blocks.ids.subspan(begin * block_size, count * block_size);
  const RadixNode* last = path.run >= 0 ? &tree.run(path.run) : nullptr;
  Residency::Extent extent;
  const bool corrupt = last != nullptr && last->corrupt;  // then so is what is added
  if (residency != nullptr && blocks.each_itself && !corrupt) {
    extent = residency->cached_each(path.count, added.hashes);
  } else if (residency != nullptr && !corrupt) {
    extent = residency->cached({path.count, static_cast<int32_t>(count)}, blocks.kind, blocks.holder,
                               last != nullptr ? last->extent : Residency::Extent{});
  }
  if (last != nullptr && last->references == 1 && last->is_leaf() && last->extent == extent &&
      last->planned == blocks.planned && alike(last->use, row.use)) {
    tree.append(path.run, added);
  } else {
    path.run = tree.add(path.run, blocks.root, added);
    RadixNode& r = tree.run(path.run);
    r.references = 1;
    r.use = row.use;
    r.extent = extent;
    r.planned = blocks.planned;
    planned_count += r.planned;
  }
  path.count += static_cast<int32_t>(count);
}

// Removes tails whose ids are the beginning of `by`: the block that comes in their place holds them too.
void PrefixCache::Impl::drop_covered_tails(const LockedPrefix& path, Hash128 root,
                                           std::span<const TokenId> by) {
  if (by.empty()) return;  // no ids, no tails
  RadixNodeId child = tree.first_child_of(path.run, root);
  for (int i = 0; i < kCandidatesMax && child >= 0; ++i) {
    const RadixNodeId next = tree.run(child).next_sibling;
    if (tree.run(child).listed && is_covered_tail(tree, child, by)) cut(child, 1);
    child = next;
  }
}

}  // namespace troupe
