#include "gateway/proxy/replies.h"

#include "absl/strings/str_cat.h"
#include "gateway/upstream/error_forms.h"
#include "gateway/upstream/headers.h"

namespace troupe {

using route::Candidate;
using route::FailureKind;

namespace {

// Replaces a worker's empty body by an error in the API's shape; its status and Retry-After are passed on.
void give_body(ForwardResult& result) {
  const std::string message = absl::StrCat("the worker answered ", result.status, " and said no more");
  ApiError error = result.status == 429   ? ApiError::overloaded(message, 0)
                   : result.status == 503 ? ApiError::unavailable(message)
                                          : ApiError::internal(message);
  error.http_status = result.status;
  std::erase_if(result.held_headers, [](const auto& header) {
    return header.first == "content-type" || header.first == "content-encoding";
  });
  result.held_headers.emplace_back("content-type", "application/json");
  result.held_body = error.to_json();
}

// Where it leads is on the workers' side, and no client's business.
ApiError redirect_error(int status) {
  ApiError error = ApiError::internal(absl::StrCat(
      "the worker answered ", status,
      ", a redirect, which the gateway does not follow: the worker's URL in its settings should be "
      "the one that this leads to"));
  error.http_status = 502;
  error.code = "bad_gateway";
  return error;
}

bool is_of_this_machine(std::string_view address) {
  return address.starts_with("127.") || address.starts_with("::1:") || address.starts_with("::ffff:127.");
}

std::string_view what_failed(FailureKind kind) {
  return kind == FailureKind::kSilent ? "the worker fell silent before the answer was complete"
                                      : "the worker broke off before the answer was complete";
}

ApiError broken_error(const route::Failure& failure, int tried) {
  if (failure.kind == FailureKind::kDeadline || failure.http_status == 504)
    return ApiError::deadline("the request's time was over before its answer was complete");
  std::string message(what_failed(failure.kind));
  if (tried > 1) message += ", and no other could go on";
  return ApiError::unavailable(message + "; ask again");
}

}  // namespace

void Replies::count_answer(RequestContext& context, int status, RequestOutcome end) {
  core_.instruments.request_done(status);
  context.record.status = status;
  context.record.end = end;
}

Task<void> Replies::give_up(Exchange& exchange, RequestContext& context, ForwardResult& result) {
  const bool refused = result.held && result.failure.kind == FailureKind::kStatus;
  if (refused && result.status / 100 == 3) {
    co_await refuse(exchange, context, redirect_error(result.status));
    co_return;
  }
  if (refused) {
    if (result.held_body.empty()) give_body(result);
    HeaderList headers = headers_for_client(result.held_headers, own_headers(context));
    count_answer(context, result.status, RequestOutcome::kRefused);
    context.record.why = failure_name(result.failure.kind);
    context.phases.pause(core_.clock.now());
    std::string body =
        error_body(error_form(exchange.request().path), result.status, std::move(result.held_body));
    co_await exchange.respond(result.status, headers, std::move(body));
    co_return;
  }
  ApiError error =
      ApiError::unavailable(absl::StrCat("no worker could be reached (", context.flow.attempts(), " tried)"));
  switch (result.failure.kind) {
    case FailureKind::kConnect:
      break;
    case FailureKind::kLocal:
      error = ApiError::overloaded("this gateway has no connection left to ask a worker with", 1);
      error.http_status = 503;  // no client asked too much: the gateway is short of descriptors
      error.type = "server_error";
      break;
    case FailureKind::kDeadline:
      error = ApiError::deadline("the request's time was over before a worker answered");
      break;
    case FailureKind::kStatus:
      error.http_status = 502;
      error.code = "bad_gateway";
      error.message = absl::StrCat(result.error.message(), " (", context.flow.attempts(), " tried)");
      break;
    case FailureKind::kTransport:
    case FailureKind::kBody:
    case FailureKind::kSilent:
      error.http_status = 502;
      error.code = "bad_gateway";
      error.message = absl::StrCat("the worker broke off before its answer was complete (",
                                   context.flow.attempts(), " tried)");
      break;
  }
  co_await refuse(exchange, context, error);
}

Task<void> Replies::answer(Exchange& exchange, RequestContext& context, int status, std::string body,
                           HeaderList extra) {
  HeaderList headers = own_headers(context);
  headers.insert(headers.end(), extra.begin(), extra.end());
  headers.emplace_back("content-type", "application/json");
  count_answer(context, status, RequestOutcome::kAnswered);
  context.phases.pause(core_.clock.now());
  co_await exchange.respond(status, headers, std::move(body));
}

Task<void> Replies::refuse(Exchange& exchange, RequestContext& context, const ApiError& error,
                           std::string_view allow) {
  HeaderList headers = own_headers(context);
  headers.emplace_back("content-type", "application/json");
  if (!allow.empty()) headers.emplace_back("allow", allow);
  if (error.http_status == 401) headers.emplace_back("www-authenticate", "Bearer");
  if (error.retry_after_s > 0) headers.emplace_back("retry-after", std::to_string(error.retry_after_s));
  if (core_.draining) exchange.close_after();
  count_answer(context, error.http_status, RequestOutcome::kRefused);
  context.record.why = error.code.empty() ? error.type : error.code;
  if (context.entry != nullptr) context.entry->outcome.status = error.http_status;
  std::string body = error_body(error_form(exchange.request().path), error.http_status, error.to_json());
  context.phases.pause(core_.clock.now());
  co_await exchange.respond(error.http_status, headers, std::move(body));
}

Task<void> Replies::end_broken(Exchange& exchange, RequestContext& context, ForwardResult& result) {
  count_answer(context, 200, RequestOutcome::kBroken);
  context.record.why = failure_name(result.failure.kind);
  core_.instruments.broken_streams.Increment();
  if (context.tap && context.tap->resumable()) core_.instruments.not_resumed.Increment();
  if (context.entry != nullptr) context.entry->outcome.status = kBrokenStatus;
  // The worker that began may have sent an error of its own.
  const bool said = context.flow.attempts() == 1 && result.held && !result.held_body.empty();
  const ApiError broken = broken_error(result.failure, context.flow.attempts());
  const int status = said ? result.status : broken.http_status;
  const std::string event =
      error_event_for(error_form(exchange.request().path), status, said ? result.held_body : broken.to_json(),
                      context.worker.passed.events());
  exchange.close_after();
  context.phases.pause(core_.clock.now());
  co_await exchange.write(event);
  co_await exchange.finish();
}

ApiError Replies::no_candidate(const std::string& model, const std::string& asked) const {
  const std::string& shown = asked.empty() ? model : asked;
  if (!core_.fleet.probed())
    return ApiError::unavailable("the gateway has just started and is still looking for its workers");
  if (core_.router.view().knows_model(model)) {
    return ApiError::unavailable(absl::StrCat("no worker that serves '", shown, "' is ready"));
  }
  if (core_.router.view().routable_count() == 0) return ApiError::unavailable("no worker is ready");
  return ApiError::not_found_model(shown);
}

HeaderList Replies::own_headers(const RequestContext& context) const {
  HeaderList headers;
  headers.reserve(8);
  headers.emplace_back("x-request-id", context.request_id);
  headers.emplace_back("x-route-decision", route_decision(context));
  if (!context.account.verdict.empty()) headers.emplace_back("x-troupe-moderation", context.account.verdict);
  if (context.account.visit != nullptr)
    core_.accounts->append_headers(*context.account.visit, core_.clock.now(), headers);
  return headers;
}

std::string Replies::node_name(const RequestContext& context, route::NodeIndex node) const {
  const bool is_operator =
      context.client == nullptr ? is_of_this_machine(context.record.client) : context.client->admin();
  return is_operator ? core_.fleet.id(node) : core_.fleet.name(node);
}

HeaderList Replies::stream_headers(const RequestContext& context) const {
  HeaderList headers = own_headers(context);
  headers.emplace_back("content-type", "text/event-stream; charset=utf-8");
  headers.emplace_back("cache-control", "no-cache");
  return headers;
}

// set=…;node=…;branch=…;attempt=…;expect=…;epoch=…   ("-" for what there is none of)
std::string Replies::route_decision(const RequestContext& context) const {
  const Hash128& set = context.routed.key.set;
  const Candidate* c = context.flow.chosen();
  const std::string node = c == nullptr ? "-" : node_name(context, c->node);
  return absl::StrCat(
      "set=", set.is_zero() ? "-" : set.hex(), ";node=", node,
      ";branch=", c == nullptr ? "-" : to_absl(route::branch_name(c->branch)),
      ";attempt=", context.flow.attempts(), ";expect=", c == nullptr ? 0 : c->expect_cached,
      ";epoch=", c == nullptr ? core_.router.table()->epoch() : context.flow.decision().table_epoch,
      context.routed.asked_model.empty() ? "" : ";arm=",
      context.routed.asked_model.empty() ? "" : context.routed.model);
}

std::string Replies::request_id(const HttpRequest& request) {
  if (const std::string_view own = request_id_of(request); !own.empty()) return std::string(own);
  Hash128 id;
  id.hi = ids_.next();
  id.lo = ids_.next();
  return absl::StrCat("req-", id.hex());
}

}  // namespace troupe
