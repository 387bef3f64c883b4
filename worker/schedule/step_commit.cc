// What came of a step, in two halves: that it was computed, which is known when it is launched, and what it
// drew. Between the two a request's last id is a name for what will be drawn; whatever is cached or hashed
// was computed a step earlier, so its ids are known by then.

#include <algorithm>
#include <chrono>

#include "worker/schedule/scheduler_impl.h"

namespace troupe {

void Scheduler::commit(std::span<const StepToken> tokens, TimePoint now, std::vector<RequestId>& finished) {
  finished.clear();
  impl_->advance_step(finished);
  impl_->resolve_step(tokens, now, finished);
  impl_->refresh_stats();
}

void Scheduler::advance() {
  Impl::require(impl_->config.itemize_decodes, "advance() where decodes are only counted");
  std::vector<RequestId> none;
  impl_->advance_step(none);
  impl_->refresh_stats();
}

void Scheduler::resolve(std::span<const StepToken> tokens, TimePoint now, std::vector<RequestId>& finished) {
  finished.clear();
  impl_->resolve_step(tokens, now, finished);
  impl_->refresh_stats();
}

// `finished` gets those of the counted decodes that end; the others' ends are told by resolve_step().
void Scheduler::Impl::advance_step(std::vector<RequestId>& finished) {
  require(in_flight, "a step ends that was not planned");
  require(!unresolved, "a step ends before the tokens of the one before are known");
  ended.clear();
  sampled.clear();
  if (batch.counted_decodes > 0) advance_counted(finished);
  for (const Request* r : batch_requests) {
    if (r->phase == RequestPhase::kPrefill) tables.fetch_ahead(*r);
  }
  for (size_t i = 0; i < batch.items.size(); ++i) advance_item(*batch_requests[i], batch.items[i]);
  in_flight = false;
  unresolved = true;
  advanced_load = load;
  advanced_at = planned_at;
  for (Request* r : ended) erase(*r, /*complete=*/true);
  erase_stopped();
}

// All decodes that are only counted go on by one.
void Scheduler::Impl::advance_counted(std::vector<RequestId>& finished) {
  stats.computed_tokens_total += clock.count();
  clock.advance();
  owed_ahead = 0;
  clock.ended(ended);
  for (const Request* r : ended) {
    finished.push_back(r->id);
    tables.fetch_ahead(*r);
  }
}

void Scheduler::Impl::advance_item(Request& request, const BatchItem& item) {
  stats.computed_tokens_total += item.count;
  set_work.add(request.set, request.prefix_count, item.count);
  if (request.stopped) {  // before this step: what it computed of the request is nobody's
    if (item.samples) sampled.push_back({request.id, nullptr, false});
    return;
  }
  request.computed_count += item.count;
  request.scored_count = std::max(request.scored_count, request.computed_count);
  tables.finish_copy(request);
  if (request.phase == RequestPhase::kPrefill) tables.cache_full_blocks(request);
  set_pending(request, item.samples ? 0 : rest_of(request));
  if (!item.samples) return;
  request.sampled_index = count_of(sampled.size());
  Sampled& entry = sampled.emplace_back(Sampled{request.id, &request, false});
  if (!request.ids.empty()) request.ids.push_back(-1 - request.sampled_index);
  ++request.known_count;
  if (request.phase == RequestPhase::kPrefill) erase_by_arrival(prefilling, &request);
  request.phase = RequestPhase::kDecode;
  entry.ended = emitted_by(request) >= request.max_new_count;
  if (entry.ended) {
    ended.push_back(&request);
  } else if (!config.itemize_decodes) {
    clock.join(request);
  }
}

void Scheduler::Impl::resolve_step(std::span<const StepToken> tokens, TimePoint now,
                                   std::vector<RequestId>& finished) {
  require(unresolved, "tokens of a step that has not ended");
  require(tokens.size() == sampled.size(), "a step's end needs one token for each item that samples");
  for (size_t i = 0; i < sampled.size(); ++i) {
    const Sampled& entry = sampled[i];
    const StepToken& token = tokens[i];
    require(token.id == entry.id, "a step's end needs one token for each item that samples, in order");
    if (entry.request != nullptr) {
      Request& request = *entry.request;
      request.sampled_index = -1;
      if (!request.ids.empty()) request.ids.back() = token.token;
      if (!token.finished) continue;
      request.stopped = true;
      stopped.push_back(&request);
    } else if (!entry.ended) {
      continue;
    }
    finished.push_back(entry.id);
  }
  unresolved = false;
  if (!in_flight) erase_stopped();
  if (config.tpot_budget > Duration::zero()) {
    // It began when the one before it was done, if it was launched by then.
    cost.observe(advanced_load,
                 std::chrono::duration<double>(now - std::max(advanced_at, resolved_at)).count());
    resolved_at = now;
  }
}

void Scheduler::Impl::erase_stopped() {
  for (Request* r : stopped) erase(*r, /*complete=*/true);
  stopped.clear();
}

}  // namespace troupe
