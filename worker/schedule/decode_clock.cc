#include "worker/schedule/decode_clock.h"

namespace troupe {

DecodeClock::DecodeClock(int32_t block_size) : at_block_end_(static_cast<size_t>(block_size)) {}

DecodeClock::End DecodeClock::end_of(ScheduledRequest& request) const {
  // At computed_count == prompt + max_new - 1 the last of them is known.
  return {request.zero_step + request.prompt_count + request.max_new_count - 1, request.arrival_index,
          request.id, &request};
}

// From its zero_step on it ends a block at every multiple of the block size.
void DecodeClock::join(ScheduledRequest& request) {
  request.on_clock = true;
  request.zero_step = step_ - request.computed_count;
  at_block_end_[slot_of(request.zero_step)] += 1;
  ends_.insert(end_of(request));
  count_ += 1;
  computed_sum_ += request.computed_count;
}

void DecodeClock::leave(ScheduledRequest& request) {
  settle(request);
  at_block_end_[slot_of(request.zero_step)] -= 1;
  ends_.erase(end_of(request));
  count_ -= 1;
  computed_sum_ -= request.computed_count;
  request.on_clock = false;
}

void DecodeClock::settle(ScheduledRequest& request) const {
  request.computed_count = static_cast<int32_t>(step_ - request.zero_step);
  request.known_count = request.computed_count + 1;
}

int64_t DecodeClock::at_block_end_within(int64_t steps) const {
  const auto size = static_cast<int64_t>(at_block_end_.size());
  int64_t sum = steps / size * count_;
  for (int64_t step = steps % size; step > 0; --step) sum += at_block_end_[slot_of(step_ + step)];
  return sum;
}

void DecodeClock::advance(int64_t steps) {
  step_ += steps;
  computed_sum_ += steps * count_;
}

RequestId DecodeClock::fetch_ahead() const {
  if (ends_.empty()) return 0;
  const End& next = *ends_.begin();
  const auto* const at = reinterpret_cast<const char*>(next.request);
  for (size_t line = 0; line < sizeof(ScheduledRequest); line += 64) __builtin_prefetch(at + line);
  return next.id;
}

void DecodeClock::ended(std::vector<ScheduledRequest*>& out) const {
  for (auto it = ends_.begin(); it != ends_.end() && it->step <= step_; ++it) out.push_back(it->request);
}

}  // namespace troupe
