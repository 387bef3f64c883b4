#include "gateway/upstream/ask_once.h"

#include <utility>

#include "gateway/upstream/forward_failures.h"
#include "gateway/upstream/length_refusal.h"

namespace troupe {

using route::FailureKind;

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
    note_length_refusal(result.held_body, result.failure);
  }
  co_return result;
}

}  // namespace troupe
