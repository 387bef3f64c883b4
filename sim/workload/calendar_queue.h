#pragma once

// Priority queue of the conversations' next turns. A fleet's conversations are far more than a heap can be
// walked through quickly, but most turns are due much later: those wait unordered, by the eighth of a second
// that they fall in, and are sorted when it begins.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "common/core/time.h"

namespace troupe::sim {

struct Due {
  Duration at{};
  uint64_t order = 0;  // breaks ties by age
  int32_t slot = 0;
  bool operator>(const Due& other) const { return at != other.at ? at > other.at : order > other.order; }
};

class CalendarQueue {
 public:
  bool empty() const { return soon_.empty(); }
  // The earliest item. REQUIRES: not empty.
  const Due& top() const { return soon_.back(); }
  // The count-th behind the top, if it is sorted already.
  const Due* behind_top(size_t count) const {
    return count < soon_.size() ? &soon_[soon_.size() - 1 - count] : nullptr;
  }
  void push(const Due& due) {
    const int64_t bucket = bucket_of(due);
    if (bucket < bucket_) put_off(bucket);
    if (bucket > bucket_) {
      later_[bucket].push_back(due);
    } else {
      soon_.insert(std::upper_bound(soon_.begin(), soon_.end(), due, std::greater<>()), due);
    }
    refill();
  }
  void pop() {
    soon_.pop_back();
    refill();
  }

 private:
  static int64_t bucket_of(const Due& due) { return due.at / std::chrono::milliseconds(125); }
  // In a nearly empty queue the next bucket may lie far ahead: earlier items must not pile up in its order.
  void put_off(int64_t until) {
    if (!soon_.empty()) later_[bucket_] = std::exchange(soon_, {});
    bucket_ = until;
  }
  void refill() {
    if (!soon_.empty() || later_.empty()) return;
    const auto next = later_.begin();
    bucket_ = next->first;
    soon_ = std::move(next->second);
    later_.erase(next);
    std::sort(soon_.begin(), soon_.end(), std::greater<>());
  }

  std::vector<Due> soon_;  // all of this bucket, the earliest last
  int64_t bucket_ = -1;
  absl::btree_map<int64_t, std::vector<Due>> later_;
};

}  // namespace troupe::sim
