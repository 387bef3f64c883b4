// Threads and what they share:
//   callers ──commands──▶ compute thread ──tokens──▶ text-out thread (output_pipeline.h) ──▶ sinks
//      └────────opened streams, cancellations──────────────▲      └──drops (stop strings)──▶ commands
// The scheduler, the runner and `sequences_` belong to the compute thread alone. `mutex_` guards the command
// queue and the published numbers; it is held for a few moves and taken at most three times a step. Lock
// order: mutex_, then OutputPipeline's own. Both queues are bounded: commands by the number of open requests
// (submit refuses beyond max_waiting), tokens by OutputPipeline, whose push() makes the compute thread wait.

#include "worker/engine/engine.h"

#include <algorithm>
#include <utility>

#include "worker/engine/engine_impl.h"

namespace troupe {

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
    const MutexLock lock(impl_->mutex);
    impl_->stopping = true;
  }
  impl_->wake.notify_one();
  // The compute thread is joined first: it may be waiting for
  // OutputPipeline, which would drop tokens if it stopped before.
  if (impl_->thread.joinable()) impl_->thread.join();
  impl_->text_out.stop(absl::CancelledError("the worker is shutting down"));
  // An engine that was never started still holds questions; no thread adds any more.
  std::vector<Question> unanswered;
  {
    const MutexLock lock(impl_->mutex);
    unanswered.swap(impl_->pending.questions);
  }
  for (Question& question : unanswered) std::move(question)(nullptr);
}

namespace {

int64_t companion_count(const EngineRequest& request) {
  return request.guidance ? static_cast<int64_t>(request.guidance->negative_prompt.size()) : 0;
}

// Checks a request's lengths, and cuts the answer to the room that a negative prompt leaves where as much is
// asked for as fits.
Status fit_companion(const SchedulerConfig& config, EngineRequest& request) {
  const auto prompt_count = static_cast<int64_t>(request.prompt.size());
  const int64_t companion = companion_count(request);
  if (companion > 0 && request.spec.cut_to_fit) {
    const int64_t most = most_new_beside_companion(config, config.block_count, prompt_count, companion);
    request.max_new_count =
        static_cast<int32_t>(std::clamp<int64_t>(most, 1, std::max(request.max_new_count, 1)));
  }
  return check_possible(config, prompt_count, request.max_new_count, companion);
}

// Sequences of a step that it takes.
int64_t rows_of(const NewRequest& request) {
  return request.companion.empty() ? 1 : 2;
}

}  // namespace

StatusOr<Engine::Impl::Submission> Engine::Impl::make_submission(EngineRequest request,
                                                                 EngineSink sink) const {
  const int64_t prompt_count = static_cast<int64_t>(request.prompt.size());
  if (request.prompt_only) request.guidance.reset();
  TROUPE_RETURN_IF_ERROR(fit_companion(options.scheduler, request));
  if (request.logprobs && !runner->has_logits())
    return absl::UnimplementedError("this worker has no log-probabilities to tell");
  if (request.pooling && !runner->has_logits())
    return absl::UnimplementedError("this worker's device computes no model, so it has no embeddings");
  if (request.grammar.compiled != nullptr && !runner->has_logits())
    return absl::FailedPreconditionError("this worker's answers are filler text, which follows no grammar");
  NewStream stream;
  stream.prompt_count = prompt_count;
  stream.stop_strings = std::move(request.stop_strings);
  stream.wants_logprobs = request.logprobs.has_value();
  stream.continues_text = request.continues_text;
  stream.shown_special = std::move(request.shown_special);
  stream.emitted = request.emitted;
  stream.repeated_count = redrawn_count(request, request.sampling);
  stream.sink = std::move(sink);
  stream.submitted = now();
  NewRequest scheduled;
  scheduled.max_new_count = request.max_new_count;
  const bool pools_all = request.pooling && request.pooling->pooling == Pooling::kMean;
  scheduled.scores_prompt = pools_all || (request.logprobs && request.prompt_logprobs);
  scheduled.spec = request.spec;
  scheduled.spec.provisional = !request.banned_strings.empty() && !request.prompt_only;
  // The model computes up to the emitted tokens that are drawn once more.
  const auto drawn = request.emitted.end() - stream.repeated_count;
  Sequence sequence(request, text_out.tokenizer());
  if (request.guidance) {
    scheduled.companion = std::move(request.guidance->negative_prompt);
    scheduled.companion.insert(scheduled.companion.end(), request.emitted.begin(), drawn);
  }
  scheduled.prompt = std::move(request.prompt);
  scheduled.prompt.insert(scheduled.prompt.end(), request.emitted.begin(), drawn);
  scheduled.emitted_count = static_cast<int32_t>(drawn - request.emitted.begin());
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
  int64_t row_count = 0;
  for (EngineRequest& request : group) {
    const auto choice = static_cast<int32_t>(submissions.size());
    auto choice_sink = [sink, choice](EngineOutput piece) {
      piece.choice = choice;
      sink(std::move(piece));
    };
    TROUPE_ASSIGN_OR_RETURN(Impl::Submission submission,
                            e.make_submission(std::move(request), std::move(choice_sink)));
    row_count += rows_of(submission.request);
    submissions.push_back(std::move(submission));
  }
  std::vector<RequestId> ids;
  {
    const MutexLock lock(e.mutex);
    if (e.stopping) return absl::UnavailableError("the worker is shutting down");
    const SchedulerConfig& limits = e.options.scheduler;
    const int64_t held_count = e.published.stats.running + e.published.stats.waiting + e.queued.count;
    if (held_count + row_count > limits.max_num_seqs + limits.max_waiting) {
      return absl::ResourceExhaustedError("too many requests are waiting already; try again later");
    }
    for (Impl::Submission& submission : submissions) {
      ids.push_back(e.next_id++);
      submission.stream.id = submission.request.id = ids.back();
      const NewRequest& request = submission.request;
      const Impl::Queued one{rows_of(request),
                             static_cast<int64_t>(request.prompt.size() + request.companion.size())};
      e.queued += one;
      e.pending.all += one;
      if (submission.request.spec.background) {
        e.queued_background += one;
        e.pending.background += one;
      }
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

void Engine::unpin(Hash128 name) {
  {
    const MutexLock lock(impl_->mutex);
    impl_->pending.unpins.push_back(name);
  }
  impl_->wake.notify_one();
}

bool Engine::is_pinned(Hash128 name) const {
  const MutexLock lock(impl_->mutex);
  return impl_->published.pins.contains(name);
}

bool Engine::ask(Question question) {
  {
    const MutexLock lock(impl_->mutex);
    if (!impl_->stopping) {
      if (impl_->pending.questions.size() >= kQuestionsMax) return false;
      impl_->pending.questions.push_back(std::move(question));
    }
  }
  if (question) {
    std::move(question)(nullptr);
  } else {
    impl_->wake.notify_one();
  }
  return true;
}

LoadReport Engine::load() const {
  const Impl& e = *impl_;
  LoadReport report;
  report.max_num_seqs = e.options.scheduler.max_num_seqs;
  report.block_size = e.options.scheduler.block_size;
  e.residency_publisher.describe(report);
  const MutexLock lock(e.mutex);
  const SchedulerStats& stats = e.published.stats;
  report.ready = !e.stopping;
  // Background requests yield to every other request and nothing waits for them, so they are not counted.
  report.running = stats.running - stats.background_running;
  report.waiting = stats.waiting - stats.background_waiting + e.queued.count - e.queued_background.count;
  report.pending_prefill_tokens = stats.pending_prefill_tokens - stats.background_pending_tokens +
                                  e.queued.tokens - e.queued_background.tokens;
  report.work_tokens_total = stats.computed_tokens_total;
  report.kv_blocks_total = stats.blocks_total;
  report.kv_blocks_pinned = stats.blocks_pinned;
  report.kv_blocks_free = stats.blocks_free + stats.blocks_cached;
  return report;
}

int64_t Engine::cached_blocks() const {
  const MutexLock lock(impl_->mutex);
  return impl_->published.stats.blocks_cached;
}

ResidencyPublisher& Engine::residency_publisher() {
  return impl_->residency_publisher;
}

bool Engine::idle() const {
  const Impl& e = *impl_;
  if (e.text_out.open_count() > 0) return false;
  const MutexLock lock(e.mutex);
  return e.pending.empty() && e.queued.count == 0 &&
         e.published.stats.running + e.published.stats.waiting == 0;
}

Duration Engine::turn_age() const {
  const TimePoint began = impl_->turn_began.load(std::memory_order_relaxed);
  return began == TimePoint::max() ? Duration::zero() : impl_->now() - began;
}

void Engine::Impl::drop(RequestId id) {
  {
    const MutexLock lock(mutex);
    pending.drops.push_back(id);
  }
  wake.notify_one();
}

}  // namespace troupe
