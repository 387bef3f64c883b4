#include "gateway/upstream/forward.h"

#include <algorithm>
#include <charconv>

#include "common/api/error.h"
#include "common/api/sse.h"
#include "common/json/json.h"
#include "gateway/upstream/headers.h"

namespace troupe {
namespace {

using route::FailureKind;

constexpr size_t kHeldEventMax = 1u << 20;  // an event longer than this is passed on in parts

// Retry-After in seconds; zero: none, or a date.
Duration retry_after_of(const ClientAnswer& answer) {
  const std::string_view text = answer.header("retry-after");
  int64_t seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size() || seconds < 0) return Duration::zero();
  return std::chrono::seconds(std::min<int64_t>(seconds, 86'400));
}

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

// An answer that is whole and empty is as good as a 502: a worker that gives such ones is ill, though its
// connections are not.
void fail_with_nothing(ForwardResult& result) {
  result.status = 502;
  fail(result, FailureKind::kStatus, absl::UnavailableError("the worker answered nothing"));
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
  if (body.empty() && relay.input.foreign && relay.input.generates && relay.result.status == 200) {
    fail_with_nothing(relay.result);
    co_return;
  }
  relay.passes(body);
  HeaderList headers = relay.headers();
  relay.rests();
  co_await relay.exchange.respond(relay.result.status, headers, std::move(body));
  relay.result.end = ForwardResult::End::kAnswered;
}

// An error event that the client has not seen is held like a status: another worker may do better.
void hold_error(ForwardResult& result, ToldError error) {
  result.status = error.status;
  result.held = true;
  result.held_headers.emplace_back("content-type", "application/json");
  if (error.status == 429) result.held_headers.emplace_back("retry-after", "1");
  result.held_body = std::move(error.json);
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
  bool ended = false;  // the client has the answer's end
  while (true) {
    auto more = co_await relay.answer.read(piece);
    if (!more.ok()) {
      fail_to_read(relay.result, more.status());
      co_return;
    }
    if (!*more) break;
    relay.came();
    hold_rest(piece, held);
    if (tap != nullptr) tap->cut(piece);
    if (tap != nullptr && tap->strayed()) {
      fail(relay.result, FailureKind::kBody,
           absl::UnavailableError("the worker did not go on where another one had stopped"));
      co_return;
    }
    const std::string_view error = error_event(piece);
    std::string_view events = piece;
    if (!error.empty()) events = events.substr(0, static_cast<size_t>(error.data() - piece.data()));
    if (relay.input.foreign && !relay.exchange.head_sent()) events = without_leading_comments(events);
    // Told by one of ours, or before there was any answer, an error is held; another one is passed on, and no
    // [DONE] after it.
    ToldError told;
    if (!error.empty()) told = told_error(error);
    const bool holds =
        tap != nullptr ? status_of_error_event(error) != 0 : events.empty() && !relay.exchange.head_sent();
    if (!error.empty() && !holds)
      events =
          std::string_view(events.data(), static_cast<size_t>(error.data() + error.size() - events.data()));
    ended |= relay.input.foreign && ends_answer(events);
    if (!events.empty()) {
      relay.first_byte();
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
    if (holds) {
      hold_error(relay.result, std::move(told));
    } else {
      co_await relay.exchange.finish();
      relay.result.end = ForwardResult::End::kBroken;
    }
    fail(relay.result, FailureKind::kStatus,
         absl::UnavailableError("the worker told an error in its stream"));
    co_return;
  }
  if (tap != nullptr && tap->heartbeats() && !tap->done()) {
    fail(relay.result, FailureKind::kBody, absl::UnavailableError("the answer ended before it was complete"));
    co_return;
  }
  const bool is_cut = relay.input.foreign && relay.input.generates && !ended && !ends_answer(held);
  if (is_cut && !relay.exchange.head_sent()) {
    fail_with_nothing(relay.result);
    co_return;
  }
  if (is_cut) {
    fail(relay.result, FailureKind::kBody,
         absl::UnavailableError("the stream ended without a finish reason or [DONE]"));
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

namespace {

// Calls `see(event)` for every event, its blank line included, until it returns true.
template <typename See>
void for_each_event(std::string_view events, See see) {
  while (!events.empty()) {
    const size_t plain = events.find("\n\n"), windows = events.find("\r\n\r\n");
    const size_t end = std::min(plain, windows);
    const size_t size = end == std::string_view::npos ? events.size() : end + (end == plain ? 2 : 4);
    if (see(events.substr(0, size))) return;
    events.remove_prefix(size);
  }
}

// Calls `see(name, value)` for every line of an event, as server-sent events have them.
template <typename See>
void for_each_line(std::string_view event, See see) {
  while (!event.empty()) {
    const size_t end = std::min(event.find('\n'), event.size());
    std::string_view line = event.substr(0, end);
    event.remove_prefix(std::min(end + 1, event.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    std::string_view value = line.substr(colon + 1);
    if (value.starts_with(' ')) value.remove_prefix(1);
    see(line.substr(0, colon), value);
  }
}

const bj::object* error_of(const StatusOr<bj::value>& data) {
  const bj::object* object = data.ok() ? data->if_object() : nullptr;
  if (object == nullptr) return nullptr;
  const bj::value* error = object->if_contains("error");
  const bj::value* kind = object->if_contains("object");
  const bool tells = error != nullptr && !error->is_null();
  return tells || (kind != nullptr && kind->is_string() && kind->get_string() == "error") ? object : nullptr;
}

bool tells_error(std::string_view event) {
  bool tells = false;
  for_each_line(event, [&](std::string_view name, std::string_view value) {
    tells |= name == "error" || (name == "event" && value == "error");
    // In a model's string the quotes would be escaped.
    if (name == "data" && value.find("\"error\"") != std::string_view::npos)
      tells |= error_of(parse_json(value)) != nullptr;
  });
  return tells;
}

int status_in(const bj::object& error) {
  for (const char* name : {"code", "status", "status_code"}) {
    const bj::value* code = error.if_contains(name);
    if (code != nullptr && code->is_int64() && code->get_int64() >= 400 && code->get_int64() < 600)
      return static_cast<int>(code->get_int64());
  }
  return 0;
}

}  // namespace

std::string_view error_event(std::string_view events) {
  std::string_view found;
  if (events.find("error") == std::string_view::npos) return found;
  for_each_event(events, [&](std::string_view event) {
    if (event.find("error") == std::string_view::npos || !tells_error(event)) return false;
    found = event;
    return true;
  });
  return found;
}

ToldError told_error(std::string_view event) {
  ToldError told;
  for_each_line(event, [&](std::string_view name, std::string_view value) {
    if (!told.json.empty() || (name != "data" && name != "error")) return;
    auto data = parse_json(value);
    bj::object* object = data.ok() ? data->if_object() : nullptr;
    if (object == nullptr) {
      told.json = ApiError::internal(std::string(value)).to_json();
      return;
    }
    bj::value* inner = object->if_contains("error");
    const bj::object* fields = inner == nullptr ? object : inner->if_object();
    int status = fields == nullptr ? 0 : status_in(*fields);
    if (status == 0) status = status_in(*object);
    if (status == 0) status = status_of_error_event(value);
    if (status != 0) told.status = status;
    told.json = inner == nullptr ? "{\"error\":" + to_json(*object) + "}" : std::string(value);
  });
  if (told.json.empty()) told.json = ApiError::internal("the worker told an error").to_json();
  return told;
}

bool ends_answer(std::string_view events) {
  constexpr std::string_view kReason = "\"finish_reason\"";
  for (size_t at = events.find(kReason); at != std::string_view::npos; at = events.find(kReason, at)) {
    at = events.find_first_not_of(" :", at + kReason.size());
    if (at != std::string_view::npos && events[at] == '"') return true;
  }
  return events.find("data: [DONE]") != std::string_view::npos ||
         events.find("data:[DONE]") != std::string_view::npos;
}

std::string_view without_leading_comments(std::string_view events) {
  size_t skipped = 0;
  for_each_event(events, [&](std::string_view event) {
    bool has_field = false;
    for_each_line(event, [&](std::string_view name, std::string_view) { has_field |= !name.empty(); });
    if (has_field) return true;
    skipped += event.size();
    return false;
  });
  return events.substr(skipped);
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
  result.failure = {FailureKind::kStatus, result.status, input.foreign};
  if (route::retryable_status(result.status) || route::refused_alone(result.failure)) {
    if (input.foreign) result.failure.retry_after = retry_after_of(answer);
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
