#include "gateway/proxy/proxy.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/api/passed_paths.h"
#include "common/api/prefix.h"
#include "common/json/json.h"
#include "common/net/cors.h"
#include "gateway/proxy/keepalive_exchange.h"
#include "gateway/proxy/moderated_exchange.h"
#include "gateway/proxy/passed_request.h"
#include "gateway/proxy/persona_http.h"
#include "gateway/proxy/request_scopes.h"
#include "gateway/proxy/routes.h"

namespace troupe {

namespace {

ForwardParser parser_of(std::string_view path) {
  return is_passed_path(path) ? parse_passed : forward_parser(path);
}

bool reads(const HttpRequest& request) {
  return request.method == "GET" || request.method == "HEAD";
}

// A stream of a form that is known: comments may go before its events, and an error in their place.
bool may_have_comments(const RequestContext& context, std::string_view path) {
  const bool known = context.routed.generates || form_of_passed(path) != AnswerForm::kOther;
  return known && context.routed.stream;
}

// Names that lead to a model which is served, as that one.
void add_routes(const ModelRoutes& routes, std::vector<ModelCard>& models) {
  for (const ModelRoute& route : routes.all()) {
    const auto named = [](const std::string& name) {
      return [&name](const ModelCard& model) { return model.id == name; };
    };
    if (std::any_of(models.begin(), models.end(), named(route.name))) continue;
    for (const ModelArm& arm : route.arms) {
      const auto served = std::find_if(models.begin(), models.end(), named(arm.model));
      if (served == models.end()) continue;
      ModelCard card = *served;
      card.id = route.name;
      models.push_back(std::move(card));
      break;
    }
  }
}

// The error of a page from elsewhere that would change something.
std::optional<ApiError> page_refusal_of(const ProxyCore& core, const HttpRequest& request) {
  const CorsOrigins& origins = core.options.cors_origins;
  if (changes_state(request)) return change_refusal(request, &origins);
  const bool of_users = request.path.starts_with(kPrefixesPath) || request.path.starts_with(kPersonasPath);
  return of_users ? rebound_refusal(request, origins) : std::nullopt;
}

Task<void> refuse_page(ProxyCore& core, Replies& replies, Exchange& exchange, ApiError error) {
  RequestContext context;
  const RequestScope scope(core, replies, exchange, context);
  co_await replies.refuse(exchange, context, error);
}

}  // namespace

Proxy::Proxy(const ProxyOptions& options, const Parts& parts, uint64_t seed)
    : core_{options, parts.fleet, parts.router, parts.instruments, parts.observers, parts.clock, parts.log},
      queue_(parts.admission_queue),
      gate_(core_),
      replies_(core_, seed),
      intake_(core_, replies_),
      admission_(core_, queue_),
      driver_(core_, gate_, replies_),
      prefixes_(core_, {gate_, intake_, admission_, driver_, replies_}),
      personas_(core_, {gate_, intake_, replies_, prefixes_}),
      explainer_(core_, gate_, intake_, admission_) {
  core_.accounts = &parts.accounts;
}

void Proxy::record_to(TrafficRecorder& recorder) {
  core_.recorder = &recorder;
  core_.options.mark_salt = recorder.salt();
}

void Proxy::keep_texts(PrefixTextCache& texts) {
  core_.texts = &texts;
  core_.options.keep_parsed = true;
}

void Proxy::start_drain(Duration grace) {
  leaving_ = core_.draining = true;
  queue_.drain(grace / 2);
}

bool Proxy::wants_body(const HttpRequest& head) const {
  return !page_refusal_of(core_, head) && gate_.wants_body(head);
}

Task<void> Proxy::handle(Exchange& exchange) {
  const HttpRequest& request = exchange.request();
  if (auto refused = page_refusal_of(core_, request))
    return refuse_page(core_, replies_, exchange, *std::move(refused));
  const DialectRoute* dialect = find_dialect(request.method, request.path);
  return dialect != nullptr ? handle_translated(exchange, *dialect) : handle_own(exchange);
}

Task<void> Proxy::handle_own(Exchange& exchange) {
  const HttpRequest& request = exchange.request();
  const bool post = request.method == "POST";
  if (const ForwardParser parse = parser_of(request.path); parse != nullptr && post)
    return route_and_forward(exchange, parse);
  if (post && request.path == kPrefixesPath) return prefixes_.make(exchange);
  if (reads(request) && request.path == kPrefixesPath) return prefixes_.list(exchange);
  const bool has_personas = core_.personas.registry != nullptr && request.path.starts_with(kPersonasPath);
  if (has_personas && lists_method(main_port_methods(request.path), request.method))
    return personas_.handle(exchange);
  const bool known = reads(request) || request.method == "DELETE";
  return known && !prefix_id_of(request.path).empty() ? prefixes_.known(exchange) : answer_own(exchange);
}

Task<void> Proxy::handle_translated(Exchange& exchange, const DialectRoute& route) {
  const bool may_pass = is_passed_path(route.path);
  if (may_pass && !core_.fleet.probed()) {
    RequestContext context;
    context.started = core_.clock.now();
    co_await intake_.await_initial_probing(exchange, context);
  }
  DialectExchange translated(exchange, route, generations_);
  if (may_pass && intake_.only_others_answer(std::string(translated.model()))) {
    co_await route_and_forward(exchange, parse_passed);
  } else if (translated.fault()) {
    co_await refuse_untranslated(translated, *translated.fault());
  } else {
    co_await answer_translated(translated);
  }
}

// A generation that its client ends by another request unwinds as one whose client is gone; this one is still
// there.
Task<void> Proxy::answer_translated(DialectExchange& exchange) {
  try {
    co_await handle_own(exchange);
  } catch (const boost::system::system_error&) {
    if (!exchange.aborted()) throw;
  }
  if (exchange.aborted()) co_await exchange.end_aborted();
}

Task<void> Proxy::refuse_untranslated(Exchange& exchange, ApiError fault) {
  RequestContext context;
  const RequestScope scope(core_, replies_, exchange, context);
  ApiResult<bool> go = intake_.enter(exchange.request(), context);
  if (go.ok()) go = gate_.let_in(exchange.request(), context);
  const ApiError error = go.ok() ? std::move(fault) : go.error();
  co_await replies_.refuse(exchange, context, error);
}

// Answers of the gateway itself: lists, its health, and paths it does not know.
Task<void> Proxy::answer_own(Exchange& exchange) {
  const HttpRequest& request = exchange.request();
  const bool get = reads(request);
  RequestContext context;
  const RequestScope scope(core_, replies_, exchange, context);
  const std::string id = model_of_path(request.path);
  if (get && (lists_models(request.path) || !id.empty())) {
    if (const auto known = gate_.identify(request, context); !known.ok()) {
      co_await replies_.refuse(exchange, context, known.error());
      co_return;
    }
    auto models = core_.fleet.models();
    if (models.empty() && !core_.fleet.probed()) {
      co_await intake_.await_initial_probing(exchange, context);
      models = core_.fleet.models();
    }
    add_routes(core_.options.routes, models);
    std::erase_if(models,
                  [&context](const ModelCard& model) { return !AccessGate::may_use(context, model.id); });
    if (!id.empty()) std::erase_if(models, [&id](const ModelCard& model) { return model.id != id; });
    if (!id.empty() && models.empty()) {
      co_await replies_.refuse(exchange, context, ApiError::not_found_model(id));
      co_return;
    }
    std::string body = id.empty() ? models_json(models) : model_json(models.front());
    co_await replies_.answer(exchange, context, 200, std::move(body));
  } else if (get && request.path == "/health") {
    auto [status, body] = health();
    co_await replies_.answer(exchange, context, status, std::move(body));
  } else {
    const std::string_view allow = main_port_methods(request.path);
    const bool elsewhere = request.path.starts_with("/admin") || request.path == "/metrics";
    ApiError error =
        ApiError::bad_field("", absl::StrCat("there is no ", request.method, " ", request.path, " here",
                                             elsewhere ? "; it is on the metrics port" : ""));
    error.http_status = allow.empty() ? 404 : 405;
    error.code = allow.empty() ? "not_found" : "method_not_allowed";
    co_await replies_.refuse(exchange, context, error, allow);
  }
}

Task<void> Proxy::route_and_forward(Exchange& exchange, ForwardParser parse) {
  RequestContext context;
  context.timed = exchange.request().path.ends_with("/completions");
  context.account.asks_model = true;
  const RequestScope scope(core_, replies_, exchange, context);
  ApiResult<bool> go = intake_.enter(exchange.request(), context);
  if (go.ok()) go = gate_.let_in(exchange.request(), context);
  if (go.ok()) go = intake_.prepare(exchange.request(), parse, context);
  if (intake_.awaits_initial_probing(go, context))
    go = co_await intake_.prepare_after_look(exchange, parse, context);
  std::optional<KeepaliveExchange> kept;
  const bool has_comments = may_have_comments(context, exchange.request().path);
  if (go.ok() && core_.options.sse_keepalive > Duration::zero() && has_comments) {
    kept.emplace(exchange);
    kept->keep_alive(core_.options.sse_keepalive,
                     [this, &context] { return replies_.stream_headers(context); });
  }
  Exchange& answer = kept ? static_cast<Exchange&>(*kept) : exchange;
  ModerationHook* const hook = core_.moderation;
  const bool judges_answer =
      hook != nullptr && context.routed.generates && hook->options().answer != AnswerModeration::kOff;
  if (go.ok() && admission_.has_account(exchange.request(), context))
    go = co_await admission_.take_holds(exchange.request(), context);
  if (go.ok() && hook != nullptr && hook->options().before && context.routed.takes_room())
    go = co_await moderate_prompt(*hook, exchange.request(), context);
  if (go.ok()) go = admission_.arrive(context);
  if (go.ok() && context.admission_ticket != nullptr && context.admission_ticket->waits())
    go = co_await admission_.wait(context);
  if (!go.ok()) {
    co_await replies_.refuse(answer, context, go.error());
    co_return;
  }
  if (judges_answer) {
    ModeratedExchange moderated(answer, *hook, context);
    co_await driver_.run(moderated, context);
  } else {
    co_await driver_.run(answer, context);
  }
}

std::pair<int, std::string> Proxy::health() const {
  bj::object body;
  body["status"] = healthy() ? "ok" : "unavailable";
  if (leaving_) {
    body["reason"] = "shutting down";
  } else if (!core_.fleet.probed()) {
    body["reason"] = "the workers have not been probed yet";
  } else if (!healthy()) {
    body["reason"] = "no worker is ready";
  }
  body["workers_ready"] = core_.router.view().routable_count();
  body["workers"] = core_.fleet.member_count();
  return {healthy() ? 200 : 503, to_json(body)};
}

}  // namespace troupe
