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
using route::HealthEvent;

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
  if (context.visit != nullptr)
    context.visit->cost(prompt_cost(exchange.request()));  // at least, if he goes away
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
  context.decision = router_.decide(context.routed.key, context.routed.model, parsed);
  if (context.request_record != nullptr) context.request_record->chosen = clock_.now();
  record_arrival(context);
  if (context.decision.order.empty()) return no_candidate(context.routed.model);
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

void Proxy::record_answer(const RequestContext& context, const Booking& booking,
                          const ForwardResult& result) const {
  TrafficOutcome& outcome = context.entry->outcome;
  outcome.node = fleet_.id(context.chosen->node);
  outcome.branch = route::branch_name(context.chosen->branch);
  outcome.attempts = context.attempt;
  outcome.expected = booking.expect_cached();
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

// Down the order of candidates until one answers.
Task<void> Proxy::forward(Exchange& exchange, RequestContext& context) {
  retry_budget_.earn(context.started);
  const GoneCharge gone(*this, exchange, context);
  ForwardResult full;  // the last 429: "come back later" is truer of a full fleet than "nobody is there"
  std::optional<Candidate> full_node;  // a copy: the order it stands in may not be the last one
  while (true) {
    context.phases.enter(Phase::kSend, clock_.now());
    context.chosen = &context.decision.order[context.place];
    context.attempt += 1;
    context.tried.push_back(context.chosen->node);
    Booking booking(*this, context.routed, *context.chosen);
    instruments_.decided(context.chosen->branch);
    if (context.request_record != nullptr) record_attempt(exchange, context);
    std::optional<route::NextAttempt> next;  // decided where the worker is given up
    // One pointer for each function: more would be memory each time.
    auto judge = [this, &exchange, &context, &next] { return gives_up(exchange, context, next); };
    auto begin = [this, &context, &booking] { began(context, booking); };
    ForwardInput input = forward_input(exchange, context);
    input.request.give_up = std::ref(judge);
    input.on_first_byte = std::ref(begin);
    ForwardResult result = co_await forward_once(exchange, fleet_.client(context.chosen->node), input);
    context.phases.enter(Phase::kSettle, clock_.now());
    if (context.request_record != nullptr) record_attempt_end(context, result);
    if (exchange.cancel_reason() != CancelReason::kNone) co_return;  // whatever failed, nobody waits for it
    learn(context, booking, result);
    charge(exchange, context, result);
    if (context.entry != nullptr) record_answer(context, booking, result);
    if (result.end != ForwardResult::End::kFailed) {
      const bool broken = result.end == ForwardResult::End::kBroken;
      count_answer(context, result.status, broken ? RequestOutcome::kBroken : RequestOutcome::kAnswered);
      if (broken) instruments_.broken_streams.Increment();
      co_return;
    }
    if (!next) next = next_attempt(exchange, context, result.failure);
    if (!next && exchange.head_sent()) {
      co_await end_broken(exchange, context, result);
      co_return;
    }
    if (!next) {
      if (result.failure.kind == FailureKind::kConnect && full_node) {
        context.chosen = &*full_node;
        result = std::move(full);
      }
      co_await give_up(exchange, context, result);
      co_return;
    }
    const bool was_full = result.held && result.status == 429;
    if (was_full) full_node = *context.chosen;
    go_on(exchange, context, *std::move(next), result);
    if (was_full) full = std::move(result);
  }
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
  const bool planned =
      context.chosen != nullptr && router_.at_home(key, context.routed.model, context.chosen->node);
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
  context.silent_after = 0;
  input.passed = &context.passed;
  ask_ids(exchange, context, input);
  input.request.patience = patience_with(context);
  return input;
}

// What this try teaches about the node: its health where it failed, its cache where it answered.
void Proxy::learn(const RequestContext& context, Booking& booking, const ForwardResult& result) {
  const route::NodeIndex node = context.chosen->node;
  if (result.end == ForwardResult::End::kAnswered) {
    const auto& counts = result.counts;
    booking.finish(counts);
    if (context.request_record != nullptr) context.request_record->counts = counts;
    fleet_.on_event(node, result.status < 400 ? HealthEvent::kAnswered : HealthEvent::kRefused);
    if (counts && counts->has_cached)
      instruments_.cached_tokens(booking.expect_cached(), counts->cached_tokens);
    return;
  }
  booking.finish(std::nullopt);
  learn_failure(node, result);
  log_.debug("try_failed", {{"request", context.request_id},
                            {"worker", fleet_.id(node)},
                            {"attempt", context.attempt},
                            {"failure", failure_name(result.failure.kind)},
                            {"status", result.status},
                            {"error", to_std(result.error.message())}});
}

void Proxy::learn_failure(route::NodeIndex node, const ForwardResult& result) {
  // Where the client held the worker back for long, the worker may have had enough of us: no fault of its
  // own.
  const FailureKind kind = result.failure.kind;
  const bool broke = kind == FailureKind::kTransport || kind == FailureKind::kBody;
  if (broke && !result.client_stalled) fleet_.on_event(node, HealthEvent::kTransportError);
  if (kind == FailureKind::kConnect) fleet_.on_event(node, HealthEvent::kConnectError);
  if (kind == FailureKind::kStatus && route::node_ill(result.failure))
    fleet_.on_event(node, HealthEvent::kErrored);
}

}  // namespace troupe
