#pragma once

// State shared by engine.cc (callers, on any thread) and engine_loop.cc (the compute thread).

#include <atomic>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "common/core/mutex.h"
#include "worker/engine/engine.h"
#include "worker/engine/engine_metrics.h"
#include "worker/engine/output_pipeline.h"
#include "worker/engine/sequence.h"

namespace troupe {

// The engine enforces max_waiting itself; in the scheduler preempted requests wait too and must find room.
inline SchedulerConfig with_room_for_preempted(SchedulerConfig config) {
  config.max_waiting += config.max_num_seqs;
  return config;
}

struct Engine::Impl {
  struct Submission {
    NewRequest request;
    Sequence sequence;
    NewStream stream;
  };
  struct Queued {
    int64_t count = 0, tokens = 0;  // requests, and tokens of their prompts
    void operator+=(const Queued& more) { count += more.count, tokens += more.tokens; }
    void operator-=(const Queued& less) { count -= less.count, tokens -= less.tokens; }
  };
  struct Commands {
    std::vector<Submission> submissions;
    std::vector<RequestId> drops;
    std::vector<Hash128> unpins;
    std::vector<Question> questions;
    Queued all, background;  // totals of the submissions
    bool empty() const { return submissions.empty() && drops.empty() && unpins.empty() && questions.empty(); }
  };

  Impl(std::unique_ptr<StepRunner> r, const Tokenizer* t, Options o, Metrics& m, const Logger& l)
      : runner(std::move(r)),
        options(std::move(o)),
        log(l),
        metrics(m, options.model_name),
        scheduler(with_room_for_preempted(options.scheduler)),
        residency_publisher([this] {
          const MutexLock lock(mutex);
          nudged = true;
          wake.notify_one();
        }),
        published{scheduler.stats(), {}, 0},
        text_out({.tokenizer = t,
                  .metrics = &metrics,
                  .pending_tokens_max = 64 * static_cast<size_t>(options.scheduler.max_num_seqs),
                  .on_stop_string = [this](RequestId id) { drop(id); }}) {}

  // The scheduler as other threads see it.
  struct Published {
    SchedulerStats stats;
    absl::flat_hash_set<Hash128> pins;
    uint64_t pin_change_count = 0;
  };
  // Describes a launched step's output. When it arrives, the batch is gone, and perhaps some of its requests.
  struct Drawn {
    RequestId id;
    uint64_t position;
    int32_t shown_row;      // row of StepOutput::logits; below zero: none
    uint32_t rewind_count;  // the sequence's
    bool of_companion = false;
  };
  struct ScoredRows {
    RequestId id;
    int32_t first, count;  // rows of the step that score ids of the prompt, or are pooled
  };
  struct StepInFlight {
    std::vector<Drawn> drawn;
    std::vector<ScoredRows> scored;
    std::vector<GuidedRow> guided;
    std::vector<GrammarState*> masked;  // their masks are filled while the step is computed
    bool must_wait = false;  // logits are wanted, or the next step's draws hang on this one's tokens
    TimePoint begin{};
  };

  void loop();
  bool take_commands(Commands& commands);
  bool await_call(TimePoint until);
  bool is_called() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return stopping || nudged || !pending.empty();
  }
  void apply(Commands& commands);
  void publish(const Commands& applied);
  void step();
  StatusOr<Submission> make_submission(EngineRequest request, EngineSink sink) const;
  void prepare(const Batch& batch);
  void prepare_companion(const BatchItem& item, const Sequence& sequence);
  void finish_step();
  void publish_pins();
  void accept(const StepOutput& output);
  void take_token(Sequence& sequence, TokenEvent& event, uint64_t position, StepToken& result);
  void append_forced(Sequence& sequence, const Drawn& drawn, StepToken& result);
  void score_prompts();
  void attach_prompt_scores();
  void fail_unsampled();
  void mark_length_stops();
  void fail_step(const Batch& batch, const Status& error);
  void drop(RequestId id);  // any thread: stops computing the request
  bool has_work() const {
    return scheduler.stats().running + scheduler.stats().waiting > 0 || under_way.has_value();
  }
  TimePoint now() const { return clock.now(); }

  // Compute thread only, once started.
  const std::unique_ptr<StepRunner> runner;
  const Options options;
  const Logger& log;
  EngineMetrics metrics;
  Scheduler scheduler;
  absl::flat_hash_map<RequestId, Sequence> sequences;
  // The step being launched: the items that sample, in the batch's
  // order, and the items whose logits are scored.
  std::vector<SampleRow> draws;
  std::vector<int32_t> shown;
  StepInFlight next;
  // The step before it, until it is collected.
  std::optional<StepInFlight> under_way;
  TimePoint last_end = TimePoint::min();
  // The collected step's results.
  std::vector<StepToken> tokens;
  std::vector<TokenEvent> events;  // only for requests that still exist; a request's in order
  std::vector<RequestId> finished;

  const SteadyClock clock;
  std::atomic<TimePoint> turn_began = TimePoint::max();  // max: waiting for work
  ResidencyPublisher residency_publisher;

  mutable Mutex mutex;
  CondVar wake;
  Commands pending ABSL_GUARDED_BY(mutex);
  Published published ABSL_GUARDED_BY(mutex);
  // Submitted, not in `published` yet; the background part of them.
  Queued queued ABSL_GUARDED_BY(mutex), queued_background ABSL_GUARDED_BY(mutex);
  RequestId next_id ABSL_GUARDED_BY(mutex) = 1;
  bool nudged ABSL_GUARDED_BY(mutex) = false;  // the compute thread must wake, if only to publish
  bool stopping ABSL_GUARDED_BY(mutex) = false;
  OutputPipeline text_out;
  std::thread thread;
};

}  // namespace troupe
