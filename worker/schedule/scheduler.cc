// Continuous batching. Running and waiting are kept in order of arrival, so "oldest first" and "youngest
// victim" are the ends of a list. Progress: the oldest running request always gets its block (everybody
// younger gives way first), and what fits into all blocks together fits when it is alone. Costs: a step is
// linear in running + waiting; a waiting request is looked up again only after the cache changed. The choice
// itself is in step_planner.cc.

#include "worker/schedule/scheduler.h"

#include <algorithm>
#include <chrono>
#include <string>

#include "worker/schedule/scheduler_impl.h"

namespace troupe {

namespace {

Status check_arrival_order(const std::vector<ScheduledRequest*>& list) {
  const bool sorted =
      std::is_sorted(list.begin(), list.end(), [](const ScheduledRequest* a, const ScheduledRequest* b) {
        return a->arrival_index < b->arrival_index;
      });
  if (sorted) return absl::OkStatus();
  return absl::InternalError("a queue is not in order of arrival");
}

}  // namespace

Status check_possible(const SchedulerConfig& config, int64_t prompt_count, int64_t max_new_count) {
  if (prompt_count < 1) return invalid_argument("the prompt is empty; it needs at least one token");
  if (max_new_count < 1) return invalid_argument("the number of tokens to generate must be at least 1");
  const auto prompt_text = [&] { return "the prompt has " + std::to_string(prompt_count) + " tokens; "; };
  const int64_t new_count = std::min(max_new_count, config.max_model_len - prompt_count);
  if (new_count < 1) {
    return invalid_argument(prompt_text() + "with one token to generate at most " +
                            std::to_string(config.max_model_len - 1) + " fit the model's length");
  }
  // The last token is never fed back, so its KV is never stored.
  const int64_t capacity = int64_t{config.block_count} * config.block_size;
  if (prompt_count + new_count - 1 > capacity) {
    return invalid_argument(prompt_text() + "with " + std::to_string(new_count) +
                            " to generate they do not fit the KV cache of " + std::to_string(capacity));
  }
  return absl::OkStatus();
}

Batching batching_of(std::string_view name) {
  if (name == "separate") return Batching::kSeparate;
  if (name == "static") return Batching::kStatic;
  return Batching::kMerged;
}

Scheduler::Scheduler(const SchedulerConfig& config) : impl_(std::make_unique<Impl>(config)) {
  Impl::require(config.block_size > 0 && config.block_count > 0 && config.max_num_seqs > 0 &&
                    config.max_num_batched_tokens > 0 && config.max_waiting > 0 && config.max_model_len > 1,
                "every limit in SchedulerConfig must be positive");
  impl_->refresh_stats();
}

Scheduler::~Scheduler() = default;

Status Scheduler::add(NewRequest request, TimePoint now) {
  Impl& s = *impl_;
  const int64_t known_count =
      request.prompt.empty() ? request.prompt_count : static_cast<int64_t>(request.prompt.size());
  const int64_t prompt_count = known_count - request.emitted_count;
  TROUPE_RETURN_IF_ERROR(check_possible(s.config, prompt_count, request.max_new_count));
  if (request.emitted_count >=
      std::min<int64_t>(request.max_new_count, s.config.max_model_len - prompt_count))
    return invalid_argument("the answer that goes on has all the tokens it may have");
  Impl::require(s.config.itemize_decodes || request.prompt.empty(),
                "only requests without ids can be counted");
  if (s.requests.contains(request.id)) return invalid_argument("a request of this id is scheduled already");
  if (Impl::count_of(s.waiting.size()) >= s.config.max_waiting) {
    return absl::ResourceExhaustedError(
        to_absl(std::to_string(s.waiting.size()) + " requests are waiting already; try again later"));
  }
  auto owned = std::make_unique<ScheduledRequest>();
  ScheduledRequest& r = *owned;
  r.id = request.id;
  r.ids = std::move(request.prompt);
  r.prompt_count = static_cast<int32_t>(prompt_count);
  r.known_count = static_cast<int32_t>(known_count);
  r.prefix_count = std::min(request.prefix_count, r.prompt_count);
  if (s.config.enable_prefix_caching) r.block_hashes = std::move(request.block_hashes);
  r.max_new_count = std::min(request.max_new_count, s.config.max_model_len - r.prompt_count);
  r.arrival_index = s.next_arrival_index++ | (request.background ? kBackgroundArrival : 0);
  r.arrival = now;
  r.scores_prompt = request.scores_prompt;
  r.salt = request.salt;
  r.set = request.set;
  r.session = request.session;
  r.pin = request.pin;
  r.cut_to_fit = request.cut_to_fit;
  r.planned = request.planned;
  r.user = mix_hash(r.session.is_zero() ? Hash128{0, r.id} : r.session, r.salt);
  s.requests.emplace(r.id, std::move(owned));
  if (s.background_count == 0) {
    s.waiting.push_back(&r);
  } else {
    Impl::insert_by_arrival(s.waiting, &r);
  }
  s.background_count += r.in_background();
  s.tables.extend_hashes(r);
  s.look_up(r);
  const bool keeps = s.kept_count() > 0 || !r.pin.is_zero();
  Status status = keeps ? s.check_room(r) : absl::OkStatus();
  if (!status.ok()) s.erase(r, /*complete=*/false);
  s.refresh_stats();
  return status;
}

const Batch& Scheduler::plan(TimePoint now) {
  Impl& s = *impl_;
  Impl::require(!s.in_flight, "plan() before the last step's end");
  s.plan_step(now);
  s.in_flight = !s.batch.empty();
  s.refresh_stats();
  return s.batch;
}

RequestId Scheduler::fetch_ahead() const {
  return impl_->clock.fetch_ahead();
}

void Scheduler::abandon() {
  impl_->in_flight = false;
  impl_->erase_stopped();
  impl_->refresh_stats();
}

int64_t Scheduler::uneventful_steps() const {
  const Impl& s = *impl_;
  // Nobody joins a batch, and only those in the background would leave it for somebody who waits.
  const bool closed = s.config.batching == Batching::kStatic && s.background_count == 0;
  const bool alone = s.in_flight && s.batch.items.empty() && s.clock.count() > 0 &&
                     (s.waiting.empty() || closed) && s.prefilling.empty();
  // What a step costs is learned of each of them.
  if (!alone || s.config.tpot_budget > Duration::zero() || s.tables.residency().has_changes()) return 0;
  const int64_t most = s.clock.steps_before_end();
  const int64_t free_count = s.tables.pool().free_count();
  if (s.clock.at_block_end_within(most) <= free_count) return most;
  int64_t steps = 0;
  while (s.clock.at_block_end_within(steps + 1) <= free_count) ++steps;
  return steps;
}

void Scheduler::pass(int64_t steps) {
  Impl& s = *impl_;
  Impl::require(steps <= uneventful_steps(), "pass() of steps in which something happens");
  if (steps == 0) return;
  s.tables.owe_free_blocks(static_cast<int32_t>(s.clock.at_block_end_within(steps)));
  s.stats.computed_tokens_total += steps * s.clock.count();
  s.clock.advance(steps);
  s.owed_ahead = s.clock.at_block_end();
  s.batch.preempted.clear();
  s.batch.counted_context_tokens = s.clock.context_count();
  s.refresh_stats();
}

void Scheduler::remove(RequestId id) {
  Impl::require(!impl_->in_flight, "remove() while a step is in flight");
  const auto it = impl_->requests.find(id);
  if (it == impl_->requests.end()) return;
  impl_->erase(*it->second, /*complete=*/false);
  impl_->refresh_stats();
}

void Scheduler::unpin(Hash128 name) {
  Impl::require(!impl_->in_flight, "unpin() while a step is in flight");
  impl_->tables.unpin(name);
  impl_->refresh_stats();
}

int32_t Scheduler::cached_count(RequestId id) const {
  const auto it = impl_->requests.find(id);
  return it == impl_->requests.end() ? -1 : it->second->first_cached_count;
}

std::vector<Conversation> Scheduler::conversations(size_t max_count) const {
  return impl_->tables.cache().conversations(max_count);
}

std::optional<Conversation> Scheduler::conversation(const Hash128& session) const {
  return impl_->tables.cache().conversation(session);
}

Residency& Scheduler::residency() {
  return impl_->tables.residency();
}

const SetWork& Scheduler::set_work() const {
  return impl_->set_work;
}

const SchedulerStats& Scheduler::stats() const {
  return impl_->stats;
}

// ---------------------------------------------------------------- the end of a request

void Scheduler::Impl::look_up(Request& request) {
  tables.look_up(request);
  set_pending(request, request.known_count - tables.look_cached_count(request));
}

void Scheduler::Impl::set_pending(Request& request, int64_t token_count) {
  stats.pending_prefill_tokens += token_count - request.pending_tokens;
  request.pending_tokens = token_count;
}

void Scheduler::Impl::erase(Request& request, bool complete) {
  if (request.sampled_index >= 0) sampled[static_cast<size_t>(request.sampled_index)].request = nullptr;
  if (request.phase != RequestPhase::kWaiting) stop_running(request);
  // Whatever ended it: for so long it needed its memory. In the background nothing is answered.
  if (emitted_by(request) > 0 && !request.in_background()) lengths.record(request.set, emitted_by(request));
  set_pending(request, 0);
  tables.release(request);
  if (complete && !request.pin.is_zero()) tables.pin(request);
  reserved_count -= request.pin_blocks;
  background_count -= request.in_background();
  if (request.phase == RequestPhase::kWaiting) erase_by_arrival(waiting, &request);
  requests.erase(request.id);
}

// Out of the lists of those who run; its lengths are right afterwards.
void Scheduler::Impl::stop_running(Request& request) {
  erase_by_arrival(running, &request);
  running_new_count -= request.max_new_count;
  if (request.phase == RequestPhase::kPrefill) erase_by_arrival(prefilling, &request);
  if (!request.on_clock) return;
  clock.leave(request);
  tables.settle(request);
  if (owed_ahead <= clock.at_block_end()) return;
  // A step failed for which it had got another block already.
  tables.forgive_block();
  owed_ahead -= 1;
}

void Scheduler::Impl::refresh_stats() {
  stats.running = count_of(running.size());
  stats.waiting = count_of(waiting.size());
  count_background();
  stats.blocks_total = tables.pool().total_count();
  stats.blocks_free = tables.pool().free_count();
  stats.blocks_cached = tables.pool().cached_count();
  stats.blocks_used = tables.pool().used_count();
  stats.blocks_pinned = tables.pinned_count();
  stats.evicted_blocks_total = tables.cache_counts().evicted;
  stats.evicted_shared_blocks_total = tables.cache_counts().evicted_shared;
}

Status Scheduler::verify() const {
  for (ScheduledRequest* r : impl_->running) {
    if (r->on_clock) impl_->clock.settle(*r);
  }
  TROUPE_RETURN_IF_ERROR(impl_->verify_queues());
  return impl_->tables.verify(impl_->running, impl_->owed_ahead);
}

Status Scheduler::Impl::verify_queues() const {
  TROUPE_RETURN_IF_ERROR(check_arrival_order(running));
  TROUPE_RETURN_IF_ERROR(check_arrival_order(waiting));
  TROUPE_RETURN_IF_ERROR(check_arrival_order(prefilling));
  if (running.size() + waiting.size() != requests.size()) {
    return absl::InternalError("a request is in no queue or in both");
  }
  int64_t pending_tokens = 0;
  for (const Request* r : waiting) {
    pending_tokens += r->pending_tokens;
    if (r->phase != RequestPhase::kWaiting || !r->blocks.empty() || r->computed_count != 0) {
      return absl::InternalError("waiting request " + std::to_string(r->id) + " holds something");
    }
  }
  size_t prefilling_count = 0, counted_count = 0;
  int64_t context_count = 0, new_count = 0;
  for (const Request* r : running) {
    pending_tokens += r->pending_tokens;
    new_count += r->max_new_count;
    prefilling_count += r->phase == RequestPhase::kPrefill;
    counted_count += r->on_clock;
    context_count += r->on_clock ? r->known_count : 0;
    const int32_t known_count = r->known_count;
    if (r->phase == RequestPhase::kWaiting || r->computed_count >= known_count ||
        r->cached_count > r->computed_count || known_count > r->prompt_count + r->max_new_count) {
      return absl::InternalError("request " + std::to_string(r->id) + " has its lengths out of order");
    }
  }
  if (prefilling_count != prefilling.size() || counted_count != static_cast<size_t>(clock.count()) ||
      context_count != clock.context_count() || new_count != running_new_count) {
    return absl::InternalError("those who prefill or decode are not those who are known to");
  }
  if (pending_tokens != stats.pending_prefill_tokens) {
    return absl::InternalError("pending_prefill_tokens is not the sum over the requests");
  }
  return absl::OkStatus();
}

}  // namespace troupe
