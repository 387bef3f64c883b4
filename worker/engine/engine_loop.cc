// The compute thread: take commands → plan → launch → collect → accept → resolve → hand tokens on.

#include <algorithm>
#include <utility>

#include "worker/engine/engine_impl.h"

namespace troupe {

namespace {

// All other requests wait while one's forced tokens are found.
constexpr int32_t kRunMax = 256;
constexpr int64_t kSearchesMax = 4;

}  // namespace

void Engine::Impl::loop() {
  Commands commands;
  while (take_commands(commands)) {
    turn_began.store(now(), std::memory_order_relaxed);
    apply(commands);
    publish(commands);
    step();
    publish({});
    turn_began.store(TimePoint::max(), std::memory_order_relaxed);
  }
  for (Question& question : commands.questions) std::move(question)(nullptr);
}

// Waits while there is nothing to do; false: stop.
bool Engine::Impl::take_commands(Commands& commands) {
  commands.submissions.clear();
  commands.drops.clear();
  commands.unpins.clear();
  commands.questions.clear();
  commands.all = commands.background = {};
  if (!has_work() && !await_call(now() + options.idle_check)) {
    const Status status = scheduler.verify();
    if (!status.ok()) log.error("kv_blocks_inconsistent", {{"reason", to_std(status.ToString())}});
    await_call(TimePoint::max());
  }
  const MutexLock lock(mutex);
  std::swap(commands, pending);
  nudged = false;
  return !stopping;
}

// Returns false when it is `until` and the thread has not been called.
bool Engine::Impl::await_call(TimePoint until) {
  const MutexLock lock(mutex);
  while (!is_called()) {
    if (!wake.wait_until(mutex, until)) return is_called();
  }
  return true;
}

// Submissions come first: a drop or a pin may refer to one of them, and a dropped request pins nothing.
void Engine::Impl::apply(Commands& commands) {
  for (Submission& submission : commands.submissions) {
    const RequestId id = submission.request.id;
    sequences.emplace(id, std::move(submission.sequence));
    const Status status = scheduler.add(std::move(submission.request));
    if (status.ok()) continue;
    sequences.erase(id);
    text_out.fail({id}, status);
  }
  for (RequestId id : commands.drops) {
    scheduler.remove(id);
    sequences.erase(id);
  }
  for (const Hash128& name : commands.unpins) scheduler.unpin(name);
  for (Question& question : commands.questions) std::move(question)(&scheduler);
}

// `applied`: commands that the scheduler's numbers include from now on.
void Engine::Impl::publish(const Commands& applied) {
  metrics.stats(scheduler.stats());
  residency_publisher.publish(scheduler.residency(), scheduler.set_work(), !has_work(), now());
  const MutexLock lock(mutex);
  published.stats = scheduler.stats();
  queued -= applied.all;
  queued_background -= applied.background;
}

// Plans and launches a step. With a runner that runs ahead, the step before is collected while this one is
// computed, so the host's work between two steps costs the device nothing.
void Engine::Impl::step() {
  const TimePoint begin = now();
  const Batch& batch = scheduler.plan(begin);
  Status status;
  if (!batch.empty()) {
    prepare(batch);
    next.begin = begin;
    const std::function<void()> fill_masks = [this] {
      for (GrammarState* grammar : next.masked) grammar->fill_mask();
    };
    status = runner->launch(batch, {draws, shown, next.masked.empty() ? nullptr : &fill_masks, next.guided});
  }
  if (under_way) finish_step();
  if (batch.empty()) return;
  if (!status.ok()) return fail_step(batch, status);
  scheduler.advance();
  under_way = std::exchange(next, {});
  if (!runner->runs_ahead() || under_way->must_wait) finish_step();
}

void Engine::Impl::prepare(const Batch& batch) {
  draws.clear();
  shown.clear();
  int32_t item_row = 0;  // the item's first row within the step
  for (const BatchItem& item : batch.items) {
    Sequence& sequence = sequences.at(item.id);
    if (item.scored.count > 0) {
      next.scored.push_back({item.id, item_row + item.scored.first, item.scored.count});
    }
    item_row += static_cast<int32_t>(item.ids.size());
    if (item.samples && sequence.pooler() != nullptr) next.scored.push_back({item.id, item_row - 1, 1});
    if (!item.samples) continue;
    if (item.is_companion) {
      prepare_companion(item, sequence);
      continue;
    }
    const auto position = static_cast<uint64_t>(item.sample_position);
    if (position == sequence.first_position()) sequence.cached_count = scheduler.cached_count(item.id);
    Drawn& drawn = next.drawn.emplace_back(Drawn{item.id, position, -1, sequence.rewind_count()});
    next.must_wait |= sequence.needs_last();
    if (sequence.is_scored(position)) {
      drawn.shown_row = static_cast<int32_t>(shown.size());
      shown.push_back(static_cast<int32_t>(draws.size()));
    }
    draws.push_back(sequence.draw_at(position, -1 - item.ids.back()));
    if (!draws.back().mask.empty()) next.masked.push_back(sequence.grammar());
    next.must_wait |= draws.back().needs_host();
  }
  next.must_wait |= !shown.empty() || !next.scored.empty();
}

// The row before it is its request's. Which token its own row comes to does not matter.
void Engine::Impl::prepare_companion(const BatchItem& item, const Sequence& sequence) {
  const auto row = static_cast<int32_t>(draws.size());
  next.guided.push_back({row - 1, row, sequence.guidance_scale()});
  next.drawn.push_back(
      {.id = item.id, .position = 0, .shown_row = -1, .rewind_count = 0, .of_companion = true});
  draws.push_back({.draw = {.temperature = 0}});
}

void Engine::Impl::finish_step() {
  accept(runner->collect());
  score_prompts();
  const TimePoint end = now();
  scheduler.resolve(tokens, end, finished);
  publish_pins();
  fail_unsampled();
  mark_length_stops();
  attach_prompt_scores();
  for (TokenEvent& event : events) event.at = end;
  for (RequestId id : finished) sequences.erase(id);
  if (!events.empty()) text_out.push(events);
  metrics.step(end - std::max(under_way->begin, last_end));
  last_end = end;
  under_way.reset();
}

// Comes before a request's last piece: who asked for a pin then looks whether it is there.
void Engine::Impl::publish_pins() {
  const MutexLock lock(mutex);
  if (scheduler.pin_change_count() == published.pin_change_count) return;
  published.pin_change_count = scheduler.pin_change_count();
  const std::vector<Hash128> names = scheduler.pins();
  published.pins = {names.begin(), names.end()};
}

// Decides whether the event's token ends the answer, and hands the event on.
void Engine::Impl::take_token(Sequence& sequence, TokenEvent& event, uint64_t position, StepToken& result) {
  const Sequence::End end = sequence.end_at(event.token, options.eos_token_ids);
  result.finished = end != Sequence::End::kNone;
  event.is_stop_token = end == Sequence::End::kRequest;
  if (result.finished) event.finish = FinishReason::kStop;
  sequence.settle(std::move(event), position, result, events);
}

// The tokens that must follow the one drawn: the next step computes them and draws behind them.
void Engine::Impl::append_forced(Sequence& sequence, const Drawn& drawn, StepToken& result) {
  const auto count_max = static_cast<size_t>(std::clamp(scheduler.tokens_left(drawn.id), 0, kRunMax));
  const int64_t searches_end = sequence.forced_run()->search_count() + kSearchesMax;
  size_t count = 0;
  for (; !result.finished && count < count_max && sequence.forced_run()->search_count() < searches_end;
       ++count) {
    const uint64_t position = drawn.position + 1 + count;
    const std::optional<TokenId> token = sequence.forced(position);
    if (!token) break;
    TokenEvent event;
    event.id = drawn.id;
    event.cached_count = sequence.cached_count;
    event.token = sequence.accept(*token, position);
    take_token(sequence, event, position, result);
  }
  result.run = sequence.forced_run()->last(count);
  metrics.forced(count);
}

void Engine::Impl::accept(const StepOutput& output) {
  tokens.clear();
  events.clear();
  for (const Drawn& drawn : under_way->drawn) {
    const auto found = sequences.find(drawn.id);
    const TokenId token = output.tokens[tokens.size()];
    StepToken& result = tokens.emplace_back(StepToken{.id = drawn.id, .token = token});
    if (drawn.of_companion) continue;
    result.finished = result.corrupt = token == kNoDraw;
    if (found == sequences.end()) continue;  // it ended or was cancelled before this step was done
    Sequence& sequence = found->second;
    if (drawn.rewind_count != sequence.rewind_count()) {  // the tokens before it were taken back
      result.finished = result.corrupt = false;
      continue;
    }
    if (result.corrupt) continue;
    TokenEvent event;
    event.id = drawn.id;
    event.cached_count = sequence.cached_count;
    if (sequence.prompt_only()) {
      event.finish = FinishReason::kLength;
      result.finished = true;
      events.push_back(std::move(event));
      continue;
    }
    event.token = result.token = sequence.accept(token, drawn.position);
    if (drawn.shown_row >= 0) {
      const auto vocab = static_cast<size_t>(output.logits.shape[1]);
      const float* const row = output.logits.as<const float>() + static_cast<size_t>(drawn.shown_row) * vocab;
      event.score = std::make_unique<TokenScore>(sequence.score({row, vocab}, event.token));
    }
    take_token(sequence, event, drawn.position, result);
    if (sequence.forced_run() != nullptr) append_forced(sequence, drawn, result);
  }
}

// Runs after accept(): it requests other rows from the runner, which replace the rows it showed.
void Engine::Impl::score_prompts() {
  for (const ScoredRows& rows : under_way->scored) {
    Sequence& sequence = sequences.at(rows.id);
    if (Pooler* const pooler = sequence.pooler()) {
      runner->visit_hidden(rows.first, rows.count,
                           [pooler](int32_t, std::span<const float> row) { pooler->add(row); });
      continue;
    }
    runner->visit_rows(rows.first, rows.count,
                       [&](int32_t, std::span<const float> logits) { sequence.add_prompt_score(logits); });
  }
}

void Engine::Impl::attach_prompt_scores() {
  for (TokenEvent& event : events) {
    Sequence& sequence = sequences.at(event.id);
    if (sequence.pooler() != nullptr) event.pooled = sequence.pooler()->vector();
    auto scores = sequence.take_prompt_scores();
    if (!scores.empty()) event.prompt_scores = std::make_unique<std::vector<TokenScore>>(std::move(scores));
  }
}

// The fault is of the model or of this request's KV: the others of its step go on.
void Engine::Impl::fail_unsampled() {
  std::vector<RequestId> unsampled;
  for (const StepToken& result : tokens) {
    const auto found = result.corrupt ? sequences.find(result.id) : sequences.end();
    if (found == sequences.end()) continue;
    if (GrammarState* const grammar = found->second.grammar()) {
      text_out.fail({result.id}, grammar->draw_error());
    } else {
      unsampled.push_back(result.id);
    }
    sequences.erase(found);
  }
  if (unsampled.empty()) return;
  metrics.unsampled(unsampled.size());
  log.error("no_token_drawn", {{"requests", unsampled.size()}, {"reason", "logits that are no numbers"}});
  text_out.fail(unsampled, absl::DataLossError("the model computed logits that are no numbers"));
}

// Marks the last events of requests that the scheduler ended without a stop token.
void Engine::Impl::mark_length_stops() {
  std::erase_if(finished, [this](RequestId id) { return !sequences.contains(id); });
  if (finished.empty()) return;
  for (const RequestId id : finished) sequences.at(id).release_all(events);
  absl::flat_hash_set<RequestId> unmarked(finished.begin(), finished.end());
  for (auto event = events.rbegin(); event != events.rend(); ++event) {
    if (unmarked.erase(event->id) == 0 || event->finish != FinishReason::kNone) continue;
    event->finish = FinishReason::kLength;
  }
}

void Engine::Impl::fail_step(const Batch& batch, const Status& error) {
  std::vector<RequestId> ids;
  for (const BatchItem& item : batch.items) {
    if (sequences.erase(item.id) > 0) ids.push_back(item.id);
  }
  next = {};
  scheduler.abandon();
  for (RequestId id : ids) scheduler.remove(id);
  metrics.step_error();
  log.error("step_failed", {{"requests", ids.size()}, {"reason", to_std(error.ToString())}});
  text_out.fail(ids, error);
}

}  // namespace troupe
