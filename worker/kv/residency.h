#pragma once

// Which sets and sessions this node holds, and how many of their leading tokens: what a router wants to know,
// told from the real prefix cache instead of guessed. Blocks up to the end of the persona prefix belong to
// the set, later ones to the session; a block that several share belongs to whoever cached it first. Because
// the cache evicts leaves only, a holder's deepest block says it all: everything before it is there too.
//
// A conversation may branch (an answer swiped away, old turns dropped): its tokens are those of the branch
// that grew last, for that is what its next turn continues. Branches are told apart by a generation that
// starts anew whenever a block is cached that does not lie deeper than the last one.
//
// A set may find its prefix under other names: it was learned anew (a gateway's first guess at what a persona
// is gave way to a better one), or the prefix came with a request that named none. A set that has found all
// of its prefix is told to be there as long as the last block of it is.
//
// Changes are coalesced: a holder that grew by nine blocks since take_changes() is one change. Blocks come
// and go in rows; whoever keeps a row keeps its Extent, too. Memory: one entry a holder, so never more than
// the blocks there are. Pure; not thread-safe.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/core/block_hash.h"
#include "worker/kv/block_set.h"
#include "worker/kv/types.h"

namespace troupe {

enum class HolderKind : uint8_t { kSet, kSession };

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

  // Blocks are told by the place of the first in their prompt (from 0); they follow one another.
  struct Range {
    int32_t index = 0;
    int32_t count = 0;
  };
  // Of which branch of which holder blocks are.
  struct Extent {
    int32_t holder = -1;  // nobody
    uint32_t generation = 0;
    bool operator==(const Extent&) const = default;
  };
  // They are cached now and belong to this set or session; a zero name is nobody's and not told of. `before`:
  // of the block before them, which is cached; for it is often of the same holder, who then is found at once.
  Extent cached(Range range, HolderKind kind, Hash128 name, Extent before);
  Extent cached(Range range, HolderKind kind, Hash128 name) { return cached(range, kind, name, Extent()); }
  // The same, each told of as a session under its own name.
  Extent cached_each(int32_t index, std::span<const Hash128> names);
  // Blocks that go, those behind them being gone. `names`: those of cached_each().
  struct Gone {
    Extent extent;
    int32_t index = 0;
    std::span<const BlockId> blocks;
    std::span<const Hash128> names;
  };
  void evicted(const Gone& gone);
  // A request of `set` found its whole prefix cached, whoever holds it; `block` is the index-th and last of
  // it.
  void found(BlockId block, int32_t index, Hash128 set);

  // Whose blocks are that were cached with this extent, and still are; nobody's, or each its own: none.
  struct Owner {
    HolderKind kind = HolderKind::kSet;
    Hash128 name;
  };
  std::optional<Owner> owner(Extent extent) const {
    if (extent.holder < 0) return std::nullopt;
    const Key& key = holders_[static_cast<size_t>(extent.holder)].key;
    return Owner{key.kind, key.name};
  }

  // Fetches the memory that found() and cached() will look at first.
  void prefetch(HolderKind kind, Hash128 name) const { by_name_.prefetch(Key{kind, name}); }

  // So many more pins of a set's blocks, or fewer; a zero name is not told of.
  void pinned(Hash128 set, int32_t more);

  // What changed since the last call, each holder once, in the order of the first change. Appends.
  void take_changes(std::vector<Resident>& out);
  bool has_changes() const { return !changed_.empty(); }
  // All that is resident, sets first. Appends.
  void snapshot(std::vector<Resident>& out) const;
  int64_t tokens(HolderKind kind, Hash128 name) const;
  int32_t set_count() const { return set_count_; }
  int32_t session_count() const { return static_cast<int32_t>(by_name_.size()) - set_count_; }

 private:
  static constexpr int32_t kNobody = -1;
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
    int32_t tip = -1;          // index of the deepest block of the branch that grew last; -1: nothing
    int32_t branch_begin = 0;  // index of that branch's first block
    uint32_t generation = 0;   // of that branch
    int32_t block_count = 0;   // of all branches
    int32_t told_tip = -1;     // at the last take_changes()
    bool changed = false;      // in changed_
    // Of a set that found its prefix: the last block of it, that block's index, and the others that found it.
    BlockId found_block = -1;
    int32_t found_tip = -1;
    int32_t previous_finder = kNobody, next_finder = kNobody;
    int32_t pins = 0;
    bool told_pinned = false;

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
  // Few blocks were found by others than who cached them, but every one that goes is asked about: which have
  // finders, and who is the first one's.
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
