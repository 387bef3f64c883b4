#include "worker/schedule/set_work.h"

#include <algorithm>

namespace troupe {

SetWork::SetWork(int32_t sets_max) : sets_max_(static_cast<size_t>(sets_max)) {}

size_t SetWork::place_for(Hash128 set) {
  const auto [it, added] = places_.try_emplace(set, totals_.size());
  if (!added) return it->second;
  if (totals_.size() < sets_max_) {
    totals_.push_back({.set = set});
    used_at_.push_back(0);
    return it->second;
  }
  const auto oldest = std::min_element(used_at_.begin(), used_at_.end());
  const auto place = static_cast<size_t>(oldest - used_at_.begin());
  it->second = place;
  places_.erase(totals_[place].set);
  totals_[place] = {.set = set};
  return place;
}

void SetWork::add(Hash128 set, int32_t prefix_count, int64_t tokens) {
  if (set.is_zero() || sets_max_ == 0) return;
  const size_t place = place_for(set);
  totals_[place].work_tokens_total += tokens;
  if (prefix_count > 0) totals_[place].prefix_count = prefix_count;
  used_at_[place] = ++add_count_;
}

}  // namespace troupe
