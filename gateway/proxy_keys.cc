// Who asks, and may he: API keys and their limits. Without keys anybody may.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "gateway/proxy.h"

namespace troupe {

using route::Quota;

namespace {

// Of answers that say no usage (a foreign worker's stream that nobody asked to, one that was not read to its
// end): what a token is in a body, and in a stream, each of whose tokens comes in an event. About.
constexpr size_t kBodyBytesAToken = 4;
constexpr size_t kStreamBytesAToken = 160;

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

// Tokens of an answer, of which a client has so many bytes.
int64_t Proxy::answered(const Flight& flight, size_t bytes) {
  const size_t per_token = flight.routed.stream ? kStreamBytesAToken : kBodyBytesAToken;
  const size_t told = flight.tap ? flight.tap->ids_told() : 0;
  return static_cast<int64_t>(told > 0 ? told : bytes / per_token);
}

void Proxy::charge_gone(const Exchange& exchange, const Flight& flight) const {
  const int64_t told = answered(flight, flight.passed_bytes);
  if (flight.visit != nullptr) flight.visit->cost(prompt_cost(exchange.request()) + told);
  if (flight.stay == nullptr || told == 0) return;  // else what was guessed stands
  const int64_t cached = flight.chosen == nullptr ? 0 : flight.chosen->expect_cached;
  flight.stay->cost(std::max<int64_t>(router_.prompt_tokens(flight.routed.key) - cached, 1) + told);
}

// Of a request that was tried in vain nothing; else what the last worker counted, or about what was seen to
// pass.
void Proxy::charge(const Exchange& exchange, const Flight& flight, const ForwardResult& result) {
  const bool failed = result.end == ForwardResult::End::kFailed;
  const auto& counts = result.counts;
  if (flight.stay != nullptr && counts && !failed)
    flight.stay->cost(counts->prompt_tokens - counts->cached_tokens + counts->completion_tokens);
  if (flight.visit == nullptr) return;
  if (counts && !failed) {
    flight.visit->cost(counts->prompt_tokens + counts->completion_tokens);
  } else if (failed ? !exchange.head_sent() : result.status != 200) {
    flight.visit->cost(0);
  } else {
    flight.visit->cost(prompt_cost(exchange.request()) + answered(flight, result.usage.bytes()));
  }
}

}  // namespace troupe
