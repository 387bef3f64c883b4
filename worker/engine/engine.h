#pragma once

// The step loop. One compute thread repeats: take commands → plan → launch → collect the step before (or this
// one) → hand tokens to the text-out thread. Text comes in and goes out on other threads, so tokenising a
// long prompt or detokenising a wide batch never delays a step.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "common/api/api.h"
#include "common/core/log.h"
#include "common/core/metrics.h"
#include "common/core/status.h"
#include "common/core/time.h"
#include "worker/engine/answer_grammar.h"
#include "worker/engine/pooling.h"
#include "worker/engine/residency_publisher.h"
#include "worker/engine/step_runner.h"
#include "worker/engine/thinking_budget.h"
#include "worker/model/sampler.h"
#include "worker/schedule/scheduler.h"
#include "worker/text/tokenizer/tokenizer.h"

namespace troupe {

struct EngineRequest {
  std::vector<TokenId> prompt;
  int32_t max_new_count = 1;
  SamplingParams sampling;
  std::vector<int32_t> stop_token_ids;
  std::vector<std::string> stop_strings;
  // None empty; the answer has none of them (banned_strings.h). REQUIRES: no mirostat beside them
  std::vector<std::string> banned_strings;
  // None: the answer is the prompt's alone. Log-probabilities are those of what is drawn from then, but for
  // the prompt's own.
  std::optional<Guidance> guidance;
  std::shared_ptr<const ThinkingLimit> thinking_limit;  // of a chat's thoughts; null: none
  AnswerGrammar grammar;  // its vocabulary's tokens are the model's. REQUIRES: a runner with logits
  // Sorted; special tokens that are text in the answer. May be null.
  std::shared_ptr<const std::vector<TokenId>> shown_special;
  bool ignore_eos = false;
  bool continues_text = false;      // the answer continues the prompt's text: its first space is a space
  std::optional<int32_t> logprobs;  // report log-probabilities, with this many alternatives a token
  bool prompt_logprobs = false;     // with logprobs: the prompt's tokens, too; computes all of it
  // The tokens of a resumed answer that were already sent, fewer than max_new_count. The model computes on
  // from them and they count as the answer's, but none is sent again; only the log-probabilities of the last
  // few (unsent_logprobs) may still be sent.
  std::vector<TokenId> emitted;
  int32_t unsent_logprobs = 0;
  bool prompt_only = false;  // compute the prompt and emit nothing. REQUIRES: max_new_count 1
  // Make a vector of the prompt's hidden states. REQUIRES: prompt_only, no logprobs, no guidance
  std::optional<PoolingParams> pooling;
  ScheduleSpec spec;  // REQUIRES: prompt_only where it is in the background
};

// A piece of an answer, in order. The last one has `finish` != kNone or an error.
struct EngineOutput {
  std::string text;          // valid UTF-8, may be empty
  std::vector<TokenId> ids;  // tokens behind this piece
  // With logprobs: the prompt's tokens, in the first piece, and the tokens whose text ends in this piece (a
  // token that ended the answer has none). Offsets are the answer's; the prompt's stay 0.
  std::vector<TokenLogprob> prompt_logprobs, logprobs;
  FinishReason finish = FinishReason::kNone;
  StopReason stop;                 // with kStop
  Status error;                    // not ok: the request failed (shutdown, step error)
  Usage usage;                     // counts so far
  int32_t choice = 0;              // which of a group's requests, by its order
  std::vector<float> pooled = {};  // with pooling: (hidden_size), in the last piece
};
// Called on the text-out thread; must not block.
using EngineSink = std::function<void(EngineOutput)>;

class Engine {
 public:
  struct Options {
    SchedulerConfig scheduler;
    std::string model_name;                         // label of the metrics
    std::vector<int32_t> eos_token_ids;             // end an answer unless ignore_eos
    Duration idle_check = std::chrono::seconds(1);  // after this long without work the blocks are verified
  };
  // `tokenizer`, `metrics` and `log` must outlive the engine.
  Engine(std::unique_ptr<StepRunner> runner, const Tokenizer* tokenizer, Options options, Metrics& metrics,
         const Logger& log);
  ~Engine();  // stops

  void start();
  // Fails running requests with kCancelled and joins the threads. Idempotent.
  void stop();

  // Thread-safe, and never waits for a step. Errors: as Scheduler::add; kUnimplemented if log-probabilities
  // or pooling are requested from a runner without logits; kUnavailable once stopped. After an ok every
  // outcome comes through the sink, with exactly one last piece. submit() chooses and returns the id; the
  // first pieces may come before it does. After cancel() of the id returns, `sink` is called at most once
  // more.
  StatusOr<RequestId> submit(EngineRequest request, EngineSink sink);
  // Admits several requests, all of them or none; `choice` identifies each piece's request.
  StatusOr<std::vector<RequestId>> submit(std::vector<EngineRequest> group, const EngineSink& sink);
  // Lets the KV pinned under `name` be evicted again; a pin still being computed is unaffected. Thread-safe.
  void unpin(Hash128 name);
  // Whether KV is pinned under `name`, by the steps whose last pieces were handed over. A pin ends without an
  // unpin() where its KV turned out to be corrupt. Thread-safe.
  bool is_pinned(Hash128 name) const;
  void cancel(RequestId id);  // thread-safe, idempotent; the sink gets no last piece
  // Runs a question on the compute thread, between two steps; its scheduler is nullptr where the engine
  // stops. Every accepted question runs exactly once. Returns false if kQuestionsMax wait. Thread-safe.
  using Question = absl::AnyInvocable<void(const Scheduler*) &&>;
  static constexpr size_t kQuestionsMax = 64;
  bool ask(Question question);
  // Thread-safe snapshot. kv_blocks_free: blocks available without a preemption, cached blocks included.
  LoadReport load() const;
  int64_t cached_blocks() const;  // of kv_blocks_free, those that hold KV; thread-safe
  // Publishes what the prefix cache holds and how that changes.
  ResidencyPublisher& residency_publisher();
  bool idle() const;  // thread-safe: no request is anywhere, every last piece was handed over
  // Time the compute thread has spent in its current turn of the loop, a step at most; zero while it waits
  // for work. Thread-safe, takes no lock.
  Duration turn_age() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace troupe
