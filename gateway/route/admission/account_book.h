#pragma once

// The accounts of end users, the most recent ones: a bounded number, whatever names clients make up. One that
// is forgotten begins anew, so who sends more names than the bound within a window evades limits by window of
// each: the limits of their key hold all of them. Where gateways share a store nothing is lost but the slice
// that was not used yet. One with requests on their way is never forgotten.
//
// Not thread-safe.

#include <absl/container/flat_hash_map.h>

#include <list>

#include "common/core/block_hash.h"
#include "gateway/route/admission/account.h"

namespace troupe::route {

class AccountBook {
 public:
  // REQUIRES: accounts_max > 0.
  explicit AccountBook(size_t accounts_max) : accounts_max_(accounts_max) {}

  // The account of this name, made where there is none; it stays valid while requests of it run, or until the
  // next call.
  Account& use(const Hash128& id);
  // null: there is none.
  Account* find(const Hash128& id);
  void change(size_t accounts_max) { accounts_max_ = accounts_max; }
  size_t size() const { return accounts_.size(); }
  uint64_t forgotten() const { return forgotten_; }

 private:
  struct Entry {
    Hash128 id;
    Account account;
  };
  using Entries = std::list<Entry>;  // the most recent one first
  size_t accounts_max_;
  Entries entries_;
  absl::flat_hash_map<Hash128, Entries::iterator> accounts_;
  uint64_t forgotten_ = 0;
};

}  // namespace troupe::route
