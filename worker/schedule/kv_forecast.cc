#include "worker/schedule/kv_forecast.h"

#include <algorithm>

namespace troupe {

// Tokens wanted `time` steps from now beyond what is held now, when requests_[index, end) still run then.
// A block is taken whole: half of one more for each.
int64_t KvForecast::demand_at(int32_t time, size_t index) const {
  const auto running = static_cast<int64_t>(requests_.size() - index);
  const int64_t room = index < requests_.size() ? requests_[index].room_after : 0;
  const int64_t given_back =
      index == 0 ? 0 : requests_[index - 1].own_before + requests_[index - 1].request.own_count;
  return running * (int64_t{time} + block_size_ / 2) - room - given_back;
}

void KvForecast::reset(std::span<const Request> running) {
  requests_.clear();
  for (const Request& request : running) requests_.push_back({request, 0, 0, 0});
  // Equal ones may come in any order: their sums are the same.
  std::sort(requests_.begin(), requests_.end(), [](const Entry& a, const Entry& b) {
    return a.request.remaining_count < b.request.remaining_count;
  });
  update();
}

void KvForecast::add(const Request& request) {
  const auto at =
      std::upper_bound(requests_.begin(), requests_.end(), request.remaining_count,
                       [](int32_t time, const Entry& e) { return time < e.request.remaining_count; });
  requests_.insert(at, Entry{request, 0, 0, 0});
  update();
}

void KvForecast::update() {
  int64_t room = 0, own = 0, peak = 0;
  for (size_t i = requests_.size(); i-- > 0;) {
    room += requests_[i].request.room_count;
    requests_[i].room_after = room;
  }
  for (size_t i = 0; i < requests_.size(); ++i) {
    Entry& entry = requests_[i];
    entry.own_before = own;
    own += entry.request.own_count;
    const int32_t time = entry.request.remaining_count;
    peak = std::max(peak, demand_at(time, i) + time);
    entry.peak = peak;
  }
}

int32_t KvForecast::reserve_count(const Request& newcomer) const {
  const int32_t end = newcomer.remaining_count;
  const auto at = std::lower_bound(requests_.begin(), requests_.end(), end, [](const Entry& e, int32_t time) {
    return e.request.remaining_count < time;
  });
  const auto index = static_cast<size_t>(at - requests_.begin());
  int64_t peak = demand_at(end, index) + end;
  if (index > 0) peak = std::max(peak, requests_[index - 1].peak);
  peak += block_size_ / 2 - newcomer.room_count;
  return static_cast<int32_t>(std::max<int64_t>(0, (peak + block_size_ - 1) / block_size_));
}

}  // namespace troupe
