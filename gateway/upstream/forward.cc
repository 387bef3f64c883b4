#include "gateway/upstream/forward.h"

#include <absl/strings/match.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "gateway/upstream/forward_failures.h"
#include "gateway/upstream/headers.h"
#include "gateway/upstream/length_refusal.h"

namespace troupe {
namespace {

using route::FailureKind;

constexpr const char* kErrorInStream = "the worker reported an error in its stream";
constexpr size_t kHeldEventMax = 1u << 20;  // an event longer than this is passed on in parts
// A stream's end comes with its last event, or is not waited for: the client has its answer. A connection
// that has it is used again.
constexpr auto kEndWait = std::chrono::milliseconds(100);

bool has_events(const ClientAnswer& answer) {
  return is_event_stream(answer.header("content-type"));
}

bool is_json(const ClientAnswer& answer) {
  return absl::StartsWithIgnoreCase(to_absl(answer.header("content-type")), "application/json") &&
         answer.header("content-encoding").empty();
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
  bool looked_for_mark = false;
  bool media = false;  // the answer is sound or an image: its bytes are no tokens

  // Headers for the client; call it once.
  HeaderList headers() const { return headers_for_client(answer.headers(), std::move(input.answer_headers)); }

  // Called with the first bytes for the client: some servers send the head before they have begun to compute.
  void first_byte() {
    if (begun) return;
    begun = true;
    // A request that a worker refuses has not been computed.
    if (result.status / 100 == 2) input.on_first_byte();
  }

  // `bytes` have come.
  void came(size_t bytes) {
    if (input.progress != nullptr) input.progress->bytes += bytes;
    if (input.phases != nullptr) input.phases->enter(Phase::kRelay, steady_now());
  }
  // Some of the answer has come.
  void has_begun() {
    if (input.progress != nullptr) input.progress->began = true;
  }
  // Called before anything that may wait: for the worker, or for a slow client.
  TimePoint rests() {
    const TimePoint now = steady_now();
    if (input.phases != nullptr) input.phases->pause(now);
    return now;
  }
  // Called before `bytes` go to the client; returns when.
  TimePoint passes(std::string_view bytes) {
    if (input.passed != nullptr && !media) input.passed->feed(bytes);
    return rests();
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
    const TimePoint before = relay.passes(pending);
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
    if (more) relay.came(pending.size());
  }
  co_await relay.exchange.finish();
  relay.result.end = ForwardResult::End::kAnswered;
}

Task<void> relay_whole(Relay& relay) {
  // Sound plays from its beginning while the rest is being made.
  relay.media = relay.input.foreign && relay.input.form == AnswerForm::kOther &&
                relay.result.status / 100 == 2 && is_media(relay.answer.header("content-type"));
  std::string body;
  std::string piece;
  while (true) {
    auto more = co_await relay.answer.read(piece);
    if (!more.ok()) {
      fail_to_read(relay.result, more.status());
      co_return;
    }
    relay.came(*more ? piece.size() : 0);
    if (!*more) break;
    relay.has_begun();
    if (!relay.input.foreign) relay.first_byte();
    if (body.empty()) {
      body.swap(piece);
    } else {
      body += piece;
    }
    if (!relay.input.translate && (relay.media || body.size() > relay.input.whole_bytes_max)) {
      if (is_no_answer(relay.input, relay.answer, relay.result, body, true)) co_return;
      relay.first_byte();
      co_await relay_rest(relay, std::move(body));
      co_return;
    }
    relay.rests();
  }
  if (is_no_answer(relay.input, relay.answer, relay.result, body, false)) co_return;
  if (!body.empty()) relay.first_byte();
  if (relay.input.translate) {
    std::optional<std::string> translated = relay.input.translate(body);
    if (!translated) {
      fail_to_translate(relay.input, relay.result);
      co_return;
    }
    body = *std::move(translated);
  }
  if (holds_length_refusal(relay.answer, relay.result, body)) co_return;
  if (relay.input.rename && is_json(relay.answer)) rename_model(*relay.input.rename, body);
  HeaderList headers = relay.headers();
  relay.passes(body);
  co_await relay.exchange.respond(relay.result.status, headers, std::move(body));
  relay.result.end = ForwardResult::End::kAnswered;
}

// A piece of whole events: what the client gets of it, and the error that it reports.
struct StreamPiece {
  std::string_view events;
  std::string_view error;    // empty: none
  bool holds_error = false;  // it is not among the events: the client has nothing yet, or it is one of ours
};

StreamPiece read_piece(const Relay& relay, std::string_view piece) {
  StreamPiece read{piece, error_event(piece)};
  if (read.error.empty()) return read;
  const auto before_error = static_cast<size_t>(read.error.data() - piece.data());
  read.events = piece.substr(0, before_error);
  read.holds_error = relay.input.tap != nullptr ? status_of_error_event(read.error) != 0
                                                : !relay.exchange.head_sent() && read.events.empty();
  if (!read.holds_error)
    read.events = piece.substr(0, before_error + read.error.size());  // no [DONE] after it
  return read;
}

Task<void> start_stream(Relay& relay) {
  HeaderList headers = relay.headers();
  relay.rests();
  co_await relay.exchange.start(relay.result.status, headers);
}

// Whether the stream ended too early, which is noted. `ended`: the client has the answer's end.
bool is_cut(Relay& relay, bool ended) {
  const ResumeTap* const tap = relay.input.tap;
  const bool ours = tap != nullptr && tap->heartbeats() && !tap->done();
  const bool theirs = !ended && is_judged(relay.input, relay.result);
  if (ours) {
    fail(relay.result, FailureKind::kBody, absl::UnavailableError("the answer ended before it was complete"));
  } else if (theirs && !relay.exchange.head_sent()) {
    fail_with_nothing(relay.result);
  } else if (theirs) {
    fail(relay.result, FailureKind::kBody,
         absl::UnavailableError("the stream ended without a finish reason or [DONE]"));
  }
  return ours || theirs;
}

// Holds a foreign worker's events back until there is content among them. True: no answer will come, which is
// noted.
bool is_refused(Relay& relay, StreamOpening& opening, std::string& piece) {
  const EventKind kind = opening.take(piece);
  if (opening.began()) relay.has_begun();
  if (kind == EventKind::kError)
    fail_with_error(relay.result, parse_error_event(opening.error()), kErrorInStream);
  if (kind == EventKind::kEnd) fail_with_nothing(relay.result);
  return kind == EventKind::kError || kind == EventKind::kEnd;
}

// Our own reading of events knows no byte order mark, and the client needs none.
void drop_mark(Relay& relay, std::string& events) {
  if (events.empty() || std::exchange(relay.looked_for_mark, true)) return;
  if (events.starts_with(kByteOrderMark)) events.erase(0, kByteOrderMark.size());
}

// `pending`: its beginning, if that was read.
Task<void> relay_stream(Relay& relay, std::string pending = {}) {
  ResumeTap* const tap = relay.input.tap;
  const ForwardInput& input = relay.input;
  std::string piece;
  EventHold hold(kHeldEventMax);
  StreamOpening opening(input.form);
  StreamEnd end(input.form, input.choices);
  bool done = false, broke = false;
  while (true) {
    StatusOr<bool> more = !pending.empty();
    piece = std::exchange(pending, {});
    if (piece.empty()) more = co_await relay.answer.read(piece);
    broke = !more.ok() && (done || (end.came() && absl::IsUnavailable(more.status())));
    if (broke) break;  // when all was said
    if (!more.ok()) {
      fail_to_read(relay.result, more.status());
      co_return;
    }
    if (!*more) break;
    relay.came(piece.size());
    hold.keep_whole(piece);
    drop_mark(relay, piece);
    if (tap != nullptr) tap->cut(piece);
    if (tap != nullptr && tap->diverged()) {
      fail(relay.result, FailureKind::kBody,
           absl::UnavailableError("the worker did not go on where another one had stopped"));
      co_return;
    }
    if (input.rename) rename_model_in_events(*input.rename, piece);
    if (input.foreign && !opening.passed() && is_refused(relay, opening, piece)) co_return;
    const StreamPiece read = read_piece(relay, piece);
    if (input.foreign) end.take(read.events);
    if (read.events.empty()) {
      relay.rests();
    } else {
      relay.first_byte();
      if (!relay.exchange.head_sent()) co_await start_stream(relay);
      const TimePoint before = relay.passes(read.events);
      co_await relay.exchange.write(read.events);
      relay.wrote(before);
      if (input.progress != nullptr && input.progress->enough) {
        co_await relay.exchange.finish();
        relay.result.end = ForwardResult::End::kAnswered;
        co_return;
      }
      const bool was_done = std::exchange(done, done || contains_last_event(read.events, input.form));
      if (input.foreign && done && !was_done) relay.answer.end_within(kEndWait);
      if (input.progress != nullptr) input.progress->client_done = done;
    }
    if (read.error.empty()) continue;
    if (read.holds_error) {
      fail_with_error(relay.result, parse_error_event(read.error), kErrorInStream);
      co_return;
    }
    co_await relay.exchange.finish();
    relay.result.end = ForwardResult::End::kBroken;
    fail(relay.result, FailureKind::kStatus, absl::UnavailableError(kErrorInStream));
    co_return;
  }
  std::string held = broke ? std::string() : hold.held();
  drop_mark(relay, held);
  if (input.rename) rename_model_in_events(*input.rename, held);
  // (The last event may be without the blank line that ends one.)
  if (input.foreign && !opening.passed() && is_refused(relay, opening, held)) co_return;
  if (!done && is_cut(relay, end.take(held))) co_return;
  if (input.foreign && !opening.passed()) held = opening.held();
  if (!held.empty()) relay.first_byte();
  if (!relay.exchange.head_sent()) co_await start_stream(relay);
  if (!held.empty()) {
    relay.passes(held);
    co_await relay.exchange.write(held);
  }
  co_await relay.exchange.finish();
  relay.result.end = ForwardResult::End::kAnswered;
}

// A foreign worker's answer to a request for a stream that does not say it is one. It may be one all the
// same. A worker that says in JSON why it does not stream is as one that says so with a status; a good answer
// is held for a client that gets no other, unless it is too long for that.
Task<void> relay_unnamed(Relay& relay) {
  const ForwardInput& input = relay.input;
  std::string body, piece;
  std::optional<bool> streams;
  while (true) {
    auto more = co_await relay.answer.read(piece);
    if (!more.ok()) {
      fail_to_read(relay.result, more.status());
      co_return;
    }
    if (!*more) break;
    body += piece;
    if (!streams) streams = begins_as_events(body);
    if (streams.value_or(false)) {
      relay.input.answer_headers.emplace_back("content-type", "text/event-stream");
      co_await relay_stream(relay, std::move(body));
      co_return;
    }
    relay.came(streams ? piece.size() : 0);
    if (streams) relay.has_begun();
    if (body.size() > input.whole_bytes_max) break;
    relay.rests();
  }
  const bool is_long = body.size() > input.whole_bytes_max;
  const WholeKind kind = kind_of_whole(body, input.form, is_long);
  if (kind == WholeKind::kError) {
    fail_with_error(relay.result, parse_error_json(body), kErrorInAnswer);
  } else if (kind == WholeKind::kNone || relay.exchange.promised_events()) {
    fail_to_stream(relay.result);
  } else if (is_long) {
    relay.first_byte();
    co_await relay_rest(relay, std::move(body));
  } else {
    if (input.rename && is_json(relay.answer)) rename_model(*input.rename, body);
    relay.passes(body);
    fail_with_whole(relay.result, relay.answer.headers(), std::move(body));
  }
}

}  // namespace

Task<ForwardResult> forward_once(Exchange& exchange, HttpClient& client, ForwardInput& input) {
  ForwardResult result;
  if (input.phases != nullptr) input.phases->pause(steady_now());
  // A change of the worker's settings may replace `client` while its answer is awaited.
  const bool own_key = client.has_own_authorization();
  auto sent = co_await client.send(input.request, input.deadline);
  if (!sent.ok()) {
    fail_to_send(result, sent.status());
    co_return result;
  }
  ClientAnswer& answer = **sent;
  result.status = answer.status();
  result.failure.kind = FailureKind::kStatus;
  result.failure.http_status = result.status;
  result.failure.foreign = input.foreign;
  result.failure.any_path = input.any_path;
  result.failure.client_key = !own_key && !find_header(input.request.headers, "authorization").empty();
  if (route::retryable_status(result.status) || route::node_specific_rejection(result.failure)) {
    if (input.foreign) result.failure.retry_after = asked_pause(answer.headers());
    if (input.translate && route::lacks_path(result.status)) {
      fail_to_translate(input, result);
    } else {
      co_await fail_with_status(answer, result);
    }
    co_return result;
  }
  if (result.status != 200) input.translate = nullptr;
  Relay relay{exchange, answer, input, result};
  if (has_events(answer) && input.asks_whole && is_judged(input, result)) {
    fail_with_events(result);
  } else if (has_events(answer)) {
    co_await relay_stream(relay);
  } else if (input.streams && is_judged(input, result)) {
    co_await relay_unnamed(relay);
  } else if (result.status == 200 && exchange.promised_events()) {
    fail_to_stream(result);
  } else {
    co_await relay_whole(relay);
  }
  if (input.tap != nullptr) result.counts = input.tap->counts();
  if (!result.counts && input.passed != nullptr) result.counts = input.passed->counts();
  co_return result;
}

}  // namespace troupe
