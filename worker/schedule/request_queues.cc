#include "worker/schedule/request_queues.h"

#include <algorithm>
#include <string>
#include <utility>

namespace troupe {

namespace {

using Queue = RequestQueues::Queue;

bool arrived_before(const ScheduledRequest* a, const ScheduledRequest* b) {
  return a->arrival_index < b->arrival_index;
}

void insert_by_arrival(Queue& queue, ScheduledRequest* request) {
  queue.insert(std::upper_bound(queue.begin(), queue.end(), request, arrived_before), request);
}

void erase_by_arrival(Queue& queue, ScheduledRequest* request) {
  queue.erase(std::lower_bound(queue.begin(), queue.end(), request, arrived_before));
}

Status check_order(const Queue& queue) {
  if (std::is_sorted(queue.begin(), queue.end(), arrived_before)) return absl::OkStatus();
  return absl::InternalError("a queue is not in order of arrival");
}

}  // namespace

RequestQueues::RequestQueues(const SchedulerConfig* config, BlockTables* tables, CountedDecodes* counted)
    : config_(config), tables_(tables), counted_(counted) {}

size_t RequestQueues::running_limit() const {
  return static_cast<size_t>(std::min(config_->max_num_seqs, config_->max_num_batched_tokens));
}

RequestQueues::Request* RequestQueues::find(RequestId id) const {
  const auto found = requests_.find(id);
  return found == requests_.end() ? nullptr : found->second.get();
}

RequestQueues::Request& RequestQueues::add(std::unique_ptr<Request> owned) {
  Request& request = *owned;
  request.arrival_index = next_arrival_index_++ | (request.spec.background ? kBackgroundArrival : 0);
  requests_.emplace(request.id, std::move(owned));
  if (background_count_ == 0) {
    waiting_.push_back(&request);
  } else {
    insert_by_arrival(waiting_, &request);
  }
  background_count_ += request.spec.background;
  return request;
}

void RequestQueues::lookup(Request& request) {
  tables_->lookup(request);
  set_pending(request, request.known_count - tables_->lookup_cached_count(request));
}

void RequestQueues::set_pending(Request& request, int64_t token_count) {
  pending_tokens_ += token_count - request.pending_tokens;
  request.pending_tokens = token_count;
}

void RequestQueues::start(Request& request) {
  request.phase = RequestPhase::kPrefill;
  set_pending(request, request.rest_count());
  insert_by_arrival(running_, &request);
  running_new_count_ += request.max_new_count;
  insert_by_arrival(prefilling_, &request);
}

void RequestQueues::drop_started(size_t count) {
  const auto end = waiting_.begin() + static_cast<ptrdiff_t>(count);
  const auto started = [](const Request* r) { return r->phase != RequestPhase::kWaiting; };
  waiting_.erase(std::remove_if(waiting_.begin(), end, started), end);
}

void RequestQueues::finish_prefill(Request& request) {
  if (request.phase == RequestPhase::kPrefill) erase_by_arrival(prefilling_, &request);
  request.phase = RequestPhase::kDecode;
}

void RequestQueues::preempt(Request& request) {
  stop_running(request);
  tables_->release(request);
  request.phase = RequestPhase::kWaiting;
  ++request.preemption_count;
  request.passed_count = 0;
  request.held_count = 0;
  lookup(request);
  insert_by_arrival(waiting_, &request);
}

void RequestQueues::cut(Request& request, int32_t token_count) {
  request.max_new_count -= token_count;
  if (request.phase != RequestPhase::kWaiting) running_new_count_ -= token_count;
}

void RequestQueues::leave(Request& request) {
  if (request.phase == RequestPhase::kWaiting) {
    erase_by_arrival(waiting_, &request);
  } else {
    stop_running(request);
  }
  set_pending(request, 0);
}

void RequestQueues::erase(Request& request) {
  background_count_ -= request.in_background();
  requests_.erase(request.id);
}

void RequestQueues::stop_running(Request& request) {
  erase_by_arrival(running_, &request);
  running_new_count_ -= request.max_new_count;
  if (request.phase == RequestPhase::kPrefill) erase_by_arrival(prefilling_, &request);
  if (request.is_counted()) counted_->leave(request);
}

// Requests in the background are the last of a queue.
void RequestQueues::count_background(const Queue& queue, int32_t& count, int64_t& pending_tokens) const {
  for (auto it = queue.rbegin(); it != queue.rend() && (*it)->in_background(); ++it) {
    count += 1;
    pending_tokens += (*it)->pending_tokens;
  }
}

void RequestQueues::describe(SchedulerStats& stats) const {
  stats.running = static_cast<int32_t>(running_.size());
  stats.waiting = static_cast<int32_t>(waiting_.size());
  stats.pending_prefill_tokens = pending_tokens_;
  stats.background_running = stats.background_waiting = 0;
  stats.background_pending_tokens = 0;
  if (background_count_ == 0) return;
  count_background(running_, stats.background_running, stats.background_pending_tokens);
  count_background(waiting_, stats.background_waiting, stats.background_pending_tokens);
}

Status RequestQueues::verify() const {
  TROUPE_RETURN_IF_ERROR(check_order(running_));
  TROUPE_RETURN_IF_ERROR(check_order(waiting_));
  TROUPE_RETURN_IF_ERROR(check_order(prefilling_));
  if (running_.size() + waiting_.size() != requests_.size()) {
    return absl::InternalError("a request is in no queue or in both");
  }
  int64_t pending_tokens = 0;
  for (const auto& [id, request] : requests_) pending_tokens += request->pending_tokens;
  if (pending_tokens != pending_tokens_) {
    return absl::InternalError("pending_prefill_tokens is not the sum over the requests");
  }
  TROUPE_RETURN_IF_ERROR(verify_waiting());
  return verify_running();
}

Status RequestQueues::verify_waiting() const {
  for (const Request* r : waiting_) {
    if (r->phase != RequestPhase::kWaiting || !r->blocks.empty() || r->computed_count != 0) {
      return absl::InternalError("waiting request " + std::to_string(r->id) + " holds something");
    }
  }
  return absl::OkStatus();
}

Status RequestQueues::verify_running() const {
  size_t prefilling_count = 0, counted_count = 0;
  int64_t context_count = 0, new_count = 0;
  for (Request* r : running_) {
    if (r->is_counted()) {
      counted_->materialize(*r);
      counted_count += 1;
      context_count += r->known_count;
    }
    new_count += r->max_new_count;
    prefilling_count += r->phase == RequestPhase::kPrefill;
    if (r->phase == RequestPhase::kWaiting || r->computed_count >= r->known_count ||
        r->cached_count > r->computed_count || r->known_count > r->prompt_count + r->max_new_count) {
      return absl::InternalError("request " + std::to_string(r->id) + " has its lengths out of order");
    }
  }
  if (prefilling_count != prefilling_.size() || counted_count != static_cast<size_t>(counted_->count()) ||
      context_count != counted_->context_count() || new_count != running_new_count_) {
    return absl::InternalError("the running requests are not those that are listed and counted");
  }
  return absl::OkStatus();
}

}  // namespace troupe
