#include "gateway/proxy/access_gate.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace troupe {

using route::FailureKind;
using route::Quota;

namespace {

// About, of prompts and whole answers without a worker's counts. (In a stream each token comes in an event.)
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

int64_t prompt_cost(const HttpRequest& request) {
  // The sound or image in a form is no text: a minute of it would be all of a key's tokens.
  const std::string_view type = request.header("content-type");
  if (absl::StartsWithIgnoreCase(to_absl(type), "multipart/")) return 1;
  return static_cast<int64_t>(request.body.size() / kBodyBytesAToken);
}

// Tokens of an answer that the client has: those that a worker of ours counted, or about as many as events.
int64_t answer_cost(const RequestContext& context) {
  const UsageTap& passed = context.worker.passed;
  if (!context.routed.stream) return static_cast<int64_t>(passed.bytes() / kBodyBytesAToken);
  const size_t counted = context.tap ? context.tap->tokens_delivered() : 0;
  return static_cast<int64_t>(counted > 0 ? counted : passed.events());
}

void spend(RequestContext& context, const SpentTokens& spent) {
  context.account.spent = spent;
  if (context.api_key_lease != nullptr) context.api_key_lease->cost(spent.total());
}

void charge_counted(RequestContext& context, const route::AnswerCounts& counts) {
  if (context.admission_ticket != nullptr) context.admission_ticket->cost(route::admission_cost(counts));
  SpentTokens spent{counts.prompt_tokens, counts.cached_tokens, counts.completion_tokens,
                    counts.reasoning_tokens, true};
  spend(context, spent);
}

}  // namespace

std::string authorization_of(const HttpRequest& request) {
  const std::string_view authorization = request.header("authorization");
  if (!authorization.empty()) return std::string(authorization);
  std::string_view key = request.header("api-key");
  if (key.empty()) key = request.header("x-api-key");
  return key.empty() ? std::string() : absl::StrCat("Bearer ", to_absl(key));
}

ApiResult<bool> AccessGate::identify(const HttpRequest& request, RequestContext& context) const {
  if (keys_ == nullptr) return true;
  const std::string authorization = authorization_of(request);
  context.client = keys_->find(authorization);
  if (context.client == nullptr) return unknown_key(authorization);
  return true;
}

ApiResult<bool> AccessGate::identify_explained(const HttpRequest& request, RequestContext& context) const {
  const std::string_view name = request.header(kExplainedKeyHeader);
  if (keys_ != nullptr && !name.empty()) {
    context.client = keys_->named(name);
    if (context.client == nullptr)
      return ApiError::bad_field(
          "", absl::StrCat(to_absl(kExplainedKeyHeader), ": no API key has the name '", to_absl(name), "'"));
    return true;
  }
  if (authorization_of(request).empty()) return true;
  return identify(request, context);
}

bool AccessGate::wants_body(const HttpRequest& head) const {
  return keys_ == nullptr || keys_->find(authorization_of(head)) != nullptr;
}

ApiResult<bool> AccessGate::let_in(const HttpRequest& request, RequestContext& context) const {
  if (const auto known = identify(request, context); !known.ok() || context.client == nullptr) return known;
  if (const auto refusal = context.client->begin(context.started)) return over(*refusal);
  context.api_key_lease = std::make_unique<ApiKeyLease>(context.client, core_.clock);
  return true;
}

void AccessGate::charge_prompt(const HttpRequest& request, RequestContext& context) {
  if (!costs_tokens(request, context.routed)) return;
  if (context.api_key_lease == nullptr && context.account.visit == nullptr) return;  // no account is charged
  spend(context, {prompt_cost(request)});
}

// Without a worker's counts.
void AccessGate::charge_seen(const Exchange& exchange, RequestContext& context) const {
  const int64_t answered = answer_cost(context);
  SpentTokens spent{prompt_cost(exchange.request())};
  spent.completion = answered;
  spend(context, spent);
  if (context.admission_ticket == nullptr || answered == 0)
    return;  // else the estimate of its arrival stands
  const route::Candidate* const chosen = context.flow.chosen();
  const int64_t cached = chosen == nullptr ? 0 : chosen->expect_cached;
  const int64_t prompt = std::max<int64_t>(core_.router.prompt_tokens(context.routed.key) - cached, 1);
  context.admission_ticket->cost(prompt + answered);
}

void AccessGate::charge_cancelled(const Exchange& exchange, RequestContext& context) const {
  if (!costs_tokens(exchange.request(), context.routed)) return spend(context, {});
  auto counts = context.tap ? context.tap->counts() : std::nullopt;
  if (!counts) counts = context.worker.passed.counts();
  if (counts) return charge_counted(context, *counts);
  charge_seen(exchange, context);
}

void AccessGate::charge(const Exchange& exchange, RequestContext& context,
                        const ForwardResult& result) const {
  if (!costs_tokens(exchange.request(), context.routed)) return spend(context, {});
  const bool failed = result.end == ForwardResult::End::kFailed;
  if (result.counts && !failed) return charge_counted(context, *result.counts);
  const bool late = result.failure.kind == FailureKind::kDeadline || result.failure.http_status == 504;
  if (failed ? exchange.head_sent() || late : result.status == 200) return charge_seen(exchange, context);
  spend(context, {});
}

}  // namespace troupe
