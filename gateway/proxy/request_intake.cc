#include "gateway/proxy/request_intake.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "common/json/json.h"
#include "gateway/proxy/hops.h"
#include "gateway/proxy/json_patch.h"

namespace troupe {

namespace {

// Writes into the body what the client may not decide alone: a tenant's salt, and a priority no earlier than
// its key's. A prefix may be sent to workers again as it is kept, so it names the model that a route leads
// to.
void rewrite(const HttpRequest& request, RequestContext& context) {
  const RoutedRequest& routed = context.routed;
  std::vector<JsonPatch> members;
  if (!routed.salt.empty()) {
    JsonPatch salt{"cache_salt", {}};
    append_json_string(salt.json, routed.salt);
    members.push_back(std::move(salt));
  }
  const int32_t earliest = context.client == nullptr ? routed.priority : context.client->priority();
  // (A worker's default is not written out: some refuse the field.)
  if (routed.priority < std::min(earliest, 0)) members.push_back({"priority", absl::StrCat(earliest)});
  if (routed.persona != nullptr) {
    members.push_back({.name = "persona", .takes_away = true});
    members.push_back({"messages", std::move(context.routed.persona->messages_json)});
  }
  if (routed.prefills && !routed.asked_model.empty()) {
    JsonPatch model{"model", {}};
    append_json_string(model.json, routed.model);
    members.push_back(std::move(model));
  }
  if (!members.empty()) context.body = with_members(request.body, members);
}

}  // namespace

ApiResult<bool> RequestIntake::enter(const HttpRequest& request, RequestContext& context) {
  if (const auto hops = hops_of(request); !hops.ok()) return hops.error();
  if (core_.draining)
    return ApiError::unavailable("this gateway is shutting down; ask again, another will answer");
  const auto most = static_cast<int64_t>(core_.options.requests_max);
  if (!requests_.enter(most, context.started)) {
    return ApiError::overloaded(absl::StrCat("this gateway has ", most, " requests at once, its limit"),
                                route::retry_after_s(requests_.reject(context.started)));
  }
  context.permits.request.emplace(requests_, core_.clock);
  return true;
}

ApiResult<bool> RequestIntake::prepare(const HttpRequest& request, ForwardParser parse,
                                       RequestContext& context) {
  context.phases.enter(Phase::kParse, core_.clock.now());
  auto timeout = timeout_of(request, core_.options);
  if (!timeout.ok()) return timeout.error();
  context.deadline = Deadline::after(context.started, *timeout);
  auto resend = resend_of(request);
  if (!resend.ok()) return resend.error();
  context.resend = *resend;
  auto routed = parse_named(request, parse, parser_input(context), context);
  if (!routed.ok() && routed.error().http_status == 400) {
    auto others = parse_for_others(request, parse, context);
    if (others.ok()) routed = std::move(others);
    if (!others.ok() && others.error().http_status == 503) return others.error();  // not all are probed yet
  }
  if (!routed.ok()) return routed.error();
  context.routed = std::move(*routed);
  if (context.routed.persona != nullptr) context.record.persona = context.routed.persona->label;
  if (context.routed.passes && !context.routed.key.others_only && only_others_serve(context.routed.model))
    context.routed.salt.clear();  // (a cloud refuses fields that it does not know)
  rewrite(request, context);
  const std::string& asked = context.routed.asked_model;
  // (A key that may use a route's name may be led by it.)
  if (!AccessGate::may_use(context, context.routed.model) &&
      (asked.empty() || !AccessGate::may_use(context, asked)))
    return ApiError::not_found_model(asked.empty() ? context.routed.model : asked);
  const TimePoint parsed = core_.clock.now();
  context.phases.enter(Phase::kChoose, parsed);
  context.record.parsed = parsed;
  core_.router.refine(context.routed.key);
  keep_text(context.routed);
  context.flow.begin(context.routed.key, context.routed.model, context.routed.choices);
  const route::Action action = context.flow.choose(core_.flow_context(), parsed);
  context.record.chosen = core_.clock.now();
  record_arrival(context);
  if (action == route::Action::kRefuse) return refusal(request.path, context);
  return true;
}

// No worker can be asked. Of a path that only other servers answer ours may be ready, and no help.
ApiError RequestIntake::refusal(std::string_view path, const RequestContext& context) const {
  const std::string& model = context.routed.model;
  const std::string& shown = context.routed.asked_model.empty() ? model : context.routed.asked_model;
  const route::ClusterView& view = core_.router.view();
  if (!context.routed.key.others_only || view.nodes_for(model).empty())
    return replies_.no_candidate(model, context.routed.asked_model);
  const bool away = std::any_of(view.nodes().begin(), view.nodes().end(), [&model](const auto& node) {
    return !node.is_troupe_worker &&
           std::find(node.models.begin(), node.models.end(), model) != node.models.end();
  });
  if (away)
    return ApiError::unavailable(
        absl::StrCat("no worker that answers POST ", to_absl(path), " for '", shown, "' is ready"));
  ApiError error =
      ApiError::bad_field("", absl::StrCat("no worker that serves '", shown, "' answers POST ", to_absl(path),
                                           ": workers of Troupe do not, and no other serves it"));
  error.http_status = 404;
  error.code = "not_found";
  return error;
}

Task<void> RequestIntake::await_initial_probing(const Exchange& exchange, RequestContext& context) {
  while (!core_.fleet.probed() && core_.clock.now() < context.started + kInitialProbingMax)
    co_await pause_before_look(exchange, context);
}

Task<void> RequestIntake::pause_before_look(const Exchange& exchange, RequestContext& context) {
  context.phases.pause(core_.clock.now());
  Timer timer(exchange.executor());
  timer.expires_after(std::chrono::milliseconds(5));
  co_await timer.async_wait(use_task);
}

// No worker was found, and not all were probed yet. A request to a gateway that has just started (or was
// started again where one died) loses no more than the time that this takes.
bool RequestIntake::awaits_initial_probing(const ApiResult<bool>& prepared,
                                           const RequestContext& context) const {
  if (prepared.ok() || prepared.error().http_status != 503 || core_.fleet.probed()) return false;
  const TimePoint now = core_.clock.now();
  return now < context.started + kInitialProbingMax && context.deadline.remaining(now) > Duration::zero();
}

Task<ApiResult<bool>> RequestIntake::prepare_after_look(const Exchange& exchange, ForwardParser parse,
                                                        RequestContext& context) {
  ApiResult<bool> go = true;
  do {
    co_await pause_before_look(exchange, context);
    go = prepare(exchange.request(), parse, context);
  } while (awaits_initial_probing(go, context));
  co_return go;
}

// Keeps the text of a persona that was asked for before: prompts that share nothing are too many.
void RequestIntake::keep_text(RoutedRequest& routed) {
  if (routed.parsed == nullptr) return;
  const std::unique_ptr<GenerateRequest> parsed = std::move(routed.parsed);
  const route::PrefixKey& key = routed.key;
  if (key.set.is_zero() || core_.texts->use(key.set) || core_.router.known().sets.share(key.set) <= 0) return;
  PrefixTextCache::Text text;
  text.model = routed.model;
  text.body = prefix_body(*parsed, routed.model, key);
  text.key.set = key.set;
  text.key.chat = key.chat;
  text.key.prefix_messages = key.prefix_messages;
  text.key.prefix_bytes = key.prefix_bytes;
  if (!text.body.empty()) core_.texts->put(key.set, std::move(text));
}

// Traffic is what could be routed: not a model that no worker serves, nor text only.
void RequestIntake::record_arrival(RequestContext& context) {
  if (core_.recorder == nullptr || !context.routed.generates ||
      !core_.router.view().knows_model(context.routed.model))
    return;
  const route::PrefixKey& key = context.routed.key;
  TrafficArrival arrival;
  arrival.model = context.routed.model;
  arrival.set = key.set;
  if (context.client != nullptr) arrival.key = context.client->name();
  if (!key.session.is_zero()) arrival.session = chain_hash(core_.recorder->salt(), key.session.hex());
  arrival.prefix_bytes = key.prefix_bytes;
  arrival.marks = std::move(context.routed.marks);
  context.entry = std::make_unique<TrafficEntry>(*core_.recorder, std::move(arrival), context.started);
}

RequestParserInput RequestIntake::input_of(ApiParser& parser, const RequestContext& context) const {
  RequestParserInput input{core_.options, parser, AccessGate::tenant_salt(context)};
  input.personas = core_.personas.registry;
  input.client = context.client.get();
  input.among_tenants = context.client != nullptr && context.client->among_tenants();
  if (context.client != nullptr) input.key = context.client->name();
  input.user_header = core_.options.accounts.user_header;
  return input;
}

// Parses, and again where the body names no model: a set's key has its model's name in it.
ApiResult<RoutedRequest> RequestIntake::parse_named(const HttpRequest& request, ForwardParser parse,
                                                    RequestParserInput input,
                                                    const RequestContext& context) const {
  auto routed = parse(request, input);
  if (!routed.ok() || !routed->model.empty()) return routed;
  // (Embeddings are asked of workers of another kind first: without a name they have always been theirs.)
  auto model = only_model(context, routed->passes);
  if (!model.ok() && routed->passes && !routed->key.others_only) model = only_model(context, false);
  if (!model.ok()) return model.error();
  input.model = *model;
  routed = parse(request, input);
  if (routed.ok()) routed->model = std::move(*model);
  return routed;
}

// Workers of another kind may understand what ours would refuse: where no other worker serves the model, they
// judge the request.
ApiResult<RoutedRequest> RequestIntake::parse_for_others(const HttpRequest& request, ForwardParser parse,
                                                         const RequestContext& context) const {
  ApiLimits limits = core_.options.api;
  limits.for_others = true;
  ApiParser api(limits);
  auto routed = parse_named(request, parse, input_of(api, context), context);
  if (!routed.ok() || only_others_serve(routed->model)) return routed;
  return core_.fleet.probed() ? ApiError::not_found_model(routed->model)
                              : replies_.no_candidate(routed->model);
}

bool RequestIntake::others_serve(const std::string& model) const {
  const auto nodes = core_.router.view().nodes_for(model);
  return std::any_of(nodes.begin(), nodes.end(),
                     [this](route::NodeIndex node) { return !core_.fleet.is_troupe_worker(node); });
}

bool RequestIntake::only_others_serve(const std::string& model) const {
  const auto nodes = core_.router.view().nodes_for(model);
  return !nodes.empty() && std::none_of(nodes.begin(), nodes.end(), [this](route::NodeIndex node) {
    return core_.fleet.is_troupe_worker(node);
  });
}

bool RequestIntake::only_others_answer(const std::string& model) const {
  const auto nodes = core_.router.view().nodes();
  const bool ours =
      std::any_of(nodes.begin(), nodes.end(), [](const auto& node) { return node.is_troupe_worker; });
  return ours ? only_others_serve(model) : !nodes.empty();
}

// The model of a body that names none.
ApiResult<std::string> RequestIntake::only_model(const RequestContext& context, bool of_others) const {
  std::vector<std::string> models = core_.router.view().models();
  std::erase_if(models,
                [&context](const std::string& model) { return !AccessGate::may_use(context, model); });
  if (of_others && models.size() > 1)
    std::erase_if(models, [this](const std::string& model) { return !others_serve(model); });
  if (models.empty()) return replies_.no_candidate("");
  if (models.size() > 1) {
    return ApiError::bad_field("model", absl::StrCat("'model' is required: ", models.size(),
                                                     " models are served here, see GET /v1/models"));
  }
  return models.front();
}

}  // namespace troupe
