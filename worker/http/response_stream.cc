// Sends an answer to the client: whole, or as a stream.

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>

#include "common/api/sse.h"
#include "worker/engine/engine_errors.h"
#include "worker/http/generator.h"

namespace troupe {

namespace {

// A gateway expects a sign of life at least every 100 ms; this leaves a busy machine a fifth of it.
constexpr Duration kHeartbeatAfter = std::chrono::milliseconds(80);

}  // namespace

Task<void> Generator::answer_whole(HttpCall& call, Answer& answer, const Source& source) {
  while (!answer.done()) {
    const bool ready = co_await source.channel->wait(source.deadline);
    if (!ready) {
      const ApiError error = deadline_error();
      co_await call.fail(error);
      co_return;
    }
    for (auto& piece : source.channel->take()) {
      if (!piece.error.ok()) {
        const ApiError error = step_error(piece.error);
        co_await call.fail(error);
        co_return;
      }
      answer.collect(std::move(piece));
    }
  }
  if (refusing_) call.exchange().close_after();
  call.add_headers(answer.headers());
  std::string body = answer.whole_json();
  co_await call.answer_json(200, std::move(body));
}

// Waits as OutputChannel::wait does, and sends a heartbeat whenever nothing was sent for a while. Heartbeats
// say that this process runs, however long a step takes, but stop when a step counts as hung.
Task<bool> Generator::wait_with_heartbeats(HttpCall& call, const Source& source) {
  while (true) {
    const TimePoint due = std::chrono::steady_clock::now() + kHeartbeatAfter;
    const Deadline next{std::min(due, source.deadline.at)};
    const bool ready = co_await source.channel->wait(next);
    if (ready || source.deadline.expired(std::chrono::steady_clock::now())) co_return ready;
    if (engine_.turn_age() < options_.stuck_after) co_await call.exchange().write(kSseHeartbeat);
  }
}

// Pieces that came during the last write go out together in one write. A failure is an error event without
// [DONE] after it: that mark says the answer is whole, and a client that skips unknown events would take a
// partial answer for it.
Task<void> Generator::answer_stream(HttpCall& call, Answer& answer, const Source& source) {
  std::string bytes;
  bool started = false, failed = false;
  if (answer.includes_token_ids()) {
    call.add_headers(answer.headers());
    co_await call.start_events();
    co_await call.exchange().write(kSseHeartbeat);  // heartbeats follow: clients may rely on them
    started = true;
  }
  while (!answer.done() && !failed) {
    bytes.clear();
    bool ready = false;
    if (answer.includes_token_ids()) {
      ready = co_await wait_with_heartbeats(call, source);
    } else {
      ready = co_await source.channel->wait(source.deadline);
    }
    std::optional<ApiError> error;
    if (!ready) error = deadline_error();
    for (auto& piece : source.channel->take()) {
      if (!error && !piece.error.ok()) error = step_error(piece.error);
      if (error) break;
      answer.append_chunks(bytes, std::move(piece));
    }
    failed = error.has_value();
    if (failed && !started && bytes.empty()) {
      co_await call.fail(*error);
      co_return;
    }
    if (failed) append_sse_data(bytes, error->to_json());
    if (!started) {
      call.add_headers(answer.headers());
      co_await call.start_events();
    }
    started = true;
    if (!bytes.empty()) co_await call.exchange().write(bytes);
  }
  co_await call.exchange().finish();
}

}  // namespace troupe
