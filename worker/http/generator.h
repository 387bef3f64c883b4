#pragma once

// The life of one generation request on a worker, in the order of the functions in generator.cc and, from the
// first piece on, in response_stream.cc:
//
//   admit → text in (text_jobs.h) → submit → first piece → stream | whole answer
//
// A request for several choices is one group in the engine: admitted whole or not at all, with one mailbox
// for its pieces, and ended together.
//
// Nothing is sent before the first piece, so every failure up to then has a status of its own (400, 429, 503,
// 504) and a gateway may try another worker. After it a stream can only end with an error event. A request
// that asks for its ids (x-troupe-ids) gets the head, and heartbeats, as soon as the engine has accepted it:
// its gateway can resume the stream elsewhere at any time. However the request ends (answered, deadline,
// client gone), leaving the function frees it in the engine.

#include <chrono>
#include <memory>
#include <random>

#include "worker/engine/engine.h"
#include "worker/http/embeddings.h"
#include "worker/http/http_call.h"
#include "worker/http/next_turns.h"
#include "worker/http/output_channel.h"
#include "worker/http/prefixes.h"
#include "worker/http/response_builder.h"
#include "worker/http/text_jobs.h"
#include "worker/input/prepare_prefix.h"
#include "worker/input/prompt_pipeline.h"

namespace troupe {

class Generator {
 public:
  struct Options {
    // Requests admitted at once (being tokenised, waiting or running); more are answered 429 at no cost.
    int64_t requests_max = 1088;
    std::chrono::milliseconds request_timeout{600'000};
    // Processor time that a request's template and tokens may take.
    std::chrono::milliseconds text_timeout{10'000};
    size_t long_text_bytes = TextJobs::kLongBytes;  // from which on a text has the thread for long ones
    // A step that takes longer is considered hung: streams send no more heartbeats.
    std::chrono::milliseconds stuck_after{60'000};
  };
  // `model` and `engine` must outlive this. All calls on `executor`'s thread.
  Generator(Executor executor, Options options, const ServedModel& model, Engine& engine);
  ~Generator();  // joins the text-in threads

  Task<void> handle(HttpCall& call, GenerateRequest::Kind kind);
  // POST /v1/prefixes: computed after every answered request, and kept in `prefixes`.
  Task<void> handle_prefix(HttpCall& call, Prefixes& prefixes);
  // POST /v1/conversations: computed likewise, and cached like any other KV.
  Task<void> handle_conversation(HttpCall& call);
  // POST /v1/embeddings (embeddings.h).
  Task<void> handle_embeddings(HttpCall& call);
  // A request that only needs text in: `answer` makes the whole answer of a body, on a text-in thread.
  using TextAnswer = ApiResult<std::string> (*)(const ServedModel& model, std::string_view body);
  Task<void> handle_text(HttpCall& call, TextAnswer answer);

  // Answers new requests with 503 from now on.
  void refuse_new() { refusing_ = true; }
  bool refusing() const { return refusing_; }
  // Whether a text-in thread does not come back, and for how long it has been away.
  const TextJobs& text_jobs() const { return text_jobs_; }
  int64_t running_count() const { return running_count_; }
  // Waits until nothing runs and no request has arrived for a second; returns at the deadline or on
  // skip_grace_period().
  Task<void> wait_quiet(Deadline deadline);
  // Waits until the last running request ends. Returns false at the deadline or on skip_grace_period().
  Task<bool> wait_idle(Deadline deadline);
  void skip_grace_period();

 private:
  class RunningScope;
  // The channel and deadline that a request's coroutine waits on.
  struct Source {
    std::shared_ptr<OutputChannel> channel;
    Deadline deadline;
  };
  using Timer = asio::basic_waitable_timer<std::chrono::steady_clock,
                                           asio::wait_traits<std::chrono::steady_clock>, Executor>;

  // Returns a new request's deadline, or the reason to refuse the request.
  ApiResult<Deadline> admit(const HttpRequest& request) const;
  Task<ApiResult<PreparedRequest>> prepare(const HttpRequest& request, GenerateRequest::Kind kind,
                                           Deadline deadline);
  Task<ApiResult<std::string>> answer_text(const HttpRequest& request, TextAnswer answer, Deadline deadline);
  // Computes a prompt without an answer.
  Task<ApiResult<Usage>> compute(EngineRequest request, Deadline deadline);
  Task<void> generate(HttpCall& call, PreparedRequest prepared, Deadline deadline);
  Answer make_answer(PreparedRequest& prepared, bool includes_token_ids);
  Task<void> answer_whole(HttpCall& call, Answer& answer, const Source& source);
  Task<void> answer_stream(HttpCall& call, Answer& answer, const Source& source);
  Task<bool> wait_with_heartbeats(HttpCall& call, const Source& source);

  Executor executor_;
  Options options_;
  const ServedModel& model_;
  Engine& engine_;
  TextJobs text_jobs_;
  EmbeddingsRoom embeddings_room_;
  NextTurns next_turns_;
  std::mt19937_64 random_;  // for ids, and seeds of requests that have none
  Timer idle_timer_;        // cancelled when running_count_ reaches 0
  int64_t running_count_ = 0;
  TimePoint asked_at_{};  // last arrival
  bool refusing_ = false;
  bool skips_grace_period_ = false;
};

}  // namespace troupe
