// Threads and what they share:
//   callers ──commands──▶ compute thread ──tokens──▶ text-out thread (text_out.h) ──▶ sinks
//      └────────opened streams, cancellations──────────────▲      └──drops (stop strings)──▶ commands
// The scheduler, the runner and `sequences_` belong to the compute thread alone. `mutex_` guards the command
// queue and the published numbers; it is held for a few moves and taken at most twice a step. Lock order:
// mutex_, then TextOut's own. Both queues are bounded: commands by the number of open requests (submit
// refuses beyond max_waiting), tokens by TextOut, whose push() makes the compute thread wait.

#include "worker/engine.h"

#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "worker/engine_metrics.h"
#include "worker/sequence.h"
#include "worker/text_out.h"

namespace troupe {

namespace {

// The engine keeps max_waiting itself; in the scheduler preempted requests wait too, and must find room.
SchedulerConfig with_room_for_preempted(SchedulerConfig config) {
  config.max_waiting += config.max_num_seqs;
  return config;
}

}  // namespace

struct Engine::Impl {
  struct Submission {
    NewRequest request;
    Sequence sequence;
    NewStream stream;
  };
  struct Commands {
    std::vector<Submission> submissions;
    std::vector<RequestId> drops;
    int64_t prompt_tokens = 0;  // of the submissions
    bool empty() const { return submissions.empty() && drops.empty(); }
  };

  Impl(std::unique_ptr<StepRunner> r, const Tokenizer* t, Options o, Metrics& m, const Logger& l)
      : runner(std::move(r)),
        options(std::move(o)),
        log(l),
        metrics(m, options.model_name),
        scheduler(with_room_for_preempted(options.scheduler)),
        news([this] {
          std::lock_guard lock(mutex);
          nudged = true;
          wake.notify_one();
        }),
        published(scheduler.stats()),
        text_out({.tokenizer = t,
                  .metrics = &metrics,
                  .pending_tokens_max = 64 * static_cast<size_t>(options.scheduler.max_num_seqs),
                  .on_stop_string = [this](RequestId id) { drop(id); }}) {}

  void loop();
  bool take_commands(Commands& commands);
  void apply(Commands& commands);
  void publish(const Commands& applied);
  void step();
  StatusOr<Submission> make_submission(EngineRequest request, EngineSink sink) const;
  void sample(const Batch& batch, const Tensor& output);
  void score_prompts(const Batch& batch);
  void mark_length_stops();
  void fail_step(const Batch& batch, const Status& error);
  void drop(RequestId id);  // any thread: compute no more of it
  bool has_work() const { return scheduler.stats().running + scheduler.stats().waiting > 0; }
  TimePoint now() const { return clock.now(); }

  // Compute thread only, once started.
  const std::unique_ptr<StepRunner> runner;
  const Options options;
  const Logger& log;
  EngineMetrics metrics;
  Scheduler scheduler;
  absl::flat_hash_map<RequestId, Sequence> sequences;
  std::vector<StepToken> tokens;   // of the current step, in the batch's order
  std::vector<TokenEvent> events;  // beside them
  std::vector<float> scratch;      // a row of logits
  std::vector<RequestId> finished;

  const SteadyClock clock;
  CacheNews news;

  mutable std::mutex mutex;  // guards down to `stopping`
  std::condition_variable wake;
  Commands pending;
  SchedulerStats published;
  int64_t queued_count = 0;   // submitted, not in `published` yet
  int64_t queued_tokens = 0;  // their prompts
  RequestId next_id = 1;
  bool nudged = false;  // the compute thread is wanted, if only to publish
  bool stopping = false;
  TextOut text_out;
  std::thread thread;
};

Engine::Engine(std::unique_ptr<StepRunner> runner, const Tokenizer* tokenizer, Options options,
               Metrics& metrics, const Logger& log)
    : impl_(std::make_unique<Impl>(std::move(runner), tokenizer, std::move(options), metrics, log)) {}

Engine::~Engine() {
  stop();
}

void Engine::start() {
  impl_->text_out.start();
  impl_->thread = std::thread([impl = impl_.get()] { impl->loop(); });
}

void Engine::stop() {
  {
    std::lock_guard lock(impl_->mutex);
    impl_->stopping = true;
  }
  impl_->wake.notify_one();
  // TextOut first told to stop would drop tokens; a compute thread that waits for it still finds it at work.
  if (impl_->thread.joinable()) impl_->thread.join();
  impl_->text_out.stop(absl::CancelledError("the worker is shutting down"));
}

StatusOr<Engine::Impl::Submission> Engine::Impl::make_submission(EngineRequest request,
                                                                 EngineSink sink) const {
  const int64_t prompt_count = static_cast<int64_t>(request.prompt.size());
  TROUPE_RETURN_IF_ERROR(check_possible(options.scheduler, prompt_count, request.max_new_count));
  if (request.logprobs && !runner->has_logits())
    return absl::UnimplementedError("this worker has no log-probabilities to tell");
  NewStream stream;
  stream.prompt_count = prompt_count;
  stream.stop_strings = std::move(request.stop_strings);
  stream.wants_logprobs = request.logprobs.has_value();
  stream.continues_text = request.continues_text;
  stream.sink = std::move(sink);
  stream.submitted = now();
  NewRequest scheduled;
  scheduled.max_new_count = request.max_new_count;
  scheduled.scores_prompt = request.logprobs && request.prompt_logprobs;
  scheduled.salt = request.salt;
  scheduled.set = request.set;
  scheduled.session = request.session;
  scheduled.prefix_count = request.prefix_count;
  Sequence sequence(request);
  scheduled.prompt = std::move(request.prompt);
  return Submission{std::move(scheduled), std::move(sequence), std::move(stream)};
}

StatusOr<RequestId> Engine::submit(EngineRequest request, EngineSink sink) {
  std::vector<EngineRequest> group;
  group.push_back(std::move(request));
  TROUPE_ASSIGN_OR_RETURN(const std::vector<RequestId> ids, submit(std::move(group), sink));
  return ids.front();
}

StatusOr<std::vector<RequestId>> Engine::submit(std::vector<EngineRequest> group, const EngineSink& sink) {
  Impl& e = *impl_;
  std::vector<Impl::Submission> submissions;
  for (EngineRequest& request : group) {
    const auto choice = static_cast<int32_t>(submissions.size());
    auto choice_sink = [sink, choice](EngineOutput piece) {
      piece.choice = choice;
      sink(std::move(piece));
    };
    TROUPE_ASSIGN_OR_RETURN(Impl::Submission submission,
                            e.make_submission(std::move(request), std::move(choice_sink)));
    submissions.push_back(std::move(submission));
  }
  std::vector<RequestId> ids;
  {
    std::lock_guard lock(e.mutex);
    if (e.stopping) return absl::UnavailableError("the worker is shutting down");
    const SchedulerConfig& limits = e.options.scheduler;
    const int64_t held_count = e.published.running + e.published.waiting + e.queued_count;
    if (held_count + static_cast<int64_t>(group.size()) > limits.max_num_seqs + limits.max_waiting) {
      return absl::ResourceExhaustedError("too many requests are waiting already; try again later");
    }
    for (Impl::Submission& submission : submissions) {
      ids.push_back(e.next_id++);
      submission.stream.id = submission.request.id = ids.back();
      const auto prompt_count = static_cast<int64_t>(submission.request.prompt.size());
      ++e.queued_count;
      e.queued_tokens += prompt_count;
      e.pending.prompt_tokens += prompt_count;
      e.text_out.open(std::move(submission.stream));
      e.pending.submissions.push_back(std::move(submission));
    }
  }
  e.wake.notify_one();
  return ids;
}

void Engine::cancel(RequestId id) {
  if (impl_->text_out.cancel(id)) impl_->drop(id);
}

LoadReport Engine::load() const {
  const Impl& e = *impl_;
  LoadReport report;
  report.max_num_seqs = e.options.scheduler.max_num_seqs;
  report.block_size = e.options.scheduler.block_size;
  e.news.describe(report);
  std::lock_guard lock(e.mutex);
  const SchedulerStats& stats = e.published;
  report.ready = !e.stopping;
  report.running = stats.running;
  report.waiting = stats.waiting + e.queued_count;
  report.pending_prefill_tokens = stats.pending_prefill_tokens + e.queued_tokens;
  report.work_tokens_total = stats.computed_tokens_total;
  report.kv_blocks_total = stats.blocks_total;
  report.kv_blocks_free = stats.blocks_free + stats.blocks_cached;
  return report;
}

CacheNews& Engine::cache_news() {
  return impl_->news;
}

bool Engine::idle() const {
  const Impl& e = *impl_;
  if (e.text_out.open_count() > 0) return false;
  std::lock_guard lock(e.mutex);
  return e.pending.empty() && e.queued_count == 0 && e.published.running + e.published.waiting == 0;
}

// ---------------------------------------------------------------- the compute thread

void Engine::Impl::loop() {
  Commands commands;
  while (take_commands(commands)) {
    apply(commands);
    publish(commands);
    step();
    publish({});
  }
}

// Waits while there is nothing to do; false: stop.
bool Engine::Impl::take_commands(Commands& commands) {
  commands.submissions.clear();
  commands.drops.clear();
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

// Submissions first: a drop may be of one of them.
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
  const auto output = runner->run(batch);
  if (!output.ok()) {
    fail_step(batch, output.status());
    return;
  }
  sample(batch, *output);
  score_prompts(batch);
  const TimePoint end = now();
  scheduler.commit(tokens, end, finished);
  for (TokenEvent& event : events) event.at = end;
  mark_length_stops();
  for (RequestId id : finished) sequences.erase(id);
  if (!events.empty()) text_out.push(events);
  metrics.step(end - begin);
}

namespace {

// Row `row` of what a step gave for the items that sample (StepRunner::run), where that is logits.
std::span<float> logits_row(const Tensor& output, size_t row) {
  const auto vocab_size = static_cast<size_t>(output.shape[1]);
  return {output.as<float>() + row * vocab_size, vocab_size};
}

}  // namespace

void Engine::Impl::sample(const Batch& batch, const Tensor& output) {
  tokens.clear();
  events.clear();
  for (const BatchItem& item : batch.items) {
    if (!item.samples) continue;
    const size_t row = events.size();
    Sequence& sequence = sequences.at(item.id);
    TokenEvent& event = events.emplace_back();
    event.id = item.id;
    const auto position = static_cast<uint64_t>(item.sample_position);
    if (position == 0) sequence.cached_count = scheduler.cached_count(item.id);
    event.cached_count = sequence.cached_count;
    if (sequence.prompt_only()) {
      event.finish = FinishReason::kLength;
      tokens.push_back({item.id, 0, /*finished=*/true});
      continue;
    }
    event.token = output.dtype == DType::kInt32
                      ? output.as<TokenId>()[row]
                      : sequence.draw(logits_row(output, row), position, scratch, event.score);
    const bool stops = sequence.stops(event.token, options.eos_token_ids);
    if (stops) event.finish = FinishReason::kStop;
    tokens.push_back({item.id, event.token, stops});
  }
}

// After sampling: it asks the runner for other rows, which take the place of the sampled ones.
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

void Engine::Impl::drop(RequestId id) {
  {
    std::lock_guard lock(mutex);
    pending.drops.push_back(id);
  }
  wake.notify_one();
}

}  // namespace troupe
