#include "worker/schedule/step_commit.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/core/check.h"

namespace troupe {

void StepCommit::advance(std::vector<RequestId>& finished) {
  TROUPE_CHECK(step_.in_flight, "a step ends that was not planned");
  TROUPE_CHECK(!unresolved_, "a step ends before the tokens of the one before are known");
  ended_.clear();
  sampled_.clear();
  if (step_.batch.counted_decodes > 0) advance_counted(finished);
  for (const ScheduledRequest* r : step_.requests) {
    if (r->phase == RequestPhase::kPrefill) state_.tables.fetch_ahead(*r);
  }
  for (size_t i = 0; i < step_.requests.size(); ++i) advance_item(*step_.requests[i], step_.batch.items[i]);
  step_.in_flight = false;
  unresolved_ = true;
  advanced_load_ = step_.load;
  advanced_at_ = step_.planned_at;
  for (ScheduledRequest* r : ended_) end(*r, /*complete=*/true);
  end_stopped();
}

void StepCommit::advance_counted(std::vector<RequestId>& finished) {
  state_.stats.computed_tokens_total += state_.counted.count();
  state_.counted.advance(ended_);
  for (const ScheduledRequest* r : ended_) {
    finished.push_back(r->id);
    state_.tables.fetch_ahead(*r);
  }
}

void StepCommit::advance_item(ScheduledRequest& request, const BatchItem& item) {
  state_.stats.computed_tokens_total += item.count;
  state_.set_work.add(request.spec.set, request.spec.prefix_count, item.count);
  const ScheduledRequest& asker = request.is_companion ? *request.partner : request;
  if (asker.stopped || asker.rewind_to >= 0) {  // before this step, which computed for it in vain
    if (item.samples) sampled_.push_back({.id = item.id, .request = nullptr, .ended = false});
    return;
  }
  request.computed_count += item.count;
  request.scored_count = std::max(request.scored_count, request.computed_count);
  state_.tables.finish_copy(request);
  if (request.phase == RequestPhase::kPrefill) state_.tables.cache_full_blocks(request);
  state_.queues.set_pending(request, item.samples ? 0 : request.rest_count());
  if (!item.samples) return;
  if (request.is_companion) return advance_companion(request);
  request.sampled_index = static_cast<int32_t>(sampled_.size());
  Sampled& entry = sampled_.emplace_back(Sampled{.id = request.id, .request = &request, .ended = false});
  if (!request.ids.empty()) request.ids.push_back(-1 - request.sampled_index);
  ++request.known_count;
  state_.queues.finish_prefill(request);
  entry.ended = request.has_all_tokens() && !request.spec.provisional;
  if (entry.ended) {
    ended_.push_back(&request);
  } else if (state_.config.simulation.count_decodes) {
    state_.counted.join(request);
  }
}

// Its next id is the one that its request draws, whose item came before.
void StepCommit::advance_companion(ScheduledRequest& companion) {
  const ScheduledRequest& request = *companion.partner;
  sampled_.push_back({.id = request.id, .request = nullptr, .ended = false});
  companion.sampled_index = request.sampled_index;
  companion.ids.push_back(-1 - companion.sampled_index);
  ++companion.known_count;
  state_.queues.finish_prefill(companion);
}

void StepCommit::set_token(ScheduledRequest& request, const StepToken& token) {
  request.sampled_index = -1;
  request.corrupt = token.corrupt;
  if (!request.ids.empty()) request.ids.back() = token.token;
}

void StepCommit::resolve(std::span<const StepToken> tokens, TimePoint now, std::vector<RequestId>& finished) {
  TROUPE_CHECK(unresolved_, "tokens of a step that has not ended");
  TROUPE_CHECK(tokens.size() == sampled_.size(), "a step's end needs one token for each item that samples");
  for (size_t i = 0; i < sampled_.size(); ++i) {
    const Sampled& entry = sampled_[i];
    const StepToken& token = tokens[i];
    TROUPE_CHECK(token.id == entry.id, "a step's end needs one token for each item that samples, in order");
    if (token.corrupt && entry.remains != nullptr) state_.discard(*entry.remains);
    if (entry.request != nullptr) {
      ScheduledRequest& request = *entry.request;
      set_token(request, token);
      if (request.partner != nullptr) set_token(*request.partner, token);
      if (!token.run.empty()) append_run(request, token.run);
      if (request.spec.provisional) settle(request, token);
      if (request.rewind_to >= 0 || !(token.finished || request.has_all_tokens())) continue;
      request.stopped = true;
      request.settled_count = request.emitted_count();
      if (request.partner != nullptr) request.partner->settled_count = request.settled_count;
      stopped_.push_back(&request);
    } else if (!entry.ended) {
      continue;
    }
    finished.push_back(entry.id);
  }
  unresolved_ = false;
  if (!step_.in_flight) end_stopped();
  if (state_.config.tpot_budget > Duration::zero()) learn_cost(now);
}

void StepCommit::append_run(ScheduledRequest& request, std::span<const TokenId> run) {
  TROUPE_CHECK(!step_.in_flight, "a run of tokens comes before the step behind it is planned");
  TROUPE_CHECK(!request.ids.empty() && request.partner == nullptr && !request.spec.provisional,
               "a run of tokens of a request that has none");
  const auto count = static_cast<int32_t>(run.size());
  request.ids.insert(request.ids.end(), run.begin(), run.end());
  request.known_count += count;
  TROUPE_CHECK(request.emitted_count() <= request.max_new_count,
               "an answer with more tokens than it may have");
  state_.queues.set_pending(request, request.rest_count());
}

void StepCommit::settle(ScheduledRequest& request, const StepToken& token) {
  TROUPE_CHECK(token.settled_count <= request.emitted_count(), "more tokens are settled than there are");
  request.settled_count = std::max(request.settled_count, token.settled_count);
  if (request.partner != nullptr) request.partner->settled_count = request.settled_count;
  if (token.kept_count < 0) return;
  TROUPE_CHECK(request.settled_count <= token.kept_count && token.kept_count < request.emitted_count(),
               "only tokens that are not settled can be taken back");
  request.rewind_to = token.kept_count;
  rewound_.push_back(&request);
}

void StepCommit::abandon() {
  step_.in_flight = false;
  end_stopped();
}

void StepCommit::end(ScheduledRequest& request, bool complete) {
  Sampled* const entry =
      request.sampled_index >= 0 ? &sampled_[static_cast<size_t>(request.sampled_index)] : nullptr;
  SchedulerState::Remains remains = state_.end(request, complete);
  if (entry == nullptr) return;
  entry->request = nullptr;
  entry->remains = std::make_unique<SchedulerState::Remains>(std::move(remains));
}

void StepCommit::end_stopped() {
  for (ScheduledRequest* r : stopped_) {
    const bool is_corrupt = r->corrupt;
    const SchedulerState::Remains remains = state_.end(*r, /*complete=*/!is_corrupt);
    if (is_corrupt) state_.discard(remains);
  }
  stopped_.clear();
  for (ScheduledRequest* r : rewound_) state_.rewind(*r, std::exchange(r->rewind_to, -1));
  rewound_.clear();
}

// A step began when the one before it was done, if it was launched by then.
void StepCommit::learn_cost(TimePoint now) {
  const TimePoint began = std::max(advanced_at_, resolved_at_);
  state_.cost.observe(advanced_load_, std::chrono::duration<double>(now - began).count());
  resolved_at_ = now;
}

}  // namespace troupe
