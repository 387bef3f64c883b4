// Who is computed in the next step. First every decode, for they are what somebody is reading; then prefill
// chunks with the tokens that are left. Of those the oldest prefill has half for sure. The other half it has
// too where nobody needs fewer tokens than it does: so a prompt of 8,000 tokens is not slowed down by others
// of its kind, and one that misses five tokens of a cached persona does not wait for it.
//
// Where steps are not merged it is the other way round: prompts first, decodes where there is none. So
// whoever asks is answered soon, and whoever is answered waits for all who ask.

#include <algorithm>
#include <chrono>

#include "worker/schedule/scheduler_impl.h"

namespace troupe {

namespace {

// However slow the machine: a prefill goes on by this many tokens a step.
constexpr int32_t kMinChunk = 32;
// Of a prompt that is scored, whose rows may take a hundred times as long.
constexpr int32_t kMinScoredChunk = 8;
// A request for which there were no prefill tokens in so many steps lets nobody pass any more.
constexpr int32_t kHeldMax = 64;
// Admission reckons with the length that half of a set's answers stay within. Many are admitted side by side,
// what is asked for is the peak of all together (kv_forecast.h), and each keeps a block besides: more reserve
// (the 0.9 quantile) preempted no less and took a quarter more steps.
constexpr double kLengthQuantile = 0.5;
// What an answer is taken to need before any was seen.
constexpr int32_t kUnknownLength = 64;

}  // namespace

void Scheduler::Impl::plan_step(TimePoint now) {
  begin_plan(now);
  bool leaves_some = true;  // for prompts in the background
  if (config.batching == Batching::kMerged) {
    plan_merged();
  } else {
    leaves_some = plan_prompts();
  }
  if (background_count > 0) {
    if (leaves_some) serve_background();
    claim_room();
  }
  finish_oldest();
  stats.budget_limited_steps_total += time_cuts;
}

void Scheduler::Impl::begin_plan(TimePoint now) {
  batch.items.clear();
  batch.copies.clear();
  batch.token_count = 0;
  batch.decode_count = 0;
  batch.counted_decodes = 0;
  batch.counted_context_tokens = 0;
  batch.preempted.clear();
  batch_requests.clear();
  planned_at = now;
  load = {};
  budget = config.max_num_batched_tokens;
  seconds_max = 0;
  time_cuts = false;
  oldest = nullptr;
  held = 0;
  if (makes_way) make_way();
  preempted_now = false;
  no_room = false;
  background_served = false;
}

void Scheduler::Impl::plan_merged() {
  plan_decodes();
  limit_prefill();
  plan_prefills();
  // What preemption freed is for those who run; admitting now would only preempt again.
  if (!preempted_now) admit_waiting();
}

// Prompts, or decodes if there is none; true: no decodes.
bool Scheduler::Impl::plan_prompts() {
  const bool in_batches = config.batching == Batching::kStatic;
  if (in_batches && running.empty()) admit_waiting();
  plan_prefills();
  if (!in_batches) admit_waiting();
  if (!batch.empty()) return true;
  plan_decodes();
  return batch.empty();
}

void Scheduler::Impl::plan_decodes() {
  if (config.itemize_decodes) {
    list_decodes();
  } else {
    count_decodes();
  }
}

void Scheduler::Impl::list_decodes() {
  // `running` shrinks at its end while older requests take their blocks.
  for (size_t i = 0; i < running.size(); ++i) {
    Request& r = *running[i];
    if (r.phase == RequestPhase::kDecode && budget > 0 && grow_or_preempt(r)) add_item(r, 1, 1);
  }
}

// The same, of those that are only counted: only at the end of a block is there anything to do for one. Those
// who give way are the youngest, so whoever has got its block keeps it.
void Scheduler::Impl::count_decodes() {
  while (owed_ahead < clock.at_block_end()) {
    if (tables.owe_block()) {
      owed_ahead += 1;
    } else {
      preempt(*running.back());
    }
  }
  batch.counted_decodes = clock.count();
  batch.counted_context_tokens = clock.context_count();
  batch.token_count = batch.counted_decodes;
  load.decode_count = batch.counted_decodes;
  load.decode_context_tokens = batch.counted_context_tokens;
  budget -= batch.counted_decodes;
}

// A block for the id to be computed; false: `request` itself was the youngest and gave way.
bool Scheduler::Impl::grow_or_preempt(Request& request) {
  while (!tables.grow(request)) {
    Request& victim = *running.back();
    preempt(victim);
    if (&victim == &request) return false;
  }
  return true;
}

// REQUIRES: `request` is the last of `running`.
void Scheduler::Impl::preempt(Request& request) {
  stop_running(request);
  tables.release(request);
  batch.preempted.push_back(request.id);
  request.phase = RequestPhase::kWaiting;
  ++request.preemption_count;
  request.passed_count = 0;
  request.held_count = 0;
  ++stats.preemptions_total;
  preempted_now = true;
  look_up(request);
  insert_by_arrival(waiting, &request);
}

// Beside decodes: as much prefill as fits their time. Where the chunk starts matters little; the oldest's is
// taken for all.
void Scheduler::Impl::limit_prefill() {
  if (config.tpot_budget <= Duration::zero() || batch.empty() || budget == 0) return;
  int32_t start = 0;
  int64_t wanted = 0;
  for (const Request* r : prefilling) {
    if (wanted == 0) start = r->computed_count;
    wanted += rest_of(*r);
  }
  if (wanted == 0 && waiting.empty()) return;
  seconds_max = std::chrono::duration<double>(config.tpot_budget).count();
  const int32_t limit = std::max(kMinChunk, cost.chunk_within(seconds_max, load, {start, budget}));
  if (limit >= budget) return;
  budget = limit;
  time_cuts = wanted > limit;
}

// What a token of the request takes of `budget`. Beside decodes a token whose row is scored takes as many
// others' share as it takes time; the logits of a large vocabulary cost more than all else of a token.
int32_t Scheduler::Impl::price_of(const Request& request) const {
  if (!request.scores_prompt || seconds_max == 0 || budget == 0) return 1;
  const int32_t count =
      std::max(1, cost.chunk_within(seconds_max, load, {request.computed_count, budget, /*scored=*/true}));
  return (budget + count - 1) / count;
}

void Scheduler::Impl::plan_prefills() {
  for (Request* r : prefilling) {
    if (budget == 0 || r->in_background()) return;
    give_chunk(*r);
  }
}

// A chunk for a request that holds its blocks or is about to; false: there are no tokens for it.
bool Scheduler::Impl::give_chunk(Request& request) {
  const int32_t rest = rest_of(request);
  const int32_t price = price_of(request);
  if (oldest == nullptr) {
    const int32_t least = price > 1 ? kMinScoredChunk : 1;
    const int32_t count = std::min(rest, std::max((budget + 1) / 2 / price, least));
    oldest = &request;
    oldest_item = batch.items.size();
    oldest_work = int64_t{rest} * price;
    add_item(request, count, price);
    const int64_t wanted = int64_t{rest - count} * price;
    time_cuts |= price > 1 && wanted > budget;
    held = static_cast<int32_t>(std::min<int64_t>(wanted, budget));
    return true;
  }
  const bool first = int64_t{rest} * price < oldest_work && !request.in_background();
  const int32_t usable = first ? budget : budget - held;
  if (usable <= 0) return false;
  const int32_t count = std::min(rest, std::max(usable / price, 1));
  time_cuts |= price > 1 && count < rest;
  add_item(request, count, price);
  held = std::min(held, budget);
  return true;
}

// The oldest has what nobody with less to do took.
void Scheduler::Impl::finish_oldest() {
  if (held == 0) return;
  BatchItem& item = batch.items[oldest_item];
  const int32_t count = std::min(rest_of(*oldest) - item.count, held / price_of(*oldest));
  held = 0;
  const int32_t scored_before = item.scored.count;
  load.add_prefill(item.start + item.count, count);
  set_count(item, *oldest, item.count + count);
  load.scored_rows += item.scored.count - scored_before;
  batch.token_count += count;
  budget -= count;
}

// Oldest first. Those whose prefix is in the making are left where they are; those that do not fit may be
// passed, the oldest of them `max_passes` times. A batch is admitted whole, whatever of its prompts this step
// will hold.
void Scheduler::Impl::admit_waiting() {
  const size_t limit = running_limit();
  if (waiting.empty() || budget == 0 || running.size() >= limit) return;
  const bool in_batches = config.batching == Batching::kStatic;
  has_forecast = false;
  Request* passed = nullptr;  // the oldest that does not fit
  size_t kept = 0, next = 0;
  for (; next < waiting.size(); ++next) {
    if (budget == 0 || running.size() >= limit || tables.available_count() == 0) break;
    Request* r = waiting[next];
    const bool urgent = !r->in_background();
    if (!urgent && !in_batches) {
      if (!has_place_for_background()) break;
      serve_background();
    }
    if (tables.look_is_stale(*r)) look_up(*r);
    const bool has_tokens =
        oldest == nullptr || budget > held || (urgent && r->pending_tokens * price_of(*r) < oldest_work);
    const bool in_turn = urgent || passed == nullptr;
    if (!r->look_awaits && has_tokens && in_turn && tables.admit(*r, reserve_count(*r))) {
      if (passed != nullptr) ++passed->passed_count;
      start_running(*r);
      continue;
    }
    waiting[kept++] = r;
    if (r->look_awaits) continue;
    if (!has_tokens) {
      if (++r->held_count < kHeldMax) continue;
      ++next;
      break;
    }
    no_room = no_room || urgent;
    if (passed == nullptr) passed = r;
    if (passed->passed_count >= config.max_passes) {
      ++next;
      break;
    }
  }
  waiting.erase(waiting.begin() + static_cast<ptrdiff_t>(kept),
                waiting.begin() + static_cast<ptrdiff_t>(next));
}

// REQUIRES: it was admitted, and there are tokens for it, or it is of a batch.
void Scheduler::Impl::start_running(Request& request) {
  request.phase = RequestPhase::kPrefill;
  set_pending(request, rest_of(request));
  if (request.first_cached_count < 0) {
    request.first_cached_count = request.cached_count;
    if (config.enable_prefix_caching) {
      stats.prefix_query_tokens_total += request.known_count;
      stats.prefix_hit_tokens_total += request.cached_count;
      stats.prefix_copied_tokens_total += request.cached_count % config.block_size;
    }
  }
  insert_by_arrival(running, &request);
  running_new_count += request.max_new_count;
  insert_by_arrival(prefilling, &request);
  if (config.batching != Batching::kStatic) give_chunk(request);
  if (has_forecast) forecast.add(forecast_of(request));
}

void Scheduler::Impl::set_count(BatchItem& item, const Request& request, int32_t count) const {
  item.count = count;
  item.samples = count == rest_of(request);
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

// `price`: what a token of it takes of the budget; the last may cost more than is left.
void Scheduler::Impl::add_item(Request& request, int32_t count, int32_t price) {
  BatchItem& item = batch.items.emplace_back();
  item.id = request.id;
  item.start = request.computed_count;
  set_count(item, request, count);
  item.sample_position = emitted_by(request);
  item.blocks = request.blocks;
  if (request.copy_from >= 0) batch.copies.push_back(tables.copy_of(request));
  batch_requests.push_back(&request);
  batch.token_count += count;
  budget -= static_cast<int32_t>(std::min<int64_t>(int64_t{count} * price, budget));
  if (count == 1 && item.samples && item.sample_position > 0) {
    ++batch.decode_count;
    load.add_decode(item.start + 1);
  } else {
    load.add_prefill(item.start, count);
    load.scored_rows += item.scored.count;
  }
}

// ---------------------------------------------------------------- what those who run will need

// Tokens that it is expected to emit from now on; at least one.
int32_t Scheduler::Impl::remaining_of(Request& request) {
  const int32_t emitted = emitted_by(request);
  const int32_t most = std::max(1, request.max_new_count - emitted);
  if (config.output_reserve == OutputReserve::kMax) return most;
  if (emitted >= request.expected_until) {
    const int32_t predicted = lengths.predict(request.set, emitted, kLengthQuantile);
    request.expected_count = predicted > 0 ? predicted : emitted + kUnknownLength;
    // What goes on is longer than what is expected of one that begins.
    request.expected_until = std::min(request.expected_count, emitted + config.block_size);
  }
  return std::clamp(request.expected_count - emitted, 1, most);
}

KvForecast::Request Scheduler::Impl::forecast_of(Request& request) {
  const int32_t known = request.known_count;
  // One that decodes has the block for its last id, or takes it with the next decodes.
  const int32_t blocks = tables.blocks_for(known);
  // The blocks it found are others' too, more often than not.
  return {.remaining_count = remaining_of(request),
          .room_count = blocks * config.block_size - known,
          .own_count = (blocks - request.cached_count / config.block_size) * config.block_size};
}

void Scheduler::Impl::forecast_running() {
  forecast_requests.clear();
  for (Request* r : running) {
    if (r->on_clock) clock.settle(*r);
    forecast_requests.push_back(forecast_of(*r));
  }
  forecast.reset(forecast_requests);
  has_forecast = true;
}

// Blocks that must stay available when `newcomer` is admitted.
int32_t Scheduler::Impl::reserve_count(Request& newcomer) {
  if (config.output_reserve == OutputReserve::kNone) return count_of(running.size());
  // Alone it needs nobody's leave: add() saw to it that it fits.
  if (running.empty()) return 0;
  // Where even the longest answers of all fit side by side, nobody need be asked how long his will be.
  const int64_t most = (running_new_count + newcomer.max_new_count) / config.block_size +
                       2 * (int64_t{count_of(running.size())} + 1);
  const int64_t needed = tables.blocks_for(newcomer.known_count);
  if (needed + most < tables.available_count()) return static_cast<int32_t>(most);
  if (!has_forecast) forecast_running();
  // A block each at least: whoever is expected to end may go on.
  return std::max(count_of(running.size()), forecast.reserve_count(forecast_of(newcomer)));
}

}  // namespace troupe
