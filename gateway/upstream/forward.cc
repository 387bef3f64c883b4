#include "gateway/upstream/forward.h"

#include <algorithm>
#include <charconv>

#include "common/api/error.h"
#include "common/api/sse.h"
#include "gateway/upstream/headers.h"

namespace troupe {
namespace {

using route::FailureKind;

constexpr size_t kHeldEventMax = 1u << 20;  // an event longer than this is passed on in parts

void fail(ForwardResult& result, FailureKind kind, Status error) {
  if (error.code() == absl::StatusCode::kDeadlineExceeded) kind = FailureKind::kDeadline;
  result.failure.kind = kind;
  result.failure.http_status = result.status;
  result.error = std::move(error);
}

void fail_to_send(ForwardResult& result, const Status& error) {
  const bool connecting = send_phase(error) == SendPhase::kConnect;
  const bool local = connecting && error.code() == absl::StatusCode::kResourceExhausted;
  const bool silent = error.code() == absl::StatusCode::kAborted;
  const FailureKind kind = silent       ? FailureKind::kSilent
                           : local      ? FailureKind::kLocal
                           : connecting ? FailureKind::kConnect
                                        : FailureKind::kTransport;
  fail(result, kind, error);
}

void fail_to_read(ForwardResult& result, Status error) {
  const bool silent = error.code() == absl::StatusCode::kAborted;
  fail(result, silent ? FailureKind::kSilent : FailureKind::kBody, std::move(error));
}

bool is_event_stream(const ClientAnswer& answer) {
  return answer.header("content-type").starts_with("text/event-stream");
}

// Holds a worker's error that another worker may do better than, to pass it on if none does.
Task<void> hold(ClientAnswer& answer, ForwardResult& result) {
  auto body = co_await answer.read_all(kHeldBodyMax);
  if (!body.ok() && body.status().code() == absl::StatusCode::kDeadlineExceeded) {
    fail(result, FailureKind::kDeadline, body.status());
    co_return;
  }
  result.held = true;
  result.held_headers = answer.headers();
  if (body.ok()) result.held_body = *std::move(body);
  fail(result, FailureKind::kStatus, absl::UnavailableError("the worker answered with an error status"));
}

TimePoint steady_now() {
  return std::chrono::steady_clock::now();
}

struct Relay {
  Exchange& exchange;
  ClientAnswer& answer;
  ForwardInput& input;
  ForwardResult& result;
  bool begun = false;

  // Headers for the client; call it once.
  HeaderList headers() const { return headers_for_client(answer.headers(), std::move(input.answer_headers)); }

  // Called with the first bytes of the body: some servers send the head before they have begun to compute.
  void first_byte() {
    if (begun) return;
    begun = true;
    // A request that a worker refuses has not been computed.
    if (result.status / 100 == 2) input.on_first_byte();
  }

  void passes(std::string_view bytes) {
    if (input.passed != nullptr) input.passed->feed(bytes);
  }

  void came() {
    if (input.phases != nullptr) input.phases->enter(Phase::kRelay, steady_now());
  }
  // Called before anything that may wait: for the worker, or for a slow client.
  TimePoint rests() {
    const TimePoint now = steady_now();
    if (input.phases != nullptr) input.phases->pause(now);
    return now;
  }
  void wrote(TimePoint since) {
    result.sent_at = steady_now();
    if (result.sent_at - since > input.client_stall) result.client_stalled = true;
  }
};

// Passes on `pending` and all that follows. REQUIRES: nothing was sent yet.
Task<void> relay_rest(Relay& relay, std::string pending) {
  HeaderList headers = relay.headers();
  relay.rests();
  co_await relay.exchange.start(relay.result.status, headers);
  bool more = true;
  while (more) {
    relay.passes(pending);
    const TimePoint before = relay.rests();
    co_await relay.exchange.write(pending);
    relay.wrote(before);
    auto next = co_await relay.answer.read(pending);
    if (!next.ok()) {
      // Outside an event stream the only way to report an error is to cut the answer short.
      relay.result.end = ForwardResult::End::kBroken;
      fail_to_read(relay.result, next.status());
      co_return;
    }
    more = *next;
    if (more) relay.came();
  }
  co_await relay.exchange.finish();
  relay.result.end = ForwardResult::End::kAnswered;
}

Task<void> relay_whole(Relay& relay) {
  std::string body;
  std::string piece;
  while (true) {
    auto more = co_await relay.answer.read(piece);
    if (!more.ok()) {
      fail_to_read(relay.result, more.status());
      co_return;
    }
    relay.came();
    if (!*more) break;
    relay.first_byte();
    if (body.empty()) {
      body.swap(piece);
    } else {
      body += piece;
    }
    if (body.size() > relay.input.whole_bytes_max) {
      co_await relay_rest(relay, std::move(body));
      co_return;
    }
    relay.rests();
  }
  relay.passes(body);
  HeaderList headers = relay.headers();
  relay.rests();
  co_await relay.exchange.respond(relay.result.status, headers, std::move(body));
  relay.result.end = ForwardResult::End::kAnswered;
}

// An error event of a worker of ours is held like a status: another worker may do better.
void hold_error(ForwardResult& result, std::string_view event, int status) {
  result.status = status;
  result.held = true;
  result.held_headers.emplace_back("content-type", "application/json");
  if (status == 429) result.held_headers.emplace_back("retry-after", "1");
  result.held_body = event.substr(event.find('{'));
  result.held_body.erase(result.held_body.find_last_not_of("\r\n") + 1);
}

// Cuts `piece` down to whole events; `held` keeps the beginning of an incomplete one.
void hold_rest(std::string& piece, std::string& held) {
  if (!held.empty()) {
    held += piece;
    piece.swap(held);
    held.clear();
  }
  const size_t whole = piece.size() > kHeldEventMax ? piece.size() : whole_events(piece);
  if (whole == piece.size()) return;
  held.assign(piece, whole);
  piece.resize(whole);
}

Task<void> relay_stream(Relay& relay) {
  ResumeTap* const tap = relay.input.tap;
  std::string piece, held;
  while (true) {
    auto more = co_await relay.answer.read(piece);
    if (!more.ok()) {
      fail_to_read(relay.result, more.status());
      co_return;
    }
    if (!*more) break;
    relay.came();
    if (tap == nullptr) relay.first_byte();
    hold_rest(piece, held);
    if (tap != nullptr) tap->cut(piece);
    if (tap != nullptr && tap->strayed()) {
      fail(relay.result, FailureKind::kBody,
           absl::UnavailableError("the worker did not go on where another one had stopped"));
      co_return;
    }
    const std::string_view error = error_event(piece);
    const int status = tap != nullptr && !error.empty() ? status_of_error_event(error) : 0;
    std::string_view events = piece;
    if (!error.empty())  // no [DONE] after it
      events = events.substr(0, error.data() - piece.data() + (status == 0 ? error.size() : 0));
    if (!events.empty()) {
      if (tap != nullptr) relay.first_byte();
      if (!relay.exchange.head_sent()) {
        HeaderList headers = relay.headers();
        relay.rests();
        co_await relay.exchange.start(relay.result.status, headers);
      }
      relay.passes(events);
      const TimePoint before = relay.rests();
      co_await relay.exchange.write(events);
      relay.wrote(before);
    } else {
      relay.rests();
    }
    if (error.empty()) continue;
    if (status == 0) {
      co_await relay.exchange.finish();
      relay.result.end = ForwardResult::End::kBroken;
    } else {
      hold_error(relay.result, error, status);
    }
    fail(relay.result, FailureKind::kStatus,
         absl::UnavailableError("the worker told an error in its stream"));
    co_return;
  }
  if (tap != nullptr && tap->heartbeats() && !tap->done()) {
    fail(relay.result, FailureKind::kBody, absl::UnavailableError("the answer ended before it was complete"));
    co_return;
  }
  if (!relay.exchange.head_sent()) {
    HeaderList headers = relay.headers();
    co_await relay.exchange.start(relay.result.status, headers);
  }
  if (!held.empty()) {
    relay.passes(held);
    co_await relay.exchange.write(held);
  }
  co_await relay.exchange.finish();
  relay.result.end = ForwardResult::End::kAnswered;
}

}  // namespace

size_t whole_events(std::string_view bytes) {
  const auto end_of = [](size_t at, size_t length) { return at == std::string_view::npos ? 0 : at + length; };
  if (bytes.ends_with("\n\n")) return bytes.size();  // the usual case: a worker writes whole events
  return std::max(end_of(bytes.rfind("\n\n"), 2), end_of(bytes.rfind("\r\n\r\n"), 4));
}

std::string_view error_event(std::string_view events) {
  constexpr std::string_view kBegin = "data: {\"error\"";
  // Searches from blank line to blank line: a stream is mostly one event at a time, and none of them an
  // error.
  size_t at = events.starts_with(kBegin) ? 0 : std::string_view::npos;
  for (size_t line = 0; at != 0 && (line = events.find('\n', line)) != std::string_view::npos;) {
    const std::string_view before = events.substr(0, ++line);
    const bool blank = before.ends_with("\n\n") || before.ends_with("\r\n\r\n");
    if (blank && events.substr(line).starts_with(kBegin)) {
      at = line;
      break;
    }
  }
  if (at == std::string_view::npos) return {};
  const size_t end = std::min(events.find("\n\n", at), events.find("\r\n\r\n", at));
  if (end == std::string_view::npos) return events.substr(at);
  return events.substr(at, end + (events[end] == '\n' ? 2 : 4) - at);
}

Task<ForwardResult> forward_once(Exchange& exchange, HttpClient& client, ForwardInput& input) {
  ForwardResult result;
  if (input.phases != nullptr) input.phases->pause(steady_now());
  auto sent = co_await client.send(input.request, input.deadline);
  if (!sent.ok()) {
    fail_to_send(result, sent.status());
    co_return result;
  }
  ClientAnswer& answer = **sent;
  result.status = answer.status();
  if (route::retryable_status(result.status)) {
    co_await hold(answer, result);
    co_return result;
  }
  Relay relay{exchange, answer, input, result};
  if (is_event_stream(answer)) {
    co_await relay_stream(relay);
  } else {
    co_await relay_whole(relay);
  }
  if (input.tap != nullptr) result.counts = input.tap->counts();
  if (!result.counts && input.passed != nullptr) result.counts = input.passed->counts();
  co_return result;
}

Task<ForwardResult> ask_once(HttpClient& client, const ClientRequest& request, Deadline deadline,
                             size_t bytes_max) {
  ForwardResult result;
  auto sent = co_await client.send(request, deadline);
  if (!sent.ok()) {
    fail_to_send(result, sent.status());
    co_return result;
  }
  ClientAnswer& answer = **sent;
  result.status = answer.status();
  auto body = co_await answer.read_all(bytes_max);
  if (!body.ok()) {
    fail(result, FailureKind::kBody, body.status());
    co_return result;
  }
  result.held = true;
  result.held_headers = answer.headers();
  result.held_body = *std::move(body);
  if (result.status / 100 == 2) {
    result.end = ForwardResult::End::kAnswered;
  } else {
    fail(result, FailureKind::kStatus, absl::UnavailableError("the worker answered with an error status"));
  }
  co_return result;
}

}  // namespace troupe
