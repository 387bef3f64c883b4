#pragma once

// A map from hash to value that keeps at most `capacity` keys and drops the least recently used one. It holds
// the gateway's sessions and sets, so client-supplied ids never grow them without bound, and no new id is
// refused.

#include <absl/container/flat_hash_map.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "common/core/block_hash.h"

namespace troupe::route {

// Not thread-safe. Pointers stay valid until the next touch().
template <typename V>
class LruMap {
 public:
  explicit LruMap(size_t capacity) : capacity_(capacity > 0 ? capacity : 1) {}

  size_t size() const { return index_.size(); }
  size_t capacity() const { return capacity_; }

  // Returns the value without counting it as a use; null when unknown.
  const V* find(const Hash128& key) const {
    const auto it = index_.find(key);
    return it == index_.end() ? nullptr : &slots_[it->second].value;
  }
  V* find(const Hash128& key) { return const_cast<V*>(std::as_const(*this).find(key)); }

  // Prefetches the memory of a coming look-up.
  void prefetch(const Hash128& key) const { index_.prefetch(key); }

  // Returns the value, created if absent, and makes it the most recently used.
  V& touch(const Hash128& key) {
    const auto it = index_.find(key);
    if (it != index_.end()) {
      unlink(it->second);
      push_front(it->second);
      return slots_[it->second].value;
    }
    const uint32_t slot = take_slot();
    slots_[slot].key = key;
    slots_[slot].value = V{};
    index_.emplace(key, slot);
    push_front(slot);
    return slots_[slot].value;
  }

  // Visits entries, most recently used first: visit(const Hash128&, V&).
  template <typename Visit>
  void for_each(Visit&& visit) {
    for (uint32_t slot = head_; slot != kNone; slot = slots_[slot].next)
      visit(slots_[slot].key, slots_[slot].value);
  }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Slot {
    Hash128 key;
    V value{};
    uint32_t prev = kNone;
    uint32_t next = kNone;
  };

  uint32_t take_slot() {
    if (slots_.size() < capacity_) {
      slots_.emplace_back();
      return static_cast<uint32_t>(slots_.size() - 1);
    }
    const uint32_t oldest = tail_;
    index_.erase(slots_[oldest].key);
    unlink(oldest);
    return oldest;
  }

  void unlink(uint32_t slot) {
    Slot& s = slots_[slot];
    (s.prev == kNone ? head_ : slots_[s.prev].next) = s.next;
    (s.next == kNone ? tail_ : slots_[s.next].prev) = s.prev;
    s.prev = s.next = kNone;
  }

  void push_front(uint32_t slot) {
    slots_[slot].next = head_;
    (head_ == kNone ? tail_ : slots_[head_].prev) = slot;
    head_ = slot;
  }

  size_t capacity_;
  std::vector<Slot> slots_;
  absl::flat_hash_map<Hash128, uint32_t> index_;
  uint32_t head_ = kNone;
  uint32_t tail_ = kNone;
};

}  // namespace troupe::route
