#pragma once

// The life of one generation request on a worker, in the order of the functions in generator.cc, and from the
// first piece on in response_stream.cc:
//
//   admit → text in (own thread) → submit → first piece → stream | whole answer
//
// A request for several choices is one group in the engine: admitted whole or not at all, its pieces come
// through one mailbox, and its end is the end of all.
//
// Until the first piece is there nothing has been sent, so every failure is still a status of its own (400,
// 429, 503, 504) and a gateway may try elsewhere. From then on a stream can only end with an error event.
// Where the request asks to be told of its ids (x-troupe-ids) the head is sent when the engine has taken it,
// and heartbeats from then on: who asks can go on with the stream elsewhere at any time.
// Whatever way it ends — answered, deadline, client gone — leaving the function frees the request in the
// engine.

#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <memory>
#include <random>

#include "worker/engine/engine.h"
#include "worker/http/http_call.h"
#include "worker/http/output_channel.h"
#include "worker/http/prefixes.h"
#include "worker/http/response_builder.h"
#include "worker/input/prepare_prefix.h"
#include "worker/input/prompt_pipeline.h"

namespace troupe {

class Generator {
 public:
  struct Options {
    // Admitted at once, being tokenised, waiting or running; more are answered 429 before they cost anything.
    int64_t requests_max = 1088;
    std::chrono::milliseconds request_timeout{600'000};
    // A step under way for longer is taken for one that never ends: streams send no heartbeats any more.
    std::chrono::milliseconds stuck_after{60'000};
  };
  // `model` and `engine` must outlive this. All calls on `executor`'s thread.
  Generator(Executor executor, Options options, const ServedModel& model, Engine& engine);
  ~Generator();  // joins the text-in thread

  Task<void> handle(HttpCall& call, GenerateRequest::Kind kind);
  // POST /v1/prefixes: computed behind all that is answered, and kept in `prefixes`.
  Task<void> handle_prefix(HttpCall& call, Prefixes& prefixes);
  // POST /v1/conversations: likewise, and kept as long as anything cached.
  Task<void> handle_conversation(HttpCall& call);
  // What is all text in and no generation: `answer` makes the whole answer of a body, on the text-in thread.
  using TextAnswer = ApiResult<std::string> (*)(const ServedModel& model, std::string_view body);
  Task<void> handle_text(HttpCall& call, TextAnswer answer);

  // From now on new requests are answered 503.
  void refuse_new() { refusing_ = true; }
  bool refusing() const { return refusing_; }
  int64_t running_count() const { return running_count_; }
  // Until nothing runs and nobody has asked for a second; until the deadline, or told to hurry.
  Task<void> wait_quiet(Deadline deadline);
  // True when the last running request has ended; false at the deadline, or when told to hurry.
  Task<bool> wait_idle(Deadline deadline);
  void hurry();

 private:
  class RunningScope;
  // What a request's coroutine waits for.
  struct Source {
    std::shared_ptr<OutputChannel> channel;
    Deadline deadline;
  };
  using Timer = asio::basic_waitable_timer<std::chrono::steady_clock,
                                           asio::wait_traits<std::chrono::steady_clock>, Executor>;

  // The deadline of a new request, or why it may not come in.
  ApiResult<Deadline> admit(const HttpRequest& request) const;
  Task<ApiResult<PreparedRequest>> prepare(const HttpRequest& request, GenerateRequest::Kind kind,
                                           Deadline deadline);
  Task<ApiResult<std::string>> answer_text(const HttpRequest& request, TextAnswer answer, Deadline deadline);
  // A body by `prepare`, on the text-in thread.
  template <typename Prepared, typename Prepare>
  Task<ApiResult<Prepared>> prepare_on_text_in(Deadline deadline, Prepare prepare);
  // Of a prompt that is not answered.
  Task<ApiResult<Usage>> compute(EngineRequest request, Deadline deadline);
  Task<void> generate(HttpCall& call, PreparedRequest prepared, Deadline deadline);
  Answer make_answer(PreparedRequest& prepared, bool tells_ids);
  Task<void> answer_whole(HttpCall& call, Answer& answer, const Source& source);
  Task<void> answer_stream(HttpCall& call, Answer& answer, const Source& source);
  Task<bool> wait_with_heartbeats(HttpCall& call, const Source& source);

  Executor executor_;
  Options options_;
  const ServedModel& model_;
  Engine& engine_;
  asio::thread_pool text_in_;  // one thread: requests are tokenised in the order they came
  std::mt19937_64 random_;     // seeds of requests that name none, and ids
  Timer idle_timer_;           // cancelled when running_count_ reaches 0
  int64_t running_count_ = 0;
  TimePoint asked_at_{};  // the last time
  bool refusing_ = false;
  bool hurrying_ = false;
};

}  // namespace troupe
