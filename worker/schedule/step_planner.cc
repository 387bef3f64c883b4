// Merged steps: first every decode, since a client reads along; then prefill chunks with the tokens that are
// left. The oldest prefill is sure of half of these. It gets the other half too where no request needs fewer
// tokens than it does: so a prompt of 8,000 tokens is not slowed down by others of its kind, and one that
// misses five tokens of a cached persona does not wait for it.
//
// Where steps are not merged the order is reversed: prompts first, decodes where there is none. So a new
// request is answered soon, and the decodes wait for all prompts.

#include "worker/schedule/step_planner.h"

#include <algorithm>
#include <chrono>

namespace troupe {

namespace {

// However slow the machine: a prefill goes on by this many tokens a step.
constexpr int32_t kMinChunk = 32;
// The same of a prompt that is scored, whose rows may take a hundred times as long.
constexpr int32_t kMinScoredChunk = 8;
// A request for which there were no prefill tokens in so many steps lets no younger one pass any more.
constexpr int32_t kHeldMax = 64;

}  // namespace

StepPlanner::StepPlanner(SchedulerState* state, BackgroundPrefill* background, PlannedStep* step)
    : state_(*state),
      config_(state->config),
      queues_(state->queues),
      background_(*background),
      step_(*step),
      batch_(step->batch),
      reserve_(state),
      budget_(state->config.max_num_batched_tokens) {}

void StepPlanner::plan() {
  if (background_.take_makes_way()) {
    while (!queues_.running().empty() && queues_.running().back()->in_background()) {
      preempt(*queues_.running().back());
    }
    preempted_ = false;  // what it frees is for those that wait
  }
  bool leaves_some = true;  // for prompts in the background
  if (config_.batching == Batching::kMerged) {
    plan_merged();
  } else {
    leaves_some = plan_prompts();
  }
  if (!background_.is_empty()) {
    if (leaves_some) serve_background();
    background_.end_plan(no_room_);
  }
  finish_oldest();
  state_.stats.budget_limited_steps_total += time_cuts_;
  step_.in_flight = !batch_.empty();
}

void StepPlanner::plan_merged() {
  plan_decodes();
  limit_prefill();
  extend_runs();
  plan_prefills();
  // Blocks that preemption freed are for running requests; admitting now would only preempt again.
  if (!preempted_) admit_waiting();
}

// Prompts, or decodes if there is no prompt. Returns whether the step has no decodes.
bool StepPlanner::plan_prompts() {
  const bool in_batches = config_.batching == Batching::kStatic;
  if (in_batches && queues_.running().empty()) admit_waiting();
  plan_prefills();
  if (!in_batches) admit_waiting();
  if (!batch_.empty()) return true;
  plan_decodes();
  extend_runs();
  return batch_.empty();
}

void StepPlanner::plan_decodes() {
  if (config_.simulation.count_decodes) {
    count_decodes();
  } else {
    list_decodes();
  }
}

void StepPlanner::list_decodes() {
  // running() shrinks at its end while older requests take their blocks.
  const RequestQueues::Queue& running = queues_.running();
  for (size_t i = 0; i < running.size(); ++i) {
    Request& r = *running[i];
    if (r.partner != nullptr) {
      if (!r.is_companion) give_last_ids(r);
      continue;
    }
    // (One that is provisional may have all its tokens, and not know yet whether they stay.)
    if (r.phase != RequestPhase::kDecode || budget_ == 0 || r.has_all_tokens()) continue;
    if (!grow_or_preempt(r)) continue;
    add_item(r, 1, 1);
    has_runs_ |= r.rest_count() > 1;
  }
}

// Tokens that the decodes could take beyond one each; `start`: where the oldest would.
int64_t StepPlanner::count_run_tokens(int32_t& start) const {
  int64_t count = 0;
  for (size_t i = batch_.items.size(); has_runs_ && i-- > 0;) {
    const int32_t rest = step_.requests[i]->rest_count() - batch_.items[i].count;
    if (rest > 0) start = batch_.items[i].start;
    count += rest;
  }
  return count;
}

// Every decode has its one token; runs take what they can of the others before any prefill does.
void StepPlanner::extend_runs() {
  for (size_t i = 0; has_runs_ && i < batch_.items.size(); ++i) {
    const int32_t count = std::min(step_.requests[i]->rest_count() - batch_.items[i].count, budget_);
    if (count > 0) extend_item(i, count);
  }
}

// Partners: as a decode of each, once all else of both is computed.
void StepPlanner::give_last_ids(Request& request) {
  Request& companion = *request.partner;
  const bool is_ready = request.rest_count() == 1 && companion.rest_count() == 1;
  if (!is_ready || budget_ < 2 || request.has_all_tokens()) return;
  if (!grow_or_preempt(request) || !grow_or_preempt(companion)) return;
  add_item(request, 1, 1);
  add_item(companion, 1, 1);
  held_ = std::min(held_, budget_);
}

// The same for decodes that are counted. The youngest give way, so a request that has got its block keeps it.
void StepPlanner::count_decodes() {
  const CountedDecodes& counted = state_.counted;
  while (!state_.counted.reserve_blocks()) preempt(*queues_.running().back());
  batch_.counted_decodes = counted.count();
  batch_.counted_context_tokens = counted.context_count();
  batch_.token_count = counted.count();
  step_.load.decode_count = counted.count();
  step_.load.decode_context_tokens = counted.context_count();
  budget_ -= counted.count();
}

// A block for the id to be computed; false: `request` itself was the youngest and gave way, or its partner.
bool StepPlanner::grow_or_preempt(Request& request) {
  while (!state_.tables.grow(request)) {
    Request& victim = *queues_.running().back();
    const bool gives_way = &victim == &request || victim.partner == &request;
    preempt(victim);
    if (gives_way) return false;
  }
  return true;
}

// With its partner.
void StepPlanner::preempt(Request& request) {
  queues_.preempt(request);
  if (request.partner != nullptr) queues_.preempt(*request.partner);
  batch_.preempted.push_back(request.caller_id());
  ++state_.stats.preemptions_total;
  preempted_ = true;
}

// Beside decodes: as much prefill as fits their time. Where the chunk starts matters little; the oldest's is
// taken for all.
void StepPlanner::limit_prefill() {
  if (config_.tpot_budget <= Duration::zero() || batch_.empty() || budget_ == 0) return;
  int32_t start = 0;
  int64_t wanted = count_run_tokens(start);
  for (const Request* r : queues_.prefilling()) {
    if (wanted == 0) start = r->computed_count;
    wanted += r->chunked_count();
  }
  if (wanted == 0 && queues_.waiting().empty()) return;
  seconds_max_ = std::chrono::duration<double>(config_.tpot_budget).count();
  const int32_t limit =
      std::max(kMinChunk, state_.cost.chunk_within(seconds_max_, step_.load, {start, budget_}));
  if (limit >= budget_) return;
  budget_ = limit;
  time_cuts_ = wanted > limit;
}

// The tokens of budget_ that a token of the request takes. Beside decodes a token whose row is scored counts
// as many as it takes time; the logits of a large vocabulary cost more than all else of a token.
int32_t StepPlanner::price_of(const Request& request) const {
  if (!request.scores_prompt || seconds_max_ == 0 || budget_ == 0) return 1;
  const StepCost::Chunk chunk{request.computed_count, budget_, /*scored=*/true};
  const int32_t count = std::max(1, state_.cost.chunk_within(seconds_max_, step_.load, chunk));
  return (budget_ + count - 1) / count;
}

void StepPlanner::plan_prefills() {
  for (Request* r : queues_.prefilling()) {
    if (budget_ == 0 || r->in_background()) return;
    give_chunk(*r);
  }
}

// A chunk for a request that holds its blocks; false: there are no tokens for it.
bool StepPlanner::give_chunk(Request& request) {
  const int32_t rest = request.chunked_count();
  if (rest == 0) return true;
  const int32_t price = price_of(request);
  if (oldest_ == nullptr) {
    const int32_t least = price > 1 ? kMinScoredChunk : 1;
    const int32_t count = std::min(rest, std::max((budget_ + 1) / 2 / price, least));
    oldest_ = &request;
    oldest_item_ = batch_.items.size();
    oldest_work_ = int64_t{rest} * price;
    add_item(request, count, price);
    const int64_t wanted = int64_t{rest - count} * price;
    time_cuts_ |= price > 1 && wanted > budget_;
    held_ = static_cast<int32_t>(std::min<int64_t>(wanted, budget_));
    return true;
  }
  const bool first = int64_t{rest} * price < oldest_work_ && !request.in_background();
  const int32_t usable = first ? budget_ : budget_ - held_;
  if (usable <= 0) return false;
  const int32_t count = std::min(rest, std::max(usable / price, 1));
  time_cuts_ |= price > 1 && count < rest;
  add_item(request, count, price);
  held_ = std::min(held_, budget_);
  return true;
}

// The oldest gets the tokens held for it that no request with less to do took.
void StepPlanner::finish_oldest() {
  if (held_ == 0) return;
  const int32_t rest = oldest_->chunked_count() - batch_.items[oldest_item_].count;
  extend_item(oldest_item_, std::min(rest, held_ / price_of(*oldest_)));
  held_ = 0;
}

// Oldest first. Requests whose prefix another one is computing stay where they are; those that do not fit may
// be passed, the oldest of them `max_passes` times. A static batch is admitted whole, whatever of its prompts
// this step will hold.
void StepPlanner::admit_waiting() {
  const size_t limit = queues_.running_limit();
  const RequestQueues::Queue &waiting = queues_.waiting(), &running = queues_.running();
  if (waiting.empty() || budget_ == 0 || running.size() >= limit) return;
  const bool in_batches = config_.batching == Batching::kStatic;
  Request* passed = nullptr;  // the oldest that does not fit
  size_t next = 0;
  bool started = false, may_go_on = true;
  size_t rows = 1;  // of the request; a companion stands behind it
  for (; may_go_on && next < waiting.size(); next += rows) {
    Request& r = *waiting[next];
    rows = r.partner == nullptr ? 1 : 2;
    if (budget_ == 0 || running.size() + rows > limit || state_.tables.available_count() == 0) break;
    const bool urgent = !r.in_background();
    if (!urgent && !in_batches) {
      if (!background_.has_turn(batch_)) break;
      serve_background();
    }
    if (state_.tables.lookup_is_stale(r)) queues_.lookup(r);
    const bool has_tokens =
        oldest_ == nullptr || budget_ > held_ || (urgent && r.pending_tokens * price_of(r) < oldest_work_);
    const bool in_turn = urgent || passed == nullptr;
    if (!r.lookup_awaits && has_tokens && in_turn && admit(r)) {
      if (passed != nullptr) ++passed->passed_count;
      start_running(r);
      started = true;
      continue;
    }
    if (r.lookup_awaits) continue;
    if (!has_tokens) {
      may_go_on = ++r.held_count < kHeldMax;
      continue;
    }
    no_room_ = no_room_ || urgent;
    if (passed == nullptr) passed = &r;
    may_go_on = passed->passed_count < config_.max_passes;
  }
  if (started) queues_.drop_started(next);
}

// Gives it the blocks of all its known ids, and its companion.
bool StepPlanner::admit(Request& request) {
  const int32_t reserve = reserve_.beside(request);
  if (request.partner == nullptr) return state_.tables.admit(request, reserve);
  Request& companion = *request.partner;
  const int32_t needed = state_.tables.blocks_for(companion.known_count);
  // The refusal that costs nothing comes first: many wait while there is no room.
  if (state_.tables.blocks_for(request.known_count) - request.lookup_found_count + needed + reserve >
      state_.tables.available_count())
    return false;
  queues_.lookup(companion);
  if (companion.lookup_awaits) {
    request.lookup_awaits = true;
    return false;
  }
  if (!state_.tables.admit(request, reserve + needed)) return false;
  if (state_.tables.admit(companion, reserve)) return true;
  // There is room, but a block that it had found went for its request's, and another is computing that one.
  state_.tables.release(request);
  request.lookup_awaits = true;
  return false;
}

// The requests of the background that run, behind all others and before those of their kind that wait.
void StepPlanner::serve_background() {
  if (background_served_) return;
  background_served_ = true;
  const RequestQueues::Queue& prefilling = queues_.prefilling();
  const auto first =
      std::find_if(prefilling.begin(), prefilling.end(), [](const Request* r) { return r->in_background(); });
  budget_ = std::min(budget_, held_ + background_.token_share(/*alone=*/batch_.empty()));
  for (auto it = first; it != prefilling.end() && budget_ > 0; ++it) give_chunk(**it);
}

// REQUIRES: it was admitted, and there are tokens for it, or it is of a static batch.
void StepPlanner::start_running(Request& request) {
  start_one(request);
  if (request.partner == nullptr) return;
  start_one(*request.partner);
  if (config_.batching == Batching::kMerged) give_last_ids(request);
}

void StepPlanner::start_one(Request& request) {
  queues_.start(request);
  if (request.first_cached_count < 0) {
    request.first_cached_count = request.cached_count;
    if (config_.enable_prefix_caching) {
      SchedulerStats& stats = state_.stats;
      stats.prefix_query_tokens_total += request.known_count;
      stats.prefix_hit_tokens_total += request.cached_count;
      stats.prefix_copied_tokens_total += request.cached_count % config_.block_size;
    }
  }
  if (config_.batching != Batching::kStatic) give_chunk(request);
  reserve_.add(request);
}

void StepPlanner::set_count(BatchItem& item, const Request& request, int32_t count) const {
  item.count = count;
  item.samples = count == request.rest_count();
  if (request.scores_prompt) {
    // The row of id p scores id p + 1.
    const int32_t begin = std::max(item.start, request.scored_count);
    const int32_t end = std::min(item.start + count, request.prompt_count - 1);
    item.scored = {begin - item.start, std::max(end - begin, 0)};
  }
  if (request.ids.empty()) return;
  item.ids = std::span<const TokenId>(request.ids)
                 .subspan(static_cast<size_t>(item.start), static_cast<size_t>(count));
}

// The item gets so many tokens more.
void StepPlanner::extend_item(size_t index, int32_t count) {
  BatchItem& item = batch_.items[index];
  const int32_t scored_before = item.scored.count;
  step_.load.add_prefill(item.start + item.count, count);
  set_count(item, *step_.requests[index], item.count + count);
  step_.load.scored_rows += item.scored.count - scored_before;
  batch_.token_count += count;
  budget_ -= count;
}

// `price`: what a token of it takes of the budget; the last may cost more than is left.
void StepPlanner::add_item(Request& request, int32_t count, int32_t price) {
  BatchItem& item = batch_.items.emplace_back();
  item.id = request.caller_id();
  item.is_companion = request.is_companion;
  item.start = request.computed_count;
  set_count(item, request, count);
  item.sample_position = request.emitted_count();
  item.blocks = request.blocks;
  if (request.copy_from >= 0) batch_.copies.push_back(state_.tables.copy_of(request));
  step_.requests.push_back(&request);
  batch_.token_count += count;
  budget_ -= static_cast<int32_t>(std::min<int64_t>(int64_t{count} * price, budget_));
  if (count == 1 && item.samples && item.sample_position > 0) {
    ++batch_.decode_count;
    step_.load.add_decode(item.start + 1);
  } else {
    step_.load.add_prefill(item.start, count);
    step_.load.scored_rows += item.scored.count;
  }
}

}  // namespace troupe
