#pragma once

// What engine.cc (who calls, on any thread) and engine_steps.cc (the compute thread) share.

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "worker/engine.h"
#include "worker/engine_metrics.h"
#include "worker/sequence.h"
#include "worker/text_out.h"

namespace troupe {

// The engine keeps max_waiting itself; in the scheduler preempted requests wait too, and must find room.
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
  struct Commands {
    std::vector<Submission> submissions;
    std::vector<RequestId> drops;
    std::vector<Hash128> unpins;
    int64_t prompt_tokens = 0;  // of the submissions
    bool empty() const { return submissions.empty() && drops.empty() && unpins.empty(); }
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
  void prepare_draws(const Batch& batch);
  void accept(const Batch& batch, const StepOutput& output);
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
  // Of the current step, for the items that sample, in the batch's order.
  std::vector<SampleRow> draws;
  std::vector<int32_t> shown;  // those whose logits are scored
  std::vector<StepToken> tokens;
  std::vector<TokenEvent> events;  // beside them
  std::vector<RequestId> finished;

  const SteadyClock clock;
  std::atomic<TimePoint> turn_began = TimePoint::max();  // max: it waits for work
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

}  // namespace troupe
