#pragma once

// Residency: which sets and sessions this node holds and how many of their leading tokens, taken from the
// prefix cache itself so that a router need not guess. Blocks up to the end of the persona prefix belong to
// the set, later ones to the session; a block that several share belongs to the one that cached it first.
// Because the cache evicts leaves only, a holder's deepest block says it all: everything before it is cached.
//
// A conversation may branch (an answer swiped away, old turns dropped): its tokens are those of the branch
// that grew last, for that is what its next turn continues. A generation distinguishes branches: it
// starts anew whenever a block is cached that does not lie deeper than the last one.
//
// A set may find its prefix cached for another holder: the set was learned anew (a gateway's first guess at
// what a persona is gave way to a better one), or the prefix came with a request that named no set. A set
// that has found all of its prefix is resident as long as the last block of it is.
//
// Changes are coalesced: a holder that grew by nine blocks since take_changes() is one change. Blocks come
// and go in rows; the cache keeps an Extent with each row. Memory: one entry a holder, so never more than the
// blocks there are. Pure; not thread-safe.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/core/block_hash.h"
#include "common/core/holder_kind.h"
#include "worker/kv/block_set.h"
#include "worker/kv/types.h"

namespace troupe {

// The tokens of a set or session that are resident now; 0: none any more.
struct Resident {
  HolderKind kind = HolderKind::kSet;
  Hash128 name;
  int64_t tokens = 0;
  bool grew = false;    // in a change: since the last take_changes(); else it shrank
  bool pinned = false;  // of a set: some of it is not evicted, whatever comes
};

class Residency {
 public:
  Residency(int32_t block_size, int32_t block_count);

  // Blocks of a prompt that follow one another, by the index of the first (from 0).
  struct Range {
    int32_t index = 0;
    int32_t count = 0;
  };
  // The holder that blocks belong to, and the branch of its conversation.
  struct Extent {
    int32_t holder = -1;  // below zero: none
    uint32_t generation = 0;
    bool operator==(const Extent&) const = default;
  };
  // These blocks are cached now and belong to this set or session; with a zero name they belong to none and
  // are not published. `before`: the extent of the block before them; its holder is often the same and then
  // needs no look-up.
  Extent cached(Range range, HolderKind kind, Hash128 name, Extent before);
  Extent cached(Range range, HolderKind kind, Hash128 name) { return cached(range, kind, name, Extent()); }
  // In a simulation: the same, with each block a session under its own name.
  Extent cached_each(int32_t index, std::span<const Hash128> names);
  // Evicted blocks; those behind them are gone already. `names`: those given to cached_each().
  struct Gone {
    Extent extent;
    int32_t index = 0;
    std::span<const BlockId> blocks;
    std::span<const Hash128> names;
  };
  void evicted(const Gone& gone);
  // A request of `set` found its whole prefix cached, for whatever holder; `block` is the last block of the
  // prefix, at `index`.
  void found(BlockId block, int32_t index, Hash128 set);

  // The holder of blocks that were cached with this extent and still are. None: they belong to no holder, or
  // each to its own.
  struct Owner {
    HolderKind kind = HolderKind::kSet;
    Hash128 name;
  };
  std::optional<Owner> owner(Extent extent) const {
    if (extent.holder < 0) return std::nullopt;
    const Key& key = holders_[static_cast<size_t>(extent.holder)].key;
    return Owner{key.kind, key.name};
  }

  // Prefetches the memory that found() and cached() read first.
  void prefetch(HolderKind kind, Hash128 name) const { by_name_.prefetch(Key{kind, name}); }

  // A set's blocks have `more` pins more, or fewer if negative; a zero name is ignored.
  void pinned(Hash128 set, int32_t more);

  // Appends what changed since the last call, each holder once, in the order of the first change.
  void take_changes(std::vector<Resident>& out);
  bool has_changes() const { return !changed_.empty(); }
  // Appends all that is resident, sets first.
  void snapshot(std::vector<Resident>& out) const;
  int64_t tokens(HolderKind kind, Hash128 name) const;
  int32_t set_count() const { return set_count_; }
  int32_t session_count() const { return static_cast<int32_t>(by_name_.size()) - set_count_; }

 private:
  static constexpr int32_t kNone = -1;
  static constexpr int32_t kEach = -2;
  struct Key {
    HolderKind kind;
    Hash128 name;
    bool operator==(const Key&) const = default;
    template <typename H>
    friend H AbslHashValue(H state, const Key& key) {
      return H::combine(std::move(state), key.kind, key.name);
    }
  };
  struct Holder {
    Key key{};
    int32_t tip = -1;            // index of the deepest block of the branch that grew last; -1: nothing
    int32_t branch_begin = 0;    // index of that branch's first block
    uint32_t generation = 0;     // of that branch
    int32_t block_count = 0;     // of all branches
    int32_t published_tip = -1;  // at the last take_changes()
    bool changed = false;        // in changed_
    // For a set that found its prefix: its last block, that block's index, and the other sets that found it.
    BlockId found_block = -1;
    int32_t found_tip = -1;
    int32_t previous_finder = kNone, next_finder = kNone;
    int32_t pins = 0;
    bool published_pinned = false;

    int32_t deepest() const { return std::max(tip, found_tip); }
  };
  int64_t tokens_of(int32_t tip) const { return (int64_t{tip} + 1) * block_size_; }
  int32_t find_or_add(const Key& key);
  void mark_changed(int32_t holder);
  void drop_if_empty(int32_t holder);
  void forget_found(int32_t holder);
  void set_first_finder(BlockId block, int32_t holder);
  void evicted_of(Extent extent, Range range);

  const int32_t block_size_;
  const size_t blocks_max_;
  // Blocks found by a set that did not cache them, and the first such set of each. They are few, but every
  // evicted block is looked up.
  BlockSet found_blocks_;
  absl::flat_hash_map<BlockId, int32_t> first_finders_;
  std::vector<Holder> holders_;
  std::vector<int32_t> free_holders_;
  absl::flat_hash_map<Key, int32_t> by_name_;
  std::vector<int32_t> changed_;
  int32_t set_count_ = 0;
  size_t finder_count_ = 0;  // never more than blocks
};

}  // namespace troupe
