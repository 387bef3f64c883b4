#include "worker/http/server.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <map>
#include <utility>

#include "common/api/cache_report.h"
#include "common/net/request_headers.h"
#include "worker/http/conversations.h"
#include "worker/http/http_call.h"
#include "worker/http/page_guard.h"
#include "worker/http/prefixes.h"
#include "worker/http/residency_stream.h"
#include "worker/http/text_metrics.h"
#include "worker/http/tokenize.h"
#include "worker/http/translated_call.h"
#include "worker/sim_device/fault_exchange.h"

namespace troupe {
namespace {

constexpr std::string_view kPrefixRoute = "/v1/prefixes/{id}";
constexpr std::string_view kModelRoute = "/v1/models/{id}";
constexpr std::string_view kConversationRoute = "/v1/conversations/{session}";

ApiError keeps_conversations() {
  ApiError error = ApiError::unsupported(
      "",
      "this worker tells nobody of its conversations (hand_on_conversations: false in its configuration)");
  error.http_status = 403;
  return error;
}

PrefixRegistry::Options book_options(const LoadReport& report, double max_pinned_share) {
  PrefixRegistry::Options options;
  options.block_size = static_cast<int32_t>(report.block_size);
  const double tokens = static_cast<double>(report.kv_blocks_total * report.block_size);
  options.pinned_tokens_max = static_cast<int64_t>(max_pinned_share * tokens);
  return options;
}

HttpServerOptions counted(HttpServerOptions options, Metrics& metrics) {
  options.handshakes_failed =
      &metrics.counter("troupe_worker_tls_handshakes_failed_total",
                       "Connections of clients that came to no TLS, or to none in time.");
  return options;
}

Task<void> answer_conversations(HttpCall& call, Engine& engine, const std::string& model) {
  const auto tails = co_await list_conversations(engine, model);
  if (tails.ok()) {
    co_await call.answer_json(200, conversation_list_json(tails.value()));
  } else {
    co_await call.fail(tails.error());
  }
}

Task<void> answer_conversation(HttpCall& call, Engine& engine, const std::string& model) {
  const std::string session(conversation_session_of(call.request().path));
  const auto tail = co_await find_tail(engine, model, session);
  if (tail.ok()) {
    co_await call.answer_json(200, conversation_json(tail.value()));
  } else {
    co_await call.fail(tail.error());
  }
}

}  // namespace

struct WorkerServer::Impl {
  Impl(const Parts& parts, const Options& options);

  // Handles one request, from its complete head and body to the end of its answer.
  Task<void> handle(Exchange& exchange);
  // In our own form; `endpoint`: the path that it counts at.
  Task<void> answer(Exchange& exchange, std::string_view endpoint, std::optional<ApiError> fault);
  Task<void> dispatch(HttpCall& call);

  Task<void> chat(HttpCall& call) { return generate(call, GenerateRequest::Kind::kChat); }
  Task<void> completions(HttpCall& call) { return generate(call, GenerateRequest::Kind::kCompletion); }
  Task<void> generate(HttpCall& call, GenerateRequest::Kind kind);
  Task<void> generate_with_faults(HttpCall& call, GenerateRequest::Kind kind);
  Task<void> sim_faults(HttpCall& call);
  Task<void> embeddings(HttpCall& call) { return generator.handle_embeddings(call); }
  Task<void> tokenize(HttpCall& call) { return generator.handle_text(call, answer_tokenize); }
  Task<void> detokenize(HttpCall& call) { return generator.handle_text(call, answer_detokenize); }
  Task<void> models(HttpCall& call);
  Task<void> livez(HttpCall& call) { return call.answer_json(200, R"({"status":"alive"})"); }
  Task<void> readyz(HttpCall& call);
  Task<void> load(HttpCall& call);
  Task<void> all_prefixes(HttpCall& call);
  Task<void> one_prefix(HttpCall& call);
  Task<void> all_conversations(HttpCall& call);
  Task<void> one_conversation(HttpCall& call);
  Task<void> residency_events(HttpCall& call) { return residency.serve(call); }
  Task<void> metrics_text(HttpCall& call);

  bool ready() const {
    return started && !draining && !generator.refusing() && !is_stuck(TextJobs::Kind::kShort) &&
           (faults == nullptr || !faults->refuses());
  }
  bool is_stuck(TextJobs::Kind kind) const { return generator.text_jobs().is_stuck(kind); }
  Task<void> give_notice(Deadline until);
  void count(const HttpCall& call, TimePoint begin);

  struct Route {
    std::string_view methods, path;
    Task<void> (Impl::*handler)(HttpCall&);
    PageRule page = PageRule::kGuarded;
  };
  static const std::array<Route, 19> kRoutes;
  static const Route* find_route(std::string_view path);

  const ServedModel& model;
  Engine& engine;
  Metrics& metrics;
  const Logger& log;
  SimFaults* const faults;  // null: a worker with a model
  const Duration notice;
  const bool hands_on_conversations;
  Generator generator;
  Prefixes prefixes;
  ResidencyStream residency;
  std::map<std::pair<std::string_view, int>, Counter*> request_counters;
  TextMetrics text_metrics;
  Generations generations;
  OwnIds ids;
  int64_t started_s = 0;
  bool started = false;
  bool draining = false;
  Deadline notice_ends;
  HttpServerOptions http_options;
  HttpServer http;  // last: its handlers use all of the above
};

constexpr std::array<WorkerServer::Impl::Route, 19> WorkerServer::Impl::kRoutes{{
    {"POST", "/v1/chat/completions", &Impl::chat, PageRule::kOnlyAsks},
    {"POST", "/v1/completions", &Impl::completions, PageRule::kOnlyAsks},
    {"POST", "/v1/embeddings", &Impl::embeddings, PageRule::kOnlyAsks},
    {"POST", "/tokenize", &Impl::tokenize, PageRule::kOnlyAsks},
    {"POST", "/detokenize", &Impl::detokenize, PageRule::kOnlyAsks},
    {"GET, HEAD", "/v1/models", &Impl::models},
    {"GET, HEAD", "/v1/models/", &Impl::models},
    {"GET, HEAD", kModelRoute, &Impl::models},
    {"GET, HEAD, POST", kPrefixesPath, &Impl::all_prefixes, PageRule::kOfUsers},
    {"GET, HEAD, DELETE", kPrefixRoute, &Impl::one_prefix, PageRule::kOfUsers},
    {"GET, HEAD, POST", kConversationsPath, &Impl::all_conversations, PageRule::kOfUsers},
    {"GET, HEAD", kConversationRoute, &Impl::one_conversation, PageRule::kOfUsers},
    {"GET, HEAD", "/v1/load", &Impl::load},
    {"GET, HEAD", "/v1/residency", &Impl::residency_events, PageRule::kOfUsers},
    {"GET, HEAD", "/livez", &Impl::livez},
    {"GET, HEAD", "/readyz", &Impl::readyz},
    {"GET, HEAD", "/health", &Impl::readyz},
    {"GET, HEAD", "/metrics", &Impl::metrics_text},
    {"POST", "/sim/faults", &Impl::sim_faults},
}};

const WorkerServer::Impl::Route* WorkerServer::Impl::find_route(std::string_view path) {
  if (!prefix_id_of(path).empty()) path = kPrefixRoute;
  if (!conversation_session_of(path).empty()) path = kConversationRoute;
  if (!model_of_path(path).empty()) path = kModelRoute;
  for (const auto& route : kRoutes) {
    if (route.path == path) return &route;
  }
  return nullptr;
}

WorkerServer::Impl::Impl(const Parts& parts, const Options& options)
    : model(parts.model),
      engine(parts.engine),
      metrics(parts.metrics),
      log(parts.log),
      faults(parts.faults),
      notice(options.notice),
      hands_on_conversations(options.hand_on_conversations),
      generator(parts.io.get_executor(), options.generator, parts.model, parts.engine),
      prefixes(parts.io.get_executor(), book_options(parts.engine.load(), options.max_pinned_share),
               parts.model.name, parts.engine),
      residency(parts.io.get_executor(), parts.engine.residency_publisher(), parts.metrics, {}),
      started_s(std::time(nullptr)),
      http_options(counted(options.http, parts.metrics)),
      http(
          parts.io, http_options, [this](Exchange& exchange) { return handle(exchange); }, parts.log) {}

Task<void> WorkerServer::Impl::handle(Exchange& exchange) {
  const HttpRequest& request = exchange.request();
  if (const DialectRoute* dialect = find_dialect(request.method, request.path)) {
    TranslatedCall call{generations, http_options.cors_origins, {}};
    call.answer = [this](Exchange& as, std::string_view endpoint, std::optional<ApiError> fault) {
      return answer(as, endpoint, std::move(fault));
    };
    return answer_translated(exchange, *dialect, std::move(call));
  }
  const auto* route = find_route(request.path);
  return answer(exchange, route != nullptr ? route->path : "other", std::nullopt);
}

Task<void> WorkerServer::Impl::answer(Exchange& exchange, std::string_view endpoint,
                                      std::optional<ApiError> fault) {
  const auto begin = std::chrono::steady_clock::now();
  const std::string own_id = ids.next();
  const std::string_view their_id = request_id_of(exchange.request());
  HttpCall call(exchange, endpoint, their_id.empty() ? own_id : std::string(their_id));
  if (generator.refusing()) exchange.close_after();
  const AtEnd told([this, &call, begin] { count(call, begin); });
  if (fault) {
    co_await call.fail(*std::move(fault));
  } else {
    co_await dispatch(call);
  }
}

Task<void> WorkerServer::Impl::dispatch(HttpCall& call) {
  const auto& request = call.request();
  const auto* route = find_route(request.path);
  if (const std::string_view allowed = dialect_methods(request.path); !allowed.empty()) {
    co_await call.fail_method(allowed);
  } else if (route == nullptr) {
    co_await call.fail_path();
  } else if (!lists_method(route->methods, request.method)) {
    co_await call.fail_method(route->methods);
  } else if (auto refused = page_refusal_of(request, route->page, http_options.cors_origins)) {
    co_await call.fail(*std::move(refused));
  } else {
    co_await (this->*route->handler)(call);
  }
}

Task<void> WorkerServer::Impl::generate(HttpCall& call, GenerateRequest::Kind kind) {
  if (faults == nullptr) return generator.handle(call, kind);
  return generate_with_faults(call, kind);
}

Task<void> WorkerServer::Impl::all_prefixes(HttpCall& call) {
  return call.request().method == "POST" ? generator.handle_prefix(call, prefixes) : prefixes.list(call);
}

Task<void> WorkerServer::Impl::one_prefix(HttpCall& call) {
  return prefixes.one(call);
}

Task<void> WorkerServer::Impl::all_conversations(HttpCall& call) {
  if (call.request().method == "POST") return generator.handle_conversation(call);
  return hands_on_conversations ? answer_conversations(call, engine, model.name)
                                : call.fail(keeps_conversations());
}

Task<void> WorkerServer::Impl::one_conversation(HttpCall& call) {
  return hands_on_conversations ? answer_conversation(call, engine, model.name)
                                : call.fail(keeps_conversations());
}

Task<void> WorkerServer::Impl::generate_with_faults(HttpCall& call, GenerateRequest::Kind kind) {
  const SimFaults::Fate fate = faults->next_fate();
  if (fate.error_status != 0) {
    ApiError error = ApiError::unavailable("a fault on request (POST /sim/faults)");
    error.http_status = fate.error_status;
    co_await call.fail(error);
  } else if (fate.dropped_at_write != 0) {
    FaultExchange exchange(call.exchange(), fate.dropped_at_write);
    HttpCall cut_call(exchange, call.endpoint(), call.request_id());
    co_await generator.handle(cut_call, kind);
  } else {
    co_await generator.handle(call, kind);
  }
}

Task<void> WorkerServer::Impl::sim_faults(HttpCall& call) {
  if (faults == nullptr) return call.fail_path();
  const auto wanted = parse_sim_faults(call.request().body);
  if (!wanted.ok()) return call.fail(wanted.error());
  faults->set(wanted.value(), std::chrono::steady_clock::now());
  log.info("sim_faults", {{"faults", wanted.value().to_json()}});
  return call.answer_json(200, wanted.value().to_json());
}

void WorkerServer::Impl::count(const HttpCall& call, TimePoint begin) {
  auto& counter = request_counters[{call.endpoint(), call.code()}];
  if (counter == nullptr) {
    Labels labels{{"path", std::string(call.endpoint())}, {"code", std::to_string(call.code())}};
    counter = &metrics.counter("troupe_http_requests_total", "Requests, by path and status code", labels);
  }
  counter->Increment();
  const auto level = call.code() >= 500 ? LogLevel::kWarn : LogLevel::kDebug;
  if (!log.enabled(level)) return;
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  log.write(
      level, "request",
      {{"id", call.request_id()}, {"path", call.endpoint()}, {"code", call.code()}, {"ms", took.count()}});
}

Task<void> WorkerServer::Impl::models(HttpCall& call) {
  ModelCard card;
  card.id = model.name;
  card.created_s = started_s;
  card.max_model_len = model.total_count_max;
  const std::string id = model_of_path(call.request().path);
  if (id.empty()) return call.answer_json(200, models_json({card}));
  return id == card.id ? call.answer_json(200, model_json(card)) : call.fail(ApiError::not_found_model(id));
}

Task<void> WorkerServer::Impl::readyz(HttpCall& call) {
  // Long texts alone are sent away until their thread comes back.
  if (ready() && is_stuck(TextJobs::Kind::kLong))
    return call.answer_json(200, R"({"status":"ready","long_texts":"stuck"})");
  if (ready()) return call.answer_json(200, R"({"status":"ready"})");
  if (draining && !generator.refusing()) {
    const Duration left = notice_ends.remaining(std::chrono::steady_clock::now());
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
    return call.answer_json(503, R"({"status":"leaving","takes_requests_for_ms":)" +
                                     std::to_string(std::max(ms, int64_t{0})) + "}");
  }
  const char* why =
      is_stuck(TextJobs::Kind::kShort) ? "a text thread is stuck" : "the worker is shutting down";
  return call.fail(ApiError::unavailable(why));
}

Task<void> WorkerServer::Impl::load(HttpCall& call) {
  LoadReport report = engine.load();
  report.ready = report.ready && ready();
  const CacheReport cache{engine.cached_blocks()};
  return call.answer_json(200, load_report_json(report, cache));
}

Task<void> WorkerServer::Impl::metrics_text(HttpCall& call) {
  text_metrics.publish(metrics, model.token_cache, generator.text_jobs());
  return call.answer_text("text/plain; version=0.0.4; charset=utf-8", metrics.text());
}

WorkerServer::WorkerServer(const Parts& parts, const Options& options)
    : impl_(std::make_unique<Impl>(parts, options)) {}

WorkerServer::~WorkerServer() = default;

std::vector<HttpRoute> WorkerServer::routes() {
  std::vector<HttpRoute> routes;
  for (const Impl::Route& route : Impl::kRoutes) routes.push_back({route.methods, route.path});
  for (const DialectRoute& route : dialect_routes()) routes.push_back({route.methods, route.path});
  return routes;
}

Status WorkerServer::listen() {
  return impl_->http.listen();
}

uint16_t WorkerServer::port() const {
  return impl_->http.port();
}

void WorkerServer::use(std::shared_ptr<const TlsContext> tls) {
  impl_->http_options.tls = std::move(tls);
  impl_->http.change(impl_->http_options);
}

void WorkerServer::start() {
  impl_->started = true;
  impl_->residency.start();
  impl_->http.start();
}

Task<void> WorkerServer::Impl::give_notice(Deadline until) {
  draining = true;
  notice_ends = until;
  co_await generator.wait_quiet(until);
  generator.refuse_new();
}

Task<bool> WorkerServer::drain(Duration grace) {
  const TimePoint begin = std::chrono::steady_clock::now();
  co_await impl_->give_notice(Deadline::after(begin, std::min(grace, impl_->notice)));
  const bool all_done = co_await impl_->generator.wait_idle(Deadline::after(begin, grace));
  // Faults end first: the engine's stop waits for the step under way.
  if (impl_->faults != nullptr) impl_->faults->clear(std::chrono::steady_clock::now());
  impl_->engine.stop();
  impl_->prefixes.close();
  impl_->residency.close();
  constexpr Duration kLastWrites = std::chrono::seconds(1);
  co_await impl_->http.drain(kLastWrites);
  co_return all_done;
}

void WorkerServer::skip_grace_period() {
  impl_->generator.skip_grace_period();
}

}  // namespace troupe
