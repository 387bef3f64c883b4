#include "worker/schedule/decode_clock.h"

#include <algorithm>

namespace troupe {

namespace {

bool arrived_before(const ScheduledRequest* a, const ScheduledRequest* b) {
  return a->arrival_index < b->arrival_index;
}

}  // namespace

DecodeClock::DecodeClock(int32_t block_size) : due_(static_cast<size_t>(block_size)) {}

// From its zero_step on it ends a block at every multiple of the block size.
std::vector<ScheduledRequest*>& DecodeClock::slot(const ScheduledRequest& request) {
  const auto size = static_cast<int64_t>(due_.size());
  return due_[static_cast<size_t>((request.zero_step % size + size) % size)];
}

DecodeClock::End DecodeClock::end_of(ScheduledRequest& request) const {
  // At computed_count == prompt + max_new - 1 the last of them is known.
  return {request.zero_step + request.prompt_count + request.max_new_count - 1, &request};
}

void DecodeClock::join(ScheduledRequest& request) {
  request.on_clock = true;
  request.zero_step = step_ - request.computed_count;
  std::vector<ScheduledRequest*>& due = slot(request);
  due.insert(std::upper_bound(due.begin(), due.end(), &request, arrived_before), &request);
  ends_.insert(end_of(request));
  count_ += 1;
  computed_sum_ += request.computed_count;
}

void DecodeClock::leave(ScheduledRequest& request) {
  settle(request);
  std::vector<ScheduledRequest*>& due = slot(request);
  due.erase(std::lower_bound(due.begin(), due.end(), &request, arrived_before));
  ends_.erase(end_of(request));
  count_ -= 1;
  computed_sum_ -= request.computed_count;
  request.on_clock = false;
}

void DecodeClock::settle(ScheduledRequest& request) const {
  request.computed_count = static_cast<int32_t>(step_ - request.zero_step);
  request.known_count = request.computed_count + 1;
}

void DecodeClock::advance() {
  step_ += 1;
  computed_sum_ += count_;
  fetch_ahead();
}

// Between two things that happen to a request lie so many steps, of a fleet's other nodes too, that its
// memory is far away. What the next steps will look at is known, so it is on its way meanwhile: two steps
// before, the request; one step before, what it points to.
void DecodeClock::fetch_ahead() const {
  __builtin_prefetch(at_block_end_in(3).data());
  for (const ScheduledRequest* r : at_block_end_in(2)) __builtin_prefetch(r);
  for (const ScheduledRequest* r : at_block_end_in(1))
    __builtin_prefetch(r->blocks.data() + r->blocks.size());
  for (auto it = ends_.begin(); it != ends_.end() && it->step <= step_ + 2; ++it) {
    const ScheduledRequest& r = *it->request;
    if (it->step > step_ + 1) {
      const auto* const at = reinterpret_cast<const char*>(&r);
      for (size_t line = 0; line < sizeof r; line += 64) __builtin_prefetch(at + line);
      continue;
    }
    const auto known = static_cast<size_t>(step_ - r.zero_step) / due_.size();
    const auto cached = static_cast<size_t>(r.path.count);
    for (size_t i = cached; i < std::min(known + 1, r.block_hashes.size()); i += 4)
      __builtin_prefetch(&r.block_hashes[i]);
    __builtin_prefetch(r.blocks.data() + cached);
    __builtin_prefetch(r.blocks.data() + r.blocks.size());
  }
}

void DecodeClock::ended(std::vector<ScheduledRequest*>& out) const {
  for (auto it = ends_.begin(); it != ends_.end() && it->step <= step_; ++it) out.push_back(it->request);
}

}  // namespace troupe
