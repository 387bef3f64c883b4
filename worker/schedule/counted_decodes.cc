#include "worker/schedule/counted_decodes.h"

namespace troupe {

CountedDecodes::CountedDecodes(int32_t block_size, BlockTables* tables)
    : tables_(tables), at_block_end_(static_cast<size_t>(block_size)) {}

CountedDecodes::End CountedDecodes::end_of(ScheduledRequest& request) const {
  // At computed_count == prompt + max_new - 1 the last of its tokens is known.
  return {request.zero_step + request.prompt_count + request.max_new_count - 1, request.arrival_index,
          request.id, &request};
}

// From its zero_step on it ends a block at every multiple of the block size.
void CountedDecodes::join(ScheduledRequest& request) {
  request.zero_step = step_ - request.computed_count;
  at_block_end_[slot_of(request.zero_step)] += 1;
  ends_.insert(end_of(request));
  count_ += 1;
  computed_sum_ += request.computed_count;
}

void CountedDecodes::leave(ScheduledRequest& request) {
  materialize(request);
  at_block_end_[slot_of(request.zero_step)] -= 1;
  ends_.erase(end_of(request));
  count_ -= 1;
  computed_sum_ -= request.computed_count;
  request.zero_step = ScheduledRequest::kNotCounted;
  tables_->materialize(request);
  if (reserved_count_ <= at_block_end()) return;
  // A step failed for which it had got another block already.
  tables_->unreserve_block();
  reserved_count_ -= 1;
}

void CountedDecodes::materialize(ScheduledRequest& request) const {
  request.computed_count = static_cast<int32_t>(step_ - request.zero_step);
  request.known_count = request.computed_count + 1;
}

bool CountedDecodes::reserve_blocks() {
  while (reserved_count_ < at_block_end()) {
    if (!tables_->reserve_block()) return false;
    reserved_count_ += 1;
  }
  return true;
}

void CountedDecodes::advance(std::vector<ScheduledRequest*>& ended) {
  go_on(1);
  reserved_count_ = 0;
  for (auto it = ends_.begin(); it != ends_.end() && it->step <= step_; ++it) ended.push_back(it->request);
}

int64_t CountedDecodes::at_block_end_within(int64_t steps) const {
  const auto size = static_cast<int64_t>(at_block_end_.size());
  int64_t sum = steps / size * count_;
  for (int64_t step = steps % size; step > 0; --step) sum += at_block_end_[slot_of(step_ + step)];
  return sum;
}

int64_t CountedDecodes::uneventful_steps() const {
  const int64_t most = ends_.begin()->step - step_ - 1;
  const int64_t free_count = tables_->pool().free_count();
  if (at_block_end_within(most) <= free_count) return most;
  int64_t steps = 0;
  while (at_block_end_within(steps + 1) <= free_count) ++steps;
  return steps;
}

void CountedDecodes::pass(int64_t steps) {
  tables_->reserve_free_blocks(static_cast<int32_t>(at_block_end_within(steps)));
  go_on(steps);
  reserved_count_ = at_block_end();
}

RequestId CountedDecodes::fetch_ahead() const {
  if (ends_.empty()) return 0;
  const End& next = *ends_.begin();
  const auto* const at = reinterpret_cast<const char*>(next.request);
  for (size_t line = 0; line < sizeof(ScheduledRequest); line += 64) __builtin_prefetch(at + line);
  return next.id;
}

}  // namespace troupe
