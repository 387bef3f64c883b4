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

ApiResult<bool> Proxy::identify(const HttpRequest& request, RequestContext& context) const {
  if (keys_ == nullptr) return true;
  const std::string_view authorization = request.header("authorization");
  context.client = keys_->find(authorization);
  if (context.client == nullptr) return unknown_key(authorization);
  return true;
}

bool Proxy::wants_body(const HttpRequest& head) const {
  return keys_ == nullptr || keys_->find(head.header("authorization")) != nullptr;
}

ApiResult<bool> Proxy::let_in(const HttpRequest& request, RequestContext& context) const {
  if (const auto known = identify(request, context); !known.ok() || context.client == nullptr) return known;
  if (const auto refusal = context.client->begin(context.started)) return over(*refusal);
  context.visit = std::make_unique<ApiVisit>(context.client, clock_);
  return true;
}

bool Proxy::may_use(const RequestContext& context, const std::string& model) {
  return context.client == nullptr || context.client->may_use(model);
}

std::string_view Proxy::tenant_salt(const RequestContext& context) {
  return context.client == nullptr ? std::string_view() : context.client->tenant_salt();
}

int64_t Proxy::prompt_cost(const HttpRequest& request) {
  return static_cast<int64_t>(request.body.size() / kBodyBytesAToken);
}

// Tokens of an answer that the client has: those that a worker of ours told, or about as many as events.
int64_t Proxy::answered(const RequestContext& context) {
  if (!context.routed.stream) return static_cast<int64_t>(context.passed.bytes() / kBodyBytesAToken);
  const size_t told = context.tap ? context.tap->tokens_told() : 0;
  return static_cast<int64_t>(told > 0 ? told : context.passed.events());
}

void Proxy::charge_counted(const RequestContext& context, const route::AnswerCounts& counts) {
  if (context.admission_ticket != nullptr) context.admission_ticket->cost(route::admission_cost(counts));
  if (context.visit != nullptr) context.visit->cost(counts.prompt_tokens + counts.completion_tokens);
}

// Nobody has counted it.
void Proxy::charge_seen(const Exchange& exchange, const RequestContext& context) const {
  const int64_t told = answered(context);
  if (context.visit != nullptr) context.visit->cost(prompt_cost(exchange.request()) + told);
  if (context.admission_ticket == nullptr || told == 0) return;  // else what was guessed stands
  const route::Candidate* const chosen = context.flow.chosen();
  const int64_t cached = chosen == nullptr ? 0 : chosen->expect_cached;
  context.admission_ticket->cost(std::max<int64_t>(router_.prompt_tokens(context.routed.key) - cached, 1) +
                                 told);
}

// Whoever leaves when the worker has told its counts, at the last event or before [DONE], knows them, too.
void Proxy::charge_gone(const Exchange& exchange, const RequestContext& context) const {
  auto counts = context.tap ? context.tap->counts() : std::nullopt;
  if (!counts) counts = context.passed.counts();
  if (counts) return charge_counted(context, *counts);
  charge_seen(exchange, context);
}

// Of a request that was tried in vain nothing; else what the last worker counted, or about what was seen to
// pass. One whose time was over has had its prompt computed like one whose client left: the time is the
// client's to set.
void Proxy::charge(const Exchange& exchange, const RequestContext& context,
                   const ForwardResult& result) const {
  const bool failed = result.end == ForwardResult::End::kFailed;
  if (result.counts && !failed) return charge_counted(context, *result.counts);
  const bool late = result.failure.kind == FailureKind::kDeadline || result.failure.http_status == 504;
  if (failed ? exchange.head_sent() || late : result.status == 200) return charge_seen(exchange, context);
  if (context.visit != nullptr) context.visit->cost(0);
}

}  // namespace troupe
