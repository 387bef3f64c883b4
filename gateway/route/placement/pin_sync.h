#pragma once

// Pins that several gateways share in a store (etcd): which are to be written there, on which revision of
// theirs, and which of its news are to be taken. A pin's own state is the registry's (pin_registry.h); here
// are only its names and revisions.
//
// - A write names the revision of the pin that it follows (none: the pin must not be there), and the store
//   refuses it where another gateway wrote meanwhile. Then, as with news of a pin that waits:
//   a pin that a client made here is written again, on top of theirs: the client has the answer that it is
//   kept; one that a client removed here is removed even so, but not where the store was away since and
//   another gateway made it anew; of where it is held (PinChange::kPlaced) the store knows better.
// - A pin that ends here while it waits is not removed there: another gateway may have made it last longer.
//   It is read instead.
// - News of a pin whose write is under way wait for the answer, which says whether they are its echo.
// - A complete look: a pin of here that the store has not was removed elsewhere. A store of another name, or
//   whose revision has gone back, is another one: all pins of here are written to it, where it has none.
// - Nothing waits that the store need not know: a pin that comes and goes while the store is away is
//   forgotten.
//
// Sans-io; not thread-safe.

#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/core/block_hash.h"
#include "gateway/route/placement/pin_registry.h"

namespace troupe::route {

class PinSync {
 public:
  // A key of the store.
  struct Entry {
    Hash128 id;
    int64_t revision = 0;          // of its last change; where it is absent, of the answer that says so
    bool deleted = false;          // or absent
    bool written_by_self = false;  // written by this gateway
  };
  // An answer's name of the store, and its revision.
  struct Store {
    std::string cluster;  // empty: unknown
    int64_t revision = 0;
  };

  // The registry's on_change.
  void changed(const Hash128& id, PinChange change);
  bool waits() const { return !waiting_.empty(); }

  // The change that has waited longest; it is under way until done(), refused() or failed(). kExpired: the
  // pin is to be read, and the answer goes to refused(). nullopt: none.
  struct Write {
    Hash128 id;
    PinChange change = PinChange::kMade;
    int64_t revision = 0;  // that the store must still have; 0: the pin must not be there
  };
  std::optional<Write> begin_write();
  bool is_under_way() const { return under_way_.has_value(); }
  // May the answer to the write be of the store that was looked at last?
  bool is_same(const Store& store) const;
  void done(int64_t revision);
  // The store has `now` instead. True: the registry is to take that.
  bool refused(const Entry& now);
  void failed();   // perhaps it was done: it waits again
  void give_up();  // it cannot be written

  // Older than what is known; recorded here, and not for the registry; for the registry.
  enum class ApplyResult { kStale, kRecorded, kApplied };
  // News, in the store's order, and what was fetched.
  ApplyResult observe(const Entry& entry);
  // All news up to this revision have come.
  void passed(int64_t revision);

  // All that the store has. `here`: the registry's that may be shared.
  struct Reconciliation {
    std::vector<Hash128> fetch;  // theirs are new
    std::vector<Hash128> gone;   // removed elsewhere
    bool replaced = false;       // it is another store than before
  };
  void begin_reconcile() { asked_at_ = revision_; }
  Reconciliation reconcile(const Store& store, std::span<const Entry> all, std::span<const Hash128> here);
  bool known(const Hash128& id) const { return known_.contains(id); }  // to be in the store

 private:
  struct Waiting {
    PinChange change = PinChange::kMade;
    int64_t base = 0;   // revision known when it changed
    bool late = false;  // a try to write it failed
  };
  struct UnderWay {
    Hash128 id;
    Waiting what;
    int64_t from = 0;           // revision_ when it began
    bool void_answer = false;   // the store was replaced
    std::optional<Entry> news;  // the last that came meanwhile
  };
  static bool yields(const Waiting& waiting, const Entry& to);
  const Waiting* find_waiting(const Hash128& id) const;
  bool is_under_way(const Hash128& id) const { return under_way_ && under_way_->id == id; }
  int64_t revision_of(const Hash128& id) const;
  void note(const Entry& entry);
  void wait(const Hash128& id, PinChange change);
  void wait_again(const UnderWay& write);
  void forget(const Hash128& id);
  void start_anew(const Store& store, std::span<const Hash128> here);
  void compare_with(const Entry& entry, Reconciliation& differences);

  std::deque<Hash128> waiting_;  // in order
  absl::flat_hash_map<Hash128, Waiting> waits_;
  std::optional<UnderWay> under_way_;
  absl::flat_hash_map<Hash128, int64_t> known_;  // its revision in the store
  absl::flat_hash_map<Hash128, int64_t> gone_;   // absent there at this revision; older news may come yet
  absl::flat_hash_set<Hash128> tried_;           // written, perhaps, and without news since
  std::string cluster_;
  int64_t revision_ = 0;  // the newest of the store that has come
  int64_t asked_at_ = 0;
  bool reconciled_ = false;  // before, any removal may be of what the store has
};

}  // namespace troupe::route
