// Continuous batching. The requests stand in queues by order of arrival (request_queues.h); a step is planned
// by a StepPlanner and taken in by the StepCommit. Progress: the oldest running request always gets its block
// (all younger ones give way first), and what fits into all blocks together fits when it is alone. Costs: a
// step is linear in running + waiting; a waiting request is looked up again only after the cache changed.

#include "worker/schedule/scheduler.h"

#include <algorithm>
#include <string>

#include "common/core/check.h"
#include "worker/schedule/background_prefill.h"
#include "worker/schedule/fast_forward.h"
#include "worker/schedule/planned_step.h"
#include "worker/schedule/scheduler_state.h"
#include "worker/schedule/step_commit.h"
#include "worker/schedule/step_planner.h"

namespace troupe {

struct Scheduler::Impl {
  explicit Impl(const SchedulerConfig& config)
      : state(config), background(&state), commit(&state, &step), fast_forward(&state, &step) {}

  void add_companion(ScheduledRequest& request, std::vector<TokenId> ids, int64_t prompt_count);

  SchedulerState state;
  BackgroundPrefill background;
  PlannedStep step;  // the one being planned, in flight, or last computed
  StepCommit commit;
  FastForward fast_forward;
};

Scheduler::Scheduler(const SchedulerConfig& config) : impl_(std::make_unique<Impl>(config)) {
  TROUPE_CHECK(config.block_size > 0 && config.block_count > 0 && config.max_num_seqs > 0 &&
                   config.max_num_batched_tokens > 0 && config.max_waiting > 0 && config.max_model_len > 1,
               "every limit in SchedulerConfig must be positive");
  impl_->state.refresh_stats();
}

Scheduler::~Scheduler() = default;

Status Scheduler::add(NewRequest request) {
  SchedulerState& s = impl_->state;
  const int64_t known_count =
      request.prompt.empty() ? request.prompt_count : static_cast<int64_t>(request.prompt.size());
  const int64_t prompt_count = known_count - request.emitted_count;
  const bool has_companion = !request.companion.empty();
  const int64_t companion_count =
      has_companion ? static_cast<int64_t>(request.companion.size()) - request.emitted_count : 0;
  TROUPE_CHECK(!has_companion || (companion_count > 0 && !request.prompt.empty() && !request.spec.background),
               "a companion has a prompt, as its request, which is not in the background");
  TROUPE_CHECK((request.id & kCompanionBit) == 0, "the companion's bit of an id is free");
  TROUPE_RETURN_IF_ERROR(check_possible(s.config, prompt_count, request.max_new_count, companion_count));
  const int64_t new_count = std::min<int64_t>(
      request.max_new_count, s.config.max_model_len - std::max(prompt_count, companion_count));
  if (request.emitted_count >= new_count)
    return invalid_argument("the answer that goes on has all the tokens it may have");
  TROUPE_CHECK(request.prompt.empty() || !s.config.simulation.count_decodes,
               "only requests without ids can be counted");
  if (s.queues.find(request.id) != nullptr)
    return invalid_argument("a request of this id is scheduled already");
  const size_t waiting_count = s.queues.waiting().size();
  if (static_cast<int64_t>(waiting_count) + has_companion >= s.config.max_waiting) {
    return absl::ResourceExhaustedError(
        to_absl(std::to_string(waiting_count) + " requests are waiting already; try again later"));
  }
  auto owned = std::make_unique<ScheduledRequest>();
  owned->id = request.id;
  owned->ids = std::move(request.prompt);
  owned->prompt_count = static_cast<int32_t>(prompt_count);
  owned->known_count = static_cast<int32_t>(known_count);
  owned->max_new_count = static_cast<int32_t>(new_count);
  owned->settled_count = request.emitted_count;
  owned->scores_prompt = request.scores_prompt;
  if (s.config.enable_prefix_caching) owned->block_hashes = std::move(request.block_hashes);
  owned->spec = request.spec;
  owned->spec.prefix_count = std::min(request.spec.prefix_count, owned->prompt_count);
  const Hash128 user = request.spec.session.is_zero() ? Hash128{0, request.id} : request.spec.session;
  owned->user = mix_hash(user, request.spec.salt);
  ScheduledRequest& r = s.queues.add(std::move(owned));
  s.tables.extend_hashes(r);
  s.queues.lookup(r);
  if (has_companion) impl_->add_companion(r, std::move(request.companion), companion_count);
  const Status status = s.pins.admit(r);
  if (!status.ok()) impl_->commit.end(r, /*complete=*/false);
  s.refresh_stats();
  return status;
}

// Behind its request. It is no conversation's, and nobody's persona.
void Scheduler::Impl::add_companion(ScheduledRequest& request, std::vector<TokenId> ids,
                                    int64_t prompt_count) {
  auto owned = std::make_unique<ScheduledRequest>();
  owned->id = request.id | kCompanionBit;
  owned->is_companion = true;
  owned->partner = &request;
  owned->known_count = static_cast<int32_t>(ids.size());
  owned->ids = std::move(ids);
  owned->prompt_count = static_cast<int32_t>(prompt_count);
  owned->max_new_count = request.max_new_count;
  owned->settled_count = request.settled_count;
  owned->spec.salt = request.spec.salt;
  owned->spec.provisional = request.spec.provisional;
  owned->user = mix_hash(Hash128{0, request.user}, Hash128{0, kCompanionBit});
  request.partner = &state.queues.add(std::move(owned));
  state.tables.extend_hashes(*request.partner);
  state.queues.lookup(*request.partner);
}

const Batch& Scheduler::plan(TimePoint now) {
  PlannedStep& step = impl_->step;
  TROUPE_CHECK(!step.in_flight, "plan() before the last step's end");
  step = PlannedStep::in_memory_of(step, now);
  StepPlanner(&impl_->state, &impl_->background, &step).plan();
  impl_->state.refresh_stats();
  return step.batch;
}

void Scheduler::commit(std::span<const StepToken> tokens, TimePoint now, std::vector<RequestId>& finished) {
  finished.clear();
  impl_->commit.advance(finished);
  impl_->commit.resolve(tokens, now, finished);
  impl_->state.refresh_stats();
}

void Scheduler::advance() {
  TROUPE_CHECK(!impl_->state.config.simulation.count_decodes, "advance() where decodes are counted");
  std::vector<RequestId> none;
  impl_->commit.advance(none);
  impl_->state.refresh_stats();
}

void Scheduler::resolve(std::span<const StepToken> tokens, TimePoint now, std::vector<RequestId>& finished) {
  finished.clear();
  impl_->commit.resolve(tokens, now, finished);
  impl_->state.refresh_stats();
}

void Scheduler::abandon() {
  impl_->commit.abandon();
  impl_->state.refresh_stats();
}

void Scheduler::remove(RequestId id) {
  TROUPE_CHECK(!impl_->step.in_flight, "remove() while a step is in flight");
  ScheduledRequest* const request = impl_->state.queues.find(id);
  if (request == nullptr) return;
  impl_->commit.end(*request, /*complete=*/false);
  impl_->state.refresh_stats();
}

void Scheduler::unpin(Hash128 name) {
  TROUPE_CHECK(!impl_->step.in_flight, "unpin() while a step is in flight");
  impl_->state.tables.unpin(name);
  impl_->state.refresh_stats();
}

std::vector<Hash128> Scheduler::pins() const {
  std::vector<Hash128> names;
  for (const auto& [name, pinned] : impl_->state.tables.pins().by_name) names.push_back(name);
  return names;
}

uint64_t Scheduler::pin_change_count() const {
  return impl_->state.tables.pins().change_count;
}

int32_t Scheduler::tokens_left(RequestId id) const {
  const ScheduledRequest* const request = impl_->state.queues.find(id);
  return request == nullptr ? 0 : request->max_new_count - request->emitted_count();
}

int32_t Scheduler::cached_count(RequestId id) const {
  const ScheduledRequest* const request = impl_->state.queues.find(id);
  return request == nullptr ? -1 : request->first_cached_count;
}

std::vector<Conversation> Scheduler::conversations(size_t max_count) const {
  return impl_->state.tables.cache().conversations(max_count);
}

std::optional<Conversation> Scheduler::conversation(const Hash128& session) const {
  return impl_->state.tables.cache().conversation(session);
}

Residency& Scheduler::residency() {
  return impl_->state.tables.residency();
}

const SetWork& Scheduler::set_work() const {
  return impl_->state.set_work;
}

const SchedulerStats& Scheduler::stats() const {
  return impl_->state.stats;
}

FastForward& Scheduler::fast_forward() {
  return impl_->fast_forward;
}

Status Scheduler::verify() const {
  return impl_->state.verify();
}

}  // namespace troupe
