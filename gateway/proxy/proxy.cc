#include "gateway/proxy/proxy.h"

#include <algorithm>
#include <functional>

#include "absl/strings/str_cat.h"
#include "common/api/prefix.h"
#include "common/json/json.h"
#include "gateway/proxy/proxy_scopes.h"
#include "gateway/upstream/headers.h"

namespace troupe {

using route::Candidate;
using route::FailureKind;

namespace {

// Empty: there is no such path.
std::string_view methods_of(std::string_view path) {
  if (path == "/v1/models" || path == "/health") return "GET, HEAD";
  if (path == kPrefixesPath || forward_parser(path) != nullptr) return "POST";
  return prefix_id_of(path).empty() ? "" : "GET, HEAD, DELETE";
}

bool reads(const HttpRequest& request) {
  return request.method == "GET" || request.method == "HEAD";
}

}  // namespace

Proxy::Proxy(const ProxyOptions& options, const Parts& parts, uint64_t seed)
    : options_(options),
      parser_(options.api),
      fleet_(parts.fleet),
      router_(parts.router),
      instruments_(parts.instruments),
      admission_queue_(parts.admission_queue),
      clock_(parts.clock),
      log_(parts.log),
      signals_(std::make_unique<Signals>(parts.fleet)),
      retry_budget_(options.retry),
      ids_(seed) {}

void Proxy::record_to(TrafficRecorder& record) {
  record_ = &record;
  options_.mark_salt = record.salt();
}

void Proxy::change(const ProxyOptions& options) {
  const auto mark_salt = options_.mark_salt;
  const bool keep_parsed = options_.keep_parsed;
  options_ = options;
  options_.mark_salt = mark_salt;
  options_.keep_parsed = keep_parsed;
  parser_ = ApiParser(options.api);
  retry_budget_.change(options.retry);
}

void Proxy::keep_texts(PrefixTextCache& texts) {
  texts_ = &texts;
  options_.keep_parsed = true;
}

Task<void> Proxy::handle(Exchange& exchange) {
  const HttpRequest& request = exchange.request();
  const bool post = request.method == "POST";
  if (const ForwardParser parse = forward_parser(request.path); parse != nullptr && post)
    return route_and_forward(exchange, parse);
  if (post && request.path == kPrefixesPath) return make_prefix(exchange);
  const bool known = reads(request) || request.method == "DELETE";
  return known && !prefix_id_of(request.path).empty() ? known_prefix(exchange) : answer_own(exchange);
}

// What the gateway knows itself, and whatever it does not know.
Task<void> Proxy::answer_own(Exchange& exchange) {
  const HttpRequest& request = exchange.request();
  const bool get = reads(request);
  RequestContext context;
  const Running running(*this, exchange, context);
  if (get && request.path == "/v1/models") {
    if (const auto known = identify(request, context); !known.ok()) {
      co_await refuse(exchange, context, known.error());
      co_return;
    }
    auto models = fleet_.models();
    if (models.empty() && !fleet_.probed()) {
      co_await first_look(exchange, context);
      models = fleet_.models();
    }
    std::erase_if(models, [&context](const ModelCard& model) { return !may_use(context, model.id); });
    std::string body = models_json(models);
    co_await answer(exchange, context, 200, std::move(body));
  } else if (get && request.path == "/health") {
    auto [status, body] = health();
    co_await answer(exchange, context, status, std::move(body));
  } else {
    const std::string_view allow = methods_of(request.path);
    const bool elsewhere = request.path.starts_with("/admin") || request.path == "/metrics";
    ApiError error =
        ApiError::bad_field("", absl::StrCat("there is no ", request.method, " ", request.path, " here",
                                             elsewhere ? "; it is on the metrics port" : ""));
    error.http_status = allow.empty() ? 404 : 405;
    error.code = allow.empty() ? "not_found" : "method_not_allowed";
    co_await refuse(exchange, context, error, allow);
  }
}

Task<void> Proxy::route_and_forward(Exchange& exchange, ForwardParser parse) {
  RequestContext context;
  context.timed = exchange.request().path.ends_with("/completions");
  const Running running(*this, exchange, context);
  ApiResult<bool> go = admit(context);
  if (go.ok()) go = let_in(exchange.request(), context);
  if (go.ok()) go = prepare(exchange.request(), parse, context);
  if (awaits_first_look(go, context)) go = co_await prepare_after_look(exchange, parse, context);
  if (go.ok()) go = ask_in(context);
  if (!go.ok()) {
    co_await refuse(exchange, context, go.error());
    co_return;
  }
  if (context.admission_ticket != nullptr && context.admission_ticket->waits()) {
    go = co_await wait_in_queue(context);
    if (!go.ok()) {
      co_await refuse(exchange, context, go.error());
      co_return;
    }
  }
  co_await forward(exchange, context);
}

ApiResult<bool> Proxy::admit(RequestContext& context) {
  if (draining_)
    return ApiError::unavailable("this gateway is shutting down; ask again, another will answer");
  const auto most = static_cast<int64_t>(options_.requests_max);
  if (!places_.enter(most, context.started)) {
    return ApiError::overloaded(absl::StrCat("this gateway has ", most, " requests at once, its limit"),
                                route::retry_after_s(places_.reject(context.started)));
  }
  context.inside.emplace(places_, clock_);
  return true;
}

// parse, prefix_key, choose: all that the gateway computes itself.
ApiResult<bool> Proxy::prepare(const HttpRequest& request, ForwardParser parse, RequestContext& context) {
  context.phases.enter(Phase::kParse, clock_.now());
  auto timeout = timeout_of(request, options_);
  if (!timeout.ok()) return timeout.error();
  context.deadline = Deadline::after(context.started, *timeout);
  auto resend = resend_of(request);
  if (!resend.ok()) return resend.error();
  context.resend = *resend;
  auto routed = parse(request, parser_input(context));
  if (!routed.ok()) return routed.error();
  context.routed = std::move(*routed);
  rewrite(request, context);
  if (context.routed.model.empty()) {
    auto model = only_model(context);
    if (!model.ok()) return model.error();
    context.routed.model = std::move(*model);
  }
  if (!may_use(context, context.routed.model)) return ApiError::not_found_model(context.routed.model);
  const TimePoint parsed = clock_.now();
  context.phases.enter(Phase::kChoose, parsed);
  if (context.request_record != nullptr) context.request_record->parsed = parsed;
  router_.refine(context.routed.key);
  keep_text(context.routed);
  context.flow.begin(context.routed.key, context.routed.model, context.routed.choices);
  const route::Action action = context.flow.choose(flow_context(), parsed);
  if (context.request_record != nullptr) context.request_record->chosen = clock_.now();
  record_arrival(context);
  if (action == route::Action::kRefuse) return no_candidate(context.routed.model);
  return true;
}

// A list that is empty for want of a look would say what is not so.
Task<void> Proxy::first_look(const Exchange& exchange, RequestContext& context) {
  while (!fleet_.probed() && clock_.now() < context.started + kFirstLookMax)
    co_await before_looking_again(exchange, context);
}

Task<void> Proxy::before_looking_again(const Exchange& exchange, RequestContext& context) {
  context.phases.pause(clock_.now());
  Timer timer(exchange.executor());
  timer.expires_after(std::chrono::milliseconds(5));
  co_await timer.async_wait(use_task);
}

// Nobody was found, and not everybody was looked at yet. Whoever comes to a gateway that has just started (or
// was started again where one died) is no worse off for it than by the time that this takes.
bool Proxy::awaits_first_look(const ApiResult<bool>& prepared, const RequestContext& context) const {
  if (prepared.ok() || prepared.error().http_status != 503 || fleet_.probed()) return false;
  const TimePoint now = clock_.now();
  return now < context.started + kFirstLookMax && context.deadline.remaining(now) > Duration::zero();
}

Task<ApiResult<bool>> Proxy::prepare_after_look(const Exchange& exchange, ForwardParser parse,
                                                RequestContext& context) {
  ApiResult<bool> go = true;
  do {
    co_await before_looking_again(exchange, context);
    go = prepare(exchange.request(), parse, context);
  } while (awaits_first_look(go, context));
  co_return go;
}

// Of a persona that was asked for before: of prompts that share nothing there are too many.
void Proxy::keep_text(RoutedRequest& routed) {
  if (routed.parsed == nullptr) return;
  const std::unique_ptr<GenerateRequest> parsed = std::move(routed.parsed);
  const route::PrefixKey& key = routed.key;
  if (key.set.is_zero() || texts_->use(key.set) || router_.known().sets.share(key.set) <= 0) return;
  PrefixTextCache::Text text;
  text.model = routed.model;
  text.body = prefix_body(*parsed, routed.model, key);
  text.key.set = key.set;
  text.key.chat = key.chat;
  text.key.prefix_messages = key.prefix_messages;
  text.key.prefix_bytes = key.prefix_bytes;
  if (!text.body.empty()) texts_->put(key.set, std::move(text));
}

// What could be routed is traffic; a model that nobody serves, or text only, is not.
void Proxy::record_arrival(RequestContext& context) {
  if (record_ == nullptr || !context.routed.generates || !router_.view().knows_model(context.routed.model))
    return;
  const route::PrefixKey& key = context.routed.key;
  TrafficArrival arrival;
  arrival.model = context.routed.model;
  arrival.set = key.set;
  if (!key.session.is_zero()) arrival.session = chain_hash(record_->salt(), key.session.hex());
  arrival.prefix_bytes = key.prefix_bytes;
  arrival.marks = std::move(context.routed.marks);
  context.entry = std::make_unique<TrafficEntry>(*record_, std::move(arrival), context.started);
}

void Proxy::record_answer(const RequestContext& context, const ForwardResult& result) const {
  TrafficOutcome& outcome = context.entry->outcome;
  const route::RequestFlow::Attempt& attempt = context.flow.attempt();
  outcome.node = fleet_.id(attempt.candidate.node);
  outcome.branch = route::branch_name(attempt.candidate.branch);
  outcome.attempts = static_cast<size_t>(context.flow.attempts());
  outcome.expected = attempt.sent.expect_cached;
  outcome.counts = result.counts;
  outcome.status = result.end == ForwardResult::End::kBroken ? kBrokenStatus : result.status;
}

// The model of a body that names none.
ApiResult<std::string> Proxy::only_model(const RequestContext& context) const {
  std::vector<std::string> models = router_.view().models();
  std::erase_if(models, [&context](const std::string& model) { return !may_use(context, model); });
  if (models.empty()) return no_candidate("");
  if (models.size() > 1) {
    return ApiError::bad_field("model", absl::StrCat("'model' is required: ", models.size(),
                                                     " models are served here, see GET /v1/models"));
  }
  return models.front();
}

ApiError Proxy::no_candidate(const std::string& model) const {
  if (!fleet_.probed())
    return ApiError::unavailable("the gateway has just started and is still looking for its workers");
  if (router_.view().knows_model(model)) {
    return ApiError::unavailable(absl::StrCat("no worker that serves '", model, "' is ready"));
  }
  if (router_.view().routable_count() == 0) return ApiError::unavailable("no worker is ready");
  return ApiError::not_found_model(model);
}

// The driver of a RequestFlow over sockets: each action is performed, and what came of it is the next event.
Task<void> Proxy::forward(Exchange& exchange, RequestContext& context) {
  const GoneCharge gone(*this, exchange, context);
  const BookingGuard booking(*this, context);
  context.phases.enter(Phase::kSend, clock_.now());
  route::Action action = context.flow.admitted(flow_context(), context.waited, clock_.now());
  if (action == route::Action::kRefuse) {
    const ApiError error = no_candidate(context.routed.model);
    co_await refuse(exchange, context, error);
    co_return;
  }
  // What a client that goes away is charged at least.
  if (context.visit != nullptr) context.visit->cost(prompt_cost(exchange.request()));
  ForwardResult full;  // the last 429
  while (true) {
    ForwardResult result = co_await attempt(exchange, context);
    if (exchange.cancel_reason() != CancelReason::kNone) co_return;  // whatever failed, nobody waits for it
    charge(exchange, context, result);
    if (context.entry != nullptr) record_answer(context, result);
    if (result.end != ForwardResult::End::kFailed) {
      learn_answer(context, result);
      co_return;
    }
    action = learn_failure(exchange, context, result);
    if (action != route::Action::kSend) {
      if (action == route::Action::kPassOnFull) result = std::move(full);
      if (action == route::Action::kEndBroken) {
        co_await end_broken(exchange, context, result);
      } else {
        co_await give_up(exchange, context, result);
      }
      co_return;
    }
    context.phases.enter(Phase::kSend, clock_.now());
    if (result.held && result.status == 429) full = std::move(result);
  }
}

// Sends the flow's attempt and passes the answer on.
Task<ForwardResult> Proxy::attempt(Exchange& exchange, RequestContext& context) {
  const Candidate& candidate = context.flow.attempt().candidate;
  instruments_.decided(candidate.branch);
  if (context.request_record != nullptr) record_attempt(exchange, context);
  // One pointer for each function: more would be memory each time.
  auto judge = [this, &exchange, &context] { return gives_up(exchange, context); };
  auto begin = [this, &context] { began(context); };
  ForwardInput input = forward_input(exchange, context);
  input.request.give_up = std::ref(judge);
  input.on_first_byte = std::ref(begin);
  ForwardResult result = co_await forward_once(exchange, fleet_.client(candidate.node), input);
  context.phases.enter(Phase::kSettle, clock_.now());
  if (context.request_record != nullptr) record_attempt_end(context, result);
  co_return result;
}

// The client has an answer, whole or broken off.
void Proxy::learn_answer(RequestContext& context, const ForwardResult& result) {
  const TimePoint now = clock_.now();
  const bool broken = result.end == ForwardResult::End::kBroken;
  if (broken) {
    context.flow.broken(flow_context(), result.failure, !result.client_stalled, now);
    log_failure(context, result);
    instruments_.broken_streams.Increment();
  } else {
    context.flow.answered(flow_context(), result.counts, result.status, now);
    if (context.request_record != nullptr) context.request_record->counts = result.counts;
    if (result.counts && result.counts->has_cached)
      instruments_.cached_tokens(context.flow.attempt().sent.expect_cached, result.counts->cached_tokens);
  }
  count_answer(context, result.status, broken ? RequestOutcome::kBroken : RequestOutcome::kAnswered);
}

route::Action Proxy::learn_failure(const Exchange& exchange, RequestContext& context,
                                   const ForwardResult& result) {
  log_failure(context, result);
  const TimePoint now = clock_.now();
  const uint64_t refused = retry_budget_.refused();
  const route::Action action = context.flow.failed(flow_context(), result.failure, !result.client_stalled,
                                                   progress(exchange, context), now);
  if (retry_budget_.refused() != refused) instruments_.retries_refused.Increment();
  if (action != route::Action::kSend) return action;
  instruments_.retried(result.failure.kind);
  // A worker that failed before it went on has added to the pause.
  if (exchange.head_sent() && result.sent_at != TimePoint{}) context.paused_at = result.sent_at;
  return action;
}

HeaderList Proxy::worker_headers(const HttpRequest& request, const RequestContext& context) const {
  HeaderList headers = headers_for_worker(request);
  // A key of ours is nothing for workers.
  if (keys_ != nullptr)
    std::erase_if(headers, [](const auto& header) { return header.first == "authorization"; });
  headers.emplace_back("x-request-id", context.request_id);
  if (context.request_record != nullptr && context.request_record->traced)
    record_headers(*context.request_record, headers);
  const route::PrefixKey& key = context.routed.key;
  const Candidate* const chosen = context.flow.chosen();
  const bool planned = chosen != nullptr && router_.at_home(key, context.routed.model, chosen->node);
  append_hints(key, planned, headers);
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(context.deadline.remaining(clock_.now())).count();
  headers.emplace_back("x-troupe-timeout-ms", std::to_string(left));
  return headers;
}

ForwardInput Proxy::forward_input(const Exchange& exchange, RequestContext& context) {
  const HttpRequest& request = exchange.request();
  ForwardInput input;
  input.request.method = "POST";
  input.request.target = request.target;
  input.request.body = body_for_worker(request, context);
  input.request.headers = worker_headers(request, context);
  input.deadline = context.deadline;
  input.client_stall = options_.client_stall;
  input.answer_headers = own_headers(context);
  input.phases = &context.phases;
  context.passed = {};
  input.passed = &context.passed;
  ask_ids(exchange, context, input);
  input.request.patience = route::patience(options_, context.ours);
  return input;
}

}  // namespace troupe
