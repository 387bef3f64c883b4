#include "gateway/proxy/prefix_endpoint.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/api/prefix.h"
#include "common/json/json.h"
#include "gateway/proxy/request_scopes.h"
#include "gateway/proxy/request_tracing.h"
#include "gateway/upstream/ask_once.h"
#include "gateway/upstream/headers.h"

namespace troupe {

using route::Candidate;
using route::FailureKind;
using route::HealthEvent;

// One worker that was asked, and what it said.
struct PrefixEndpoint::Ask {
  route::NodeIndex node = route::kNoNode;
  ForwardResult result;

  bool ok() const { return result.end == ForwardResult::End::kAnswered; }
  bool is_unknown_there() const {
    if (result.failure.kind != FailureKind::kStatus || !result.held) return false;
    return result.status == 404 || result.status == 405 || result.status == 501;
  }
};

namespace {

constexpr std::string_view kIdsRemedy =
    "ids are 'prefix-' and 32 hex digits, as the answer of POST /v1/prefixes tells them";
constexpr std::string_view kUnknownRemedy =
    "no worker that is ready has it (it may have been evicted); POST /v1/prefixes with its messages computes "
    "it";
// A worker that hangs keeps a question about a prefix no longer than this.
constexpr auto kAskWithin = std::chrono::seconds(5);

bj::object object_of(std::string_view body) {
  auto value = parse_json(body);
  return value.ok() && value->is_object() ? value->as_object() : bj::object();
}

// The model of a prefix; empty where the worker does not say.
std::string model_said(const ForwardResult& result) {
  const bj::object body = object_of(result.held_body);
  const bj::value* model = body.if_contains("model");
  return model != nullptr && model->is_string() ? std::string(std::string_view(model->as_string())) : "";
}

// Copies what a worker's answer says of that worker alone.
bj::object said_by(const std::string& id, const ForwardResult& result, bool unknown_there) {
  bj::object said;
  said["node"] = id;
  if (result.status > 0) said["status"] = result.status;
  if (unknown_there) {
    said["supported"] = false;
    return said;
  }
  if (!result.held) {
    said["error"] = bj::string(failure_name(result.failure.kind));  // (the message has an address)
    return said;
  }
  const bj::object body = object_of(result.held_body);
  for (const char* key : {"tokens", "cached_tokens", "pinned", "ttl_s", "expires_at", "deleted", "error"}) {
    if (const bj::value* value = body.if_contains(key)) said[key] = *value;
  }
  return said;
}

ApiError not_supported(const RoutedRequest& routed) {
  const std::string& model = routed.asked_model.empty() ? routed.model : routed.asked_model;
  ApiError error = ApiError::unsupported(
      "",
      absl::StrCat("no worker that serves '", model, "' computes prefixes ahead of use (POST /v1/prefixes)"));
  error.http_status = 501;
  return error;
}

}  // namespace

Task<void> PrefixEndpoint::list(Exchange& exchange) {
  RequestContext context;
  context.routed.generates = context.routed.prefills = false;
  const RequestScope scope(core_, parts_.replies, exchange, context);
  ApiResult<bool> go = parts_.intake.enter(exchange.request(), context);
  if (go.ok()) go = parts_.gate.let_in(exchange.request(), context);
  if (!go.ok()) {
    co_await parts_.replies.refuse(exchange, context, go.error());
    co_return;
  }
  std::string text = pins_.list(context, parts_.replies);
  co_await parts_.replies.answer(exchange, context, 200, std::move(text));
}

// All that a request passes before it is sent.
Task<ApiResult<bool>> PrefixEndpoint::admit(Exchange& exchange, RequestContext& context) {
  ApiResult<bool> go = parts_.intake.enter(exchange.request(), context);
  if (go.ok()) go = parts_.gate.let_in(exchange.request(), context);
  if (go.ok()) go = parts_.intake.prepare(exchange.request(), parse_prefix, context);
  if (parts_.intake.awaits_initial_probing(go, context))
    go = co_await parts_.intake.prepare_after_look(exchange, parse_prefix, context);
  if (go.ok()) go = pins_.allow(exchange.request(), context);
  if (go.ok() && parts_.admission.has_account(exchange.request(), context))
    go = co_await parts_.admission.take_holds(exchange.request(), context);
  if (go.ok()) go = parts_.admission.arrive(context);
  if (go.ok() && context.admission_ticket->waits()) go = co_await parts_.admission.wait(context);
  if (go.ok() && context.waited &&
      context.flow.choose(core_.flow_context(), core_.clock.now()) == route::Action::kRefuse)
    go = parts_.replies.no_candidate(context.routed.model, context.routed.asked_model);
  co_return go;
}

// The set's homes by the table, of those that can be asked.
std::vector<Candidate> PrefixEndpoint::homes_of(const RequestContext& context) const {
  std::vector<Candidate> homes;
  const route::PrefixKey& key = context.routed.key;
  const route::Homes* planned =
      key.set.is_zero() ? nullptr : core_.router.table()->find(key.set, context.routed.model);
  if (planned == nullptr) return homes;
  const auto serving = core_.router.view().nodes_for(context.routed.model);
  for (const route::NodeIndex node : planned->nodes()) {
    if (std::find(serving.begin(), serving.end(), node) == serving.end()) continue;
    Candidate& home = homes.emplace_back();
    home.node = node;
    home.branch = route::Branch::kHome;
  }
  return homes;
}

Task<void> PrefixEndpoint::make(Exchange& exchange) {
  RequestContext context;
  const RequestScope scope(core_, parts_.replies, exchange, context);
  ApiResult<bool> go = co_await admit(exchange, context);
  if (!go.ok()) {
    co_await parts_.replies.refuse(exchange, context, go.error());
    co_return;
  }
  AccessGate::charge_prompt(exchange.request(), context);
  core_.retry_budget.earn(context.started);
  std::vector<Candidate> targets = homes_of(context);
  const size_t home_count = targets.size();
  for (const Candidate& candidate : context.flow.decision().order.all()) {
    const auto same = [&candidate](const Candidate& t) { return t.node == candidate.node; };
    if (std::none_of(targets.begin(), targets.end(), same)) targets.push_back(candidate);
  }
  std::vector<Ask> asks;
  bool made = false;
  const BookingGuard booking(core_, context);
  for (size_t i = 0; i < targets.size(); ++i) {
    if (i >= home_count && (made || (!asks.empty() && !asks_another(context, asks)))) break;
    if (is_too_short(context, targets[i].node)) continue;
    context.flow.send_to(core_.flow_context(), targets[i], false, core_.clock.now());
    Ask ask;
    ask.node = targets[i].node;
    record_attempt(core_, exchange, context);
    ask.result = co_await ask_to_make(exchange.request(), context);
    record_attempt_end(core_, context, ask.result);
    made = made || ask.ok();
    asks.push_back(std::move(ask));
    if (exchange.cancel_reason() != CancelReason::kNone) break;
  }
  if (made) keep(exchange.request(), context, asks);
  context.permits.pin = {};
  if (exchange.cancel_reason() != CancelReason::kNone) co_return;
  if (made) {
    co_await answer_made(exchange, context, asks);
  } else {
    co_await answer_not_made(exchange, context, asks);
  }
}

// Records a prefix that workers have made, whether its client is still there or not.
void PrefixEndpoint::keep(const HttpRequest& request, const RequestContext& context,
                          const std::vector<Ask>& asks) const {
  std::vector<route::NodeIndex> made_at;
  for (const Ask& ask : asks) {
    if (ask.ok()) made_at.push_back(ask.node);
  }
  const auto first = std::find_if(asks.begin(), asks.end(), [](const Ask& ask) { return ask.ok(); });
  pins_.keep(request, context, {object_of(first->result.held_body), made_at});
}

Task<ForwardResult> PrefixEndpoint::ask_to_make(const HttpRequest& request, RequestContext& context) {
  const route::NodeIndex node = context.flow.attempt().candidate.node;
  ClientRequest asked;
  asked.method = "POST";
  asked.target = kPrefixesPath;
  asked.headers = headers_for(request, context, core_.fleet.is_troupe_worker(node));
  asked.body = context.body_for_worker(request);
  ForwardResult result = co_await ask_once(core_.fleet.client(node), asked, context.deadline);
  const TimePoint now = core_.clock.now();
  if (result.end == ForwardResult::End::kAnswered) context.flow.first_byte(core_.flow_context(), false, now);
  const bool too_long = route::refused_for_length(result.failure);
  if (result.held && !too_long && !route::retryable_status(result.status)) {
    context.flow.answered(core_.flow_context(), std::nullopt, result.status, now);
  } else {
    context.flow.broken(core_.flow_context(), result.failure, true, now);
  }
  co_return result;
}

// `own`: with the name of the client's prefixes, which a worker of ours keeps.
HeaderList PrefixEndpoint::headers_for(const HttpRequest& request, const RequestContext& context,
                                       bool own) const {
  HeaderList headers = parts_.driver.worker_headers(request, context);
  std::string owner = own ? PinService::owner_of(context) : std::string();
  if (!owner.empty()) headers.emplace_back(kOwnerHeader, std::move(owner));
  return headers;
}

// The client's own pin is to end at the workers that keep the prefix for others. One that does not answer is
// asked again by whatever sees it in its list (route/placement/pin_importer.h).
Task<void> PrefixEndpoint::release(const HttpRequest& request, const RequestContext& context,
                                   std::string_view id) {
  if (!core_.pins_by_owner) co_return;  // they are asked once its last owner has removed it
  for (const route::NodeIndex node : pins_.nodes_of(id, context)) {
    if (!core_.fleet.member(node) || !core_.router.view().routable(node)) continue;
    ClientRequest asked;
    asked.method = "DELETE";
    asked.target = request.path;
    asked.headers = headers_for(request, context, true);
    const Deadline within{std::min(context.deadline.at, core_.clock.now() + kAskWithin)};
    co_await ask_once(core_.fleet.client(node), asked, within);
  }
}

// A worker whose context is no longer than that of one which refused it for its length.
bool PrefixEndpoint::is_too_short(const RequestContext& context, route::NodeIndex node) const {
  const int64_t holds = core_.router.view().node(node).context_of(context.routed.model);
  return holds > 0 && holds <= context.routed.key.longer_than;
}

// The rules are those of every request, but a server of another kind counts as no try, and one whose context
// is too short neither. REQUIRES: no worker has computed it.
bool PrefixEndpoint::asks_another(const RequestContext& context, const std::vector<Ask>& asks) {
  const Ask& last_ask = asks.back();
  if (last_ask.is_unknown_there()) return true;
  const ForwardResult& last = last_ask.result;
  const auto too_long = [](const Ask& ask) { return route::refused_for_length(ask.result.failure); };
  route::AttemptState state;
  state.attempts =
      context.flow.attempts() - static_cast<int>(std::count_if(asks.begin(), asks.end(), too_long));
  state.candidates_left = 1;
  const TimePoint now = core_.clock.now();
  state.remaining = context.deadline.remaining(now);
  return route::decide_retry(last.failure, state, core_.retry_budget, now) ==
         route::RetryAction::kNextCandidate;
}

// {"id": …, "object": "prefix", …, "nodes": [{"node": …, "status": 200, …}, …]}
Task<void> PrefixEndpoint::answer_made(Exchange& exchange, RequestContext& context,
                                       const std::vector<Ask>& asks) {
  bj::object body;
  bj::array nodes;
  for (const Ask& ask : asks) {
    if (ask.ok() && body.empty()) body = object_of(ask.result.held_body);
    nodes.emplace_back(
        said_by(parts_.replies.node_name(context, ask.node), ask.result, ask.is_unknown_there()));
  }
  // (The name by which the client knows the model.)
  if (!context.routed.asked_model.empty() && body.contains("model"))
    body["model"] = context.routed.asked_model;
  body["nodes"] = std::move(nodes);
  std::string text = to_json(body);
  co_await parts_.replies.answer(exchange, context, 200, std::move(text));
}

// The last failure of a worker that could have done it.
Task<void> PrefixEndpoint::answer_not_made(Exchange& exchange, RequestContext& context,
                                           std::vector<Ask>& asks) {
  const auto could = [](const Ask& ask) { return !ask.is_unknown_there(); };
  const auto last = std::find_if(asks.rbegin(), asks.rend(), could);
  if (last == asks.rend()) {
    const ApiError error = not_supported(context.routed);
    co_await parts_.replies.refuse(exchange, context, error);
  } else {
    co_await parts_.replies.give_up(exchange, context, last->result);
  }
}

// Asks one worker of it. False: it is not there, as far as this client may know. Where the worker has
// models that are not the client's, its first answer names the model of the prefix. `by_owner`: a worker of
// ours judges whether the prefix is the client's.
Task<bool> PrefixEndpoint::ask_of_known(const HttpRequest& request, const RequestContext& context,
                                        bool by_owner, Ask& ask) {
  const auto may = [&context](const std::string& model) { return AccessGate::may_use(context, model); };
  const std::vector<std::string>& models = core_.router.view().node(ask.node).models;
  if (std::none_of(models.begin(), models.end(), may)) co_return false;
  const bool sure = std::all_of(models.begin(), models.end(), may);
  const bool deletes = request.method == "DELETE";
  ClientRequest asked;
  asked.method = deletes && sure ? "DELETE" : "GET";
  asked.target = request.path;
  asked.headers = headers_for(request, context, by_owner && core_.fleet.is_troupe_worker(ask.node));
  const Deadline within{std::min(context.deadline.at, core_.clock.now() + kAskWithin)};
  ask.result = co_await ask_once(core_.fleet.client(ask.node), asked, within);
  if (ask.ok() && !sure && !may(model_said(ask.result))) co_return false;
  if (ask.ok() && deletes && !sure) {
    asked.method = "DELETE";
    ask.result = co_await ask_once(core_.fleet.client(ask.node), asked, within);
  }
  co_return !ask.is_unknown_there();
}

Task<void> PrefixEndpoint::known(Exchange& exchange) {
  const HttpRequest& request = exchange.request();
  RequestContext context;
  context.routed.generates = context.routed.prefills = false;
  const RequestScope scope(core_, parts_.replies, exchange, context);
  const std::string id(prefix_id_of(request.path));
  ApiResult<bool> go = parts_.intake.enter(exchange.request(), context);
  if (go.ok()) go = parts_.gate.let_in(request, context);
  if (go.ok() && !parse_prefix_id(id)) go = unknown_prefix(id, kIdsRemedy);
  const PinService::Holders holders = go.ok() ? pins_.holders(id, context) : PinService::Holders();
  const auto timeout = timeout_of(request, core_.options);
  if (go.ok() && !timeout.ok()) go = timeout.error();
  if (go.ok()) go = parts_.admission.arrive(context);
  if (!go.ok()) {
    co_await parts_.replies.refuse(exchange, context, go.error());
    co_return;
  }
  context.deadline = Deadline::after(context.started, timeout.value());
  if (request.method == "DELETE" && holders.client && holders.others) {  // the workers keep it for them
    co_await release(request, context, id);
    pins_.erase(id, context);
    std::string text = prefix_deleted_json(id);
    co_await parts_.replies.answer(exchange, context, 200, std::move(text));
    co_return;
  }
  // With a store the book knows all pins; what is not pinned only its worker knows.
  const bool by_owner = core_.pins_by_owner || !holders.client;
  std::vector<Ask> asks;
  bool found = false, unsure = false;
  for (route::NodeIndex node = 0; node < core_.fleet.size(); ++node) {
    if (!core_.fleet.member(node) || !core_.router.view().routable(node)) continue;
    Ask ask;
    ask.node = node;
    const bool there = co_await ask_of_known(request, context, by_owner, ask);
    found = found || (there && ask.ok());
    if (exchange.cancel_reason() != CancelReason::kNone) {
      if (found && request.method == "DELETE") pins_.erase(id, context);
      co_return;
    }
    if (!there) continue;
    unsure = unsure || !ask.ok();
    asks.push_back(std::move(ask));
  }
  if (found) {
    if (request.method == "DELETE") pins_.erase(id, context);
    co_await answer_made(exchange, context, asks);
  } else if (request.method == "DELETE" && !unsure && pins_.erase(id, context)) {  // its workers have lost it
    std::string text = prefix_deleted_json(id);
    co_await parts_.replies.answer(exchange, context, 200, std::move(text));
  } else {
    const ApiError error = unsure ? ApiError::unavailable("not all workers could be asked for this prefix")
                                  : unknown_prefix(id, kUnknownRemedy);
    co_await parts_.replies.refuse(exchange, context, error);
  }
}

}  // namespace troupe
