// The compute thread: take commands → plan → run → accept → commit → hand tokens on.

#include <utility>

#include "worker/engine_impl.h"

namespace troupe {

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
}

// Waits while there is nothing to do; false: stop.
bool Engine::Impl::take_commands(Commands& commands) {
  commands.submissions.clear();
  commands.drops.clear();
  commands.unpins.clear();
  commands.prompt_tokens = 0;
  const auto called = [this] { return stopping || nudged || !pending.empty(); };
  std::unique_lock lock(mutex);
  if (!has_work() && !wake.wait_for(lock, options.idle_check, called)) {
    lock.unlock();
    const Status status = scheduler.verify();
    if (!status.ok()) log.error("kv_blocks_inconsistent", {{"reason", to_std(status.ToString())}});
    lock.lock();
    wake.wait(lock, called);
  }
  std::swap(commands, pending);
  nudged = false;
  return !stopping;
}

// Submissions first: a drop may be of one of them, and a pin of one that was dropped comes to nothing.
void Engine::Impl::apply(Commands& commands) {
  for (Submission& submission : commands.submissions) {
    const RequestId id = submission.request.id;
    sequences.emplace(id, std::move(submission.sequence));
    const Status status = scheduler.add(std::move(submission.request), now());
    if (status.ok()) continue;
    sequences.erase(id);
    text_out.fail({id}, status);
  }
  for (RequestId id : commands.drops) {
    scheduler.remove(id);
    sequences.erase(id);
  }
  for (const Hash128& name : commands.unpins) scheduler.unpin(name);
}

// `applied`: commands that the scheduler's numbers contain from now on.
void Engine::Impl::publish(const Commands& applied) {
  metrics.stats(scheduler.stats());
  news.publish(scheduler.residency(), scheduler.set_work(), !has_work(), now());
  std::lock_guard lock(mutex);
  published = scheduler.stats();
  queued_count -= static_cast<int64_t>(applied.submissions.size());
  queued_tokens -= applied.prompt_tokens;
}

void Engine::Impl::step() {
  const TimePoint begin = now();
  const Batch& batch = scheduler.plan(begin);
  if (batch.empty()) return;
  prepare_draws(batch);
  const auto output = runner->run(batch, {draws, shown});
  if (!output.ok()) {
    fail_step(batch, output.status());
    return;
  }
  accept(batch, *output);
  score_prompts(batch);
  const TimePoint end = now();
  scheduler.commit(tokens, end, finished);
  for (TokenEvent& event : events) event.at = end;
  mark_length_stops();
  for (RequestId id : finished) sequences.erase(id);
  if (!events.empty()) text_out.push(events);
  metrics.step(end - begin);
}

void Engine::Impl::prepare_draws(const Batch& batch) {
  draws.clear();
  shown.clear();
  for (const BatchItem& item : batch.items) {
    if (!item.samples) continue;
    const Sequence& sequence = sequences.at(item.id);
    if (sequence.is_scored()) shown.push_back(static_cast<int32_t>(draws.size()));
    draws.push_back(sequence.draw_at(static_cast<uint64_t>(item.sample_position)));
  }
}

void Engine::Impl::accept(const Batch& batch, const StepOutput& output) {
  tokens.clear();
  events.clear();
  size_t shown_count = 0;
  for (const BatchItem& item : batch.items) {
    if (!item.samples) continue;
    const TokenId drawn = output.tokens[events.size()];
    Sequence& sequence = sequences.at(item.id);
    TokenEvent& event = events.emplace_back();
    event.id = item.id;
    const auto position = static_cast<uint64_t>(item.sample_position);
    if (position == sequence.first_position()) sequence.cached_count = scheduler.cached_count(item.id);
    event.cached_count = sequence.cached_count;
    if (sequence.prompt_only()) {
      event.finish = FinishReason::kLength;
      tokens.push_back({item.id, 0, /*finished=*/true});
      continue;
    }
    event.token = sequence.accept(drawn, position);
    if (sequence.is_scored()) {
      const auto vocab = static_cast<size_t>(output.logits.shape[1]);
      const float* const row = output.logits.as<const float>() + shown_count++ * vocab;
      event.score = std::make_unique<TokenScore>(sequence.score({row, vocab}, event.token));
    }
    const bool stops = sequence.stops(event.token, options.eos_token_ids);
    if (stops) event.finish = FinishReason::kStop;
    tokens.push_back({item.id, event.token, stops});
  }
}

// After accept(): it asks the runner for other rows, which take the place of the sampled ones.
void Engine::Impl::score_prompts(const Batch& batch) {
  int32_t item_row = 0;  // the item's first of the step's
  size_t next_event = 0;
  for (const BatchItem& item : batch.items) {
    Sequence& sequence = sequences.at(item.id);
    if (item.scored.count > 0) {
      runner->visit_rows(item_row + item.scored.first, item.scored.count,
                         [&](int32_t, std::span<const float> logits) { sequence.add_prompt_score(logits); });
    }
    item_row += static_cast<int32_t>(item.ids.size());
    if (!item.samples) continue;
    auto scores = sequence.take_prompt_scores();
    if (!scores.empty()) {
      events[next_event].prompt_scores = std::make_unique<std::vector<TokenScore>>(std::move(scores));
    }
    ++next_event;
  }
}

// Those the scheduler ended though no stop token did. `finished` is in the events' order.
void Engine::Impl::mark_length_stops() {
  size_t next = 0;
  for (TokenEvent& event : events) {
    if (next == finished.size() || finished[next] != event.id) continue;
    if (event.finish == FinishReason::kNone) event.finish = FinishReason::kLength;
    ++next;
  }
}

void Engine::Impl::fail_step(const Batch& batch, const Status& error) {
  std::vector<RequestId> ids;
  for (const BatchItem& item : batch.items) ids.push_back(item.id);
  scheduler.abandon();
  for (RequestId id : ids) {
    scheduler.remove(id);
    sequences.erase(id);
  }
  metrics.step_error();
  log.error("step_failed", {{"requests", ids.size()}, {"reason", to_std(error.ToString())}});
  text_out.fail(ids, error);
}

}  // namespace troupe
