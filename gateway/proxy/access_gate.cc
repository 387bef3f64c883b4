// Who asks, and may he: API keys and their limits. Without keys anybody may.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "gateway/proxy/proxy.h"

namespace troupe {

using route::FailureKind;
using route::Quota;

namespace {

// Of prompts and whole answers whose tokens nobody has counted. About. (In a stream each comes in an event.)
constexpr size_t kBodyBytesAToken = 4;

ApiError over(const Quota::Refusal& refusal) {
  const int seconds = std::max(route::retry_after_s(refusal.wait), 1);
  const std::string_view what = refusal.limit == Quota::Limit::kRequestsAtOnce      ? "requests at once"
                                : refusal.limit == Quota::Limit::kRequestsPerSecond ? "requests a second"
                                                                                    : "tokens a minute";
  ApiError error =
      ApiError::overloaded(absl::StrCat("this API key is over its limit of ", to_absl(what)), seconds);
  error.code = "rate_limit_exceeded";
  return error;
}

}  // namespace

ApiResult<bool> Proxy::identify(const HttpRequest& request, Flight& flight) const {
  if (keys_ == nullptr) return true;
  const std::string_view authorization = request.header("authorization");
  flight.client = keys_->find(authorization);
  if (flight.client == nullptr) return unknown_key(authorization);
  return true;
}

bool Proxy::wants_body(const HttpRequest& head) const {
  return keys_ == nullptr || keys_->find(head.header("authorization")) != nullptr;
}

ApiResult<bool> Proxy::let_in(const HttpRequest& request, Flight& flight) const {
  if (const auto known = identify(request, flight); !known.ok() || flight.client == nullptr) return known;
  if (const auto refusal = flight.client->begin(flight.started)) return over(*refusal);
  flight.visit = std::make_unique<ApiVisit>(flight.client, clock_);
  return true;
}

bool Proxy::may_use(const Flight& flight, const std::string& model) {
  return flight.client == nullptr || flight.client->may_use(model);
}

std::string_view Proxy::tenant_salt(const Flight& flight) {
  return flight.client == nullptr ? std::string_view() : flight.client->tenant_salt();
}

int64_t Proxy::prompt_cost(const HttpRequest& request) {
  return static_cast<int64_t>(request.body.size() / kBodyBytesAToken);
}

// Tokens of an answer that the client has: those that a worker of ours told, or about as many as events.
int64_t Proxy::answered(const Flight& flight) {
  if (!flight.routed.stream) return static_cast<int64_t>(flight.passed.bytes() / kBodyBytesAToken);
  const size_t told = flight.tap ? flight.tap->tokens_told() : 0;
  return static_cast<int64_t>(told > 0 ? told : flight.passed.events());
}

void Proxy::charge_counted(const Flight& flight, const route::AnswerCounts& counts) {
  if (flight.stay != nullptr)
    flight.stay->cost(counts.prompt_tokens - counts.cached_tokens + counts.completion_tokens);
  if (flight.visit != nullptr) flight.visit->cost(counts.prompt_tokens + counts.completion_tokens);
}

// Nobody has counted it.
void Proxy::charge_seen(const Exchange& exchange, const Flight& flight) const {
  const int64_t told = answered(flight);
  if (flight.visit != nullptr) flight.visit->cost(prompt_cost(exchange.request()) + told);
  if (flight.stay == nullptr || told == 0) return;  // else what was guessed stands
  const int64_t cached = flight.chosen == nullptr ? 0 : flight.chosen->expect_cached;
  flight.stay->cost(std::max<int64_t>(router_.prompt_tokens(flight.routed.key) - cached, 1) + told);
}

// Whoever leaves when the worker has told its counts, at the last event or before [DONE], knows them, too.
void Proxy::charge_gone(const Exchange& exchange, const Flight& flight) const {
  auto counts = flight.tap ? flight.tap->counts() : std::nullopt;
  if (!counts) counts = flight.passed.counts();
  if (counts) return charge_counted(flight, *counts);
  charge_seen(exchange, flight);
}

// Of a request that was tried in vain nothing; else what the last worker counted, or about what was seen to
// pass. One whose time was over has had its prompt computed like one whose client left: the time is the
// client's to set.
void Proxy::charge(const Exchange& exchange, const Flight& flight, const ForwardResult& result) const {
  const bool failed = result.end == ForwardResult::End::kFailed;
  if (result.counts && !failed) return charge_counted(flight, *result.counts);
  const bool late = result.failure.kind == FailureKind::kDeadline || result.failure.http_status == 504;
  if (failed ? exchange.head_sent() || late : result.status == 200) return charge_seen(exchange, flight);
  if (flight.visit != nullptr) flight.visit->cost(0);
}

}  // namespace troupe
