#pragma once

// Blocks in the making, by hash: PrefixCache's functions of these names. Pure; not thread-safe.

#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "common/core/block_hash.h"
#include "worker/kv/types.h"

namespace troupe {

class Announcements {
 public:
  void announce(Hash128 hash, RequestId owner) { owners_.try_emplace(hash, owner); }
  void withdraw(Hash128 hash, RequestId owner) {
    const auto it = owners_.find(hash);
    if (it == owners_.end() || it->second != owner) return;
    owners_.erase(it);
    ++withdrawal_count_;
  }
  bool is_announced_by_other(Hash128 hash, RequestId self) const {
    const auto it = owners_.find(hash);
    return it != owners_.end() && it->second != self;
  }
  int32_t count() const { return static_cast<int32_t>(owners_.size()); }
  // Grows whenever an announced block is so no more.
  uint64_t withdrawal_count() const { return withdrawal_count_; }

 private:
  absl::flat_hash_map<Hash128, RequestId> owners_;
  uint64_t withdrawal_count_ = 0;
};

}  // namespace troupe
