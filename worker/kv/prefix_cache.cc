#include "worker/kv/prefix_cache.h"

#include <algorithm>
#include <string>

#include "worker/kv/announcements.h"
#include "worker/kv/cached_conversations.h"
#include "worker/kv/discard.h"
#include "worker/kv/eviction.h"
#include "worker/kv/idle_leaves.h"
#include "worker/kv/insertion.h"
#include "worker/kv/lookup.h"
#include "worker/kv/pinning.h"
#include "worker/kv/radix_tree.h"
#include "worker/kv/run_holds.h"
#include "worker/kv/use_history.h"

namespace troupe {

// The parts, in an order in which each knows only earlier ones.
struct PrefixCache::Impl {
  Impl(BlockPool& p, int32_t size, Residency* r)
      : block_size(size),
        pool(p),
        residency(r),
        tree(p.total_count(), size),
        history(tree, p.total_count()),
        leaves(tree, history, p.total_count()),
        evictor(tree, p, r, history, leaves),
        holds(tree, p, history, leaves, evictor),
        pinning(tree, holds),
        insertion({tree, p, r, history, leaves, evictor, holds}, size),
        discard(tree, evictor, size) {}

  const int32_t block_size;  // tokens
  BlockPool& pool;
  Residency* const residency;
  RadixTree tree;
  UseHistory history;
  IdleLeaves leaves;
  Evictor evictor;
  RunHolds holds;
  Pinning pinning;
  Insertion insertion;
  Discard discard;
  Announcements announcements;
};

PrefixCache::PrefixCache(BlockPool* pool, int32_t block_size, Residency* residency)
    : impl_(std::make_unique<Impl>(*pool, block_size, residency)) {}
PrefixCache::~PrefixCache() = default;

PrefixCache::Match PrefixCache::find(std::span<const Hash128> hashes) const {
  return find_prefix(impl_->tree, hashes);
}

PartialMatch PrefixCache::find_partial(const Match& match, Hash128 root, std::span<const TokenId> ids,
                                       int32_t count_min) const {
  return find_partial_block(impl_->tree, match, root, ids, count_min);
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

LockedPrefix PrefixCache::hold(const Match& match, uint64_t user, std::vector<BlockId>& out) {
  return impl_->holds.hold(match, user, out);
}

RadixNodeId PrefixCache::hold_partial(const PartialMatch& partial, uint64_t user) {
  const RadixNodeId run = impl_->holds.whole_run(partial);
  impl_->holds.take(run, static_cast<uint32_t>(user));
  return run;
}

void PrefixCache::drop(RadixNodeId run) {
  impl_->holds.drop(run);
}

void PrefixCache::insert(LockedPrefix& path, const Blocks& blocks) {
  impl_->insertion.insert(path, blocks);
}

bool PrefixCache::insert_tail(const LockedPrefix& path, const Tail& tail) {
  return impl_->insertion.insert_tail(path, tail);
}

void PrefixCache::discard(std::span<const Hash128> hashes, Hash128 root, std::span<const TokenId> ids) {
  impl_->discard.chain(find(hashes), root, ids);
}

void PrefixCache::release(const LockedPrefix& path, bool drew) {
  impl_->holds.release(path, drew);
}

void PrefixCache::fetch_ahead(const LockedPrefix& path) const {
  if (path.run >= 0) impl_->tree.prefetch(path.run);
}

void PrefixCache::set_planned(const LockedPrefix& path, int32_t count, bool planned) {
  impl_->leaves.set_planned(path, count, planned);
}

int32_t PrefixCache::evict(int32_t count) {
  return impl_->evictor.evict(count);
}

PrefixCache::Pin PrefixCache::pin(const Match& match, const PartialMatch& partial) {
  return impl_->pinning.pin(match, partial);
}

void PrefixCache::unpin(const Pin& pin) {
  impl_->pinning.unpin(pin);
}

int32_t PrefixCache::pinned_count() const {
  return impl_->pinning.pinned_count();
}

int32_t PrefixCache::pinned_count(const Match& match) const {
  return impl_->pinning.pinned_count(match);
}

void PrefixCache::announce(Hash128 hash, RequestId owner) {
  impl_->announcements.announce(hash, owner);
}

void PrefixCache::withdraw(Hash128 hash, RequestId owner) {
  impl_->announcements.withdraw(hash, owner);
}

bool PrefixCache::is_announced_by_other(Hash128 hash, RequestId self) const {
  return impl_->announcements.is_announced_by_other(hash, self);
}

std::vector<Conversation> PrefixCache::conversations(size_t max_count) const {
  return CachedConversations(impl_->tree, impl_->residency, impl_->block_size).list(max_count);
}

std::optional<Conversation> PrefixCache::conversation(const Hash128& session) const {
  return CachedConversations(impl_->tree, impl_->residency, impl_->block_size).find(session);
}

int32_t PrefixCache::size() const {
  return impl_->tree.block_count();
}

int32_t PrefixCache::announced_count() const {
  return impl_->announcements.count();
}

uint64_t PrefixCache::change_count() const {
  return impl_->insertion.add_count() + impl_->announcements.withdrawal_count();
}

const PrefixCache::Counts& PrefixCache::counts() const {
  return impl_->evictor.counts();
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

Status PrefixCache::verify(const Holds& holds, BlockSet& in_cache) const {
  const RadixTree& tree = impl_->tree;
  TROUPE_RETURN_IF_ERROR(tree.verify());
  TROUPE_RETURN_IF_ERROR(impl_->leaves.verify(impl_->pool.cached_count()));
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
      return absl::InternalError("run " + std::to_string(id) + " has a pin without a holder");
    }
    pinned += pins_here > 0 ? tree.run(id).count() : 0;
    for (const BlockId block : tree.run(id).blocks) {
      if (!in_cache.insert(block) || impl_->pool.is_free(block)) {
        return absl::InternalError("block " + std::to_string(block) + " is cached twice, or cached and free");
      }
    }
  }
  if (pinned == impl_->pinning.pinned_count()) return absl::OkStatus();
  return absl::InternalError("the pinned blocks have lost count");
}

}  // namespace troupe
