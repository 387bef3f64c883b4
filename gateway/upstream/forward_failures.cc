#include "gateway/upstream/forward_failures.h"

#include <utility>

#include "common/api/error.h"
#include "gateway/upstream/length_refusal.h"

namespace troupe {

using route::FailureKind;

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

// An answer that came to its end and says nothing is as good as a 502: a worker that gives such ones is ill,
// though its connections are not.
void fail_with_nothing(ForwardResult& result) {
  result.status = 502;
  fail(result, FailureKind::kStatus, absl::UnavailableError("the worker's answer was empty, or none"));
}

Task<void> fail_with_status(ClientAnswer& answer, ForwardResult& result) {
  auto body = co_await answer.read_all(kHeldBodyMax);
  if (!body.ok() && body.status().code() == absl::StatusCode::kDeadlineExceeded) {
    fail(result, FailureKind::kDeadline, body.status());
    co_return;
  }
  result.held = true;
  result.held_headers = answer.headers();
  if (body.ok()) result.held_body = *std::move(body);
  fail(result, FailureKind::kStatus, absl::UnavailableError("the worker answered with an error status"));
  note_length_refusal(result.held_body, result.failure);
}

void fail_with_error(ForwardResult& result, StreamError error, std::string_view why) {
  if (result.status < 400) result.status = error.status;
  result.held = true;
  result.held_headers.emplace_back("content-type", "application/json");
  if (result.status == 429) result.held_headers.emplace_back("retry-after", "1");
  result.held_body = std::move(error.json);
  fail(result, FailureKind::kStatus, absl::UnavailableError(to_absl(why)));
  note_length_refusal(result.held_body, result.failure);
}

// The worker does not know what it was asked for, and others may.
void fail_to_translate(ForwardInput& input, ForwardResult& result) {
  result.failure.http_status = result.status = 404;
  fail(result, FailureKind::kStatus, absl::UnavailableError("the worker has no such answer"));
  result.status = input.missing_status;
  result.held = true;
  result.held_headers = {{"content-type", "application/json"}};
  result.held_body = std::move(input.missing);
}

void fail_to_read(ForwardResult& result, Status error) {
  const bool silent = error.code() == absl::StatusCode::kAborted;
  fail(result, silent ? FailureKind::kSilent : FailureKind::kBody, std::move(error));
}

namespace {

// A failure that says nothing about the request; the client gets it if no other worker does better.
void fail_as_bad_gateway(ForwardResult& result, std::string_view why) {
  result.status = 502;
  fail(result, FailureKind::kStatus, absl::UnavailableError(to_absl(why)));
  ApiError error = ApiError::internal(std::string(why));
  error.http_status = 502;
  error.code = "bad_gateway";
  result.held = true;
  result.held_headers = {{"content-type", "application/json"}};
  result.held_body = error.to_json();
}

}  // namespace

// Nothing but events can follow what the client has, or there is nothing good to pass on.
void fail_to_stream(ForwardResult& result) {
  fail_as_bad_gateway(result, "the worker did not stream its answer");
}

void fail_with_events(ForwardResult& result) {
  fail_as_bad_gateway(result, "the worker streamed its answer, where a whole one was asked for");
}

void fail_with_whole(ForwardResult& result, const HeaderList& headers, std::string body) {
  fail(result, FailureKind::kStatus, absl::UnavailableError("the worker answered whole, not in a stream"));
  result.failure.answered_whole = true;
  result.held = true;
  result.held_headers = headers;
  result.held_body = std::move(body);
}

bool is_judged(const ForwardInput& input, const ForwardResult& result) {
  return input.foreign && input.form != AnswerForm::kOther && result.status / 100 == 2;
}

bool is_no_answer(const ForwardInput& input, const ClientAnswer& answer, ForwardResult& result,
                  std::string_view body, bool is_begin) {
  const bool readable = answer.header("content-encoding").empty();
  if (!input.foreign || result.status / 100 != 2 || input.translate || !readable) return false;
  const bool known = input.form != AnswerForm::kOther;
  if (!known && result.status == 204) return false;
  const WholeKind kind = known ? kind_of_whole(body, input.form, is_begin)
                               : kind_of_passed(body, answer.header("content-type"), is_begin);
  if (kind == WholeKind::kError) fail_with_error(result, parse_error_json(body), kErrorInAnswer);
  if (kind == WholeKind::kNone) fail_with_nothing(result);
  return kind != WholeKind::kAnswer;
}

bool holds_length_refusal(const ClientAnswer& answer, ForwardResult& result, std::string& body) {
  note_length_refusal(body, result.failure);
  if (!result.failure.too_long) return false;
  result.held = true;
  result.held_headers = answer.headers();
  result.held_body = std::move(body);
  fail(result, FailureKind::kStatus,
       absl::UnavailableError("the request is longer than the worker's context"));
  return true;
}

}  // namespace troupe
