#pragma once

// Pins that several gateways share in a store (etcd): which are to be written there, and which of its news
// are to be taken. A pin's own state is the book's (pin_book.h); here are only its names and revisions.
//
// - A change that is made here waits until it is written, and until then news of the same pin are none: it
//   comes after them. Whoever writes last has the last word, and the store's order is everybody's.
// - A complete look: a pin of here that the store has not was removed elsewhere. A store whose revision
//   has gone back is another one (it was replaced, or restored): all pins of here are written again.
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
#include <vector>

#include "common/core/block_hash.h"

namespace troupe::route {

class PinSync {
 public:
  // A key of the store.
  struct Entry {
    Hash128 id;
    int64_t revision = 0;  // of its last change
    bool deleted = false;
  };

  // Here the pin was made, changed or removed.
  void changed(const Hash128& id, bool present);
  bool waits() const { return !waiting_.empty(); }
  // The change that has waited longest; it is under way until end_write(). nullopt: none.
  std::optional<Hash128> begin_write();
  void end_write(bool done);  // not done: it waits again, unless it changes meanwhile

  // News, in the store's order. True: the book is to take them.
  bool heard(const Entry& entry);
  // All that the store has, at `revision`. `here`: the book's that may be shared.
  struct Look {
    std::vector<Hash128> fetch;  // theirs are new
    std::vector<Hash128> gone;   // removed elsewhere
  };
  Look look(int64_t revision, std::span<const Entry> all, std::span<const Hash128> here);
  bool known(const Hash128& id) const { return known_.contains(id); }  // to be in the store

 private:
  bool is_waiting(const Hash128& id) const { return waits_.contains(id); }
  void wait(const Hash128& id);

  std::deque<Hash128> waiting_;  // in order
  absl::flat_hash_set<Hash128> waits_;
  std::optional<Hash128> writes_;
  absl::flat_hash_map<Hash128, int64_t> known_;  // its revision in the store
  absl::flat_hash_set<Hash128> tried_;           // written, perhaps, and not heard of since
  int64_t revision_ = 0;
  bool looked_ = false;  // before, any removal may be of what the store has
};

}  // namespace troupe::route
