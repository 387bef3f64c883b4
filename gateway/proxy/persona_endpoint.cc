#include "gateway/proxy/persona_endpoint.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/api/prefix.h"
#include "common/json/json.h"
#include "gateway/proxy/captured_exchange.h"
#include "gateway/proxy/persona_http.h"
#include "gateway/proxy/request_scopes.h"

namespace troupe {

namespace {

constexpr int kStoreRetryS = 2;
constexpr int kTries = 4;  // where other gateways publish the same one

int64_t unix_now_s() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(now).count();
}

ApiError not_found(std::string_view name) {
  ApiError error = ApiError::bad_field(
      "name", absl::StrCat("there is no persona '", to_absl(name), "'; GET /v1/personas lists them"));
  error.http_status = 404;
  error.code = "persona_not_found";
  return error;
}

// (What the store says has addresses and paths of the gateway's, which are no client's business.)
ApiError not_kept(const Logger& log, std::string_view name, const Status& why) {
  const bool others = absl::IsAborted(why);
  if (!others)
    log.warn("persona_not_kept", {{"persona", std::string(name)}, {"why", std::string(why.message())}});
  ApiError error = ApiError::unavailable(
      others ? "the persona could not be kept, and is as it was: others change it all the time; ask again"
             : "the persona could not be kept, and is as it was: its store does not answer; ask again");
  error.retry_after_s = kStoreRetryS;
  return error;
}

std::string error_text(const CapturedExchange& asked) {
  const auto said = parse_json(asked.body());
  const bj::object* fields = said.ok() ? said->if_object() : nullptr;
  const bj::value* error = fields == nullptr ? nullptr : fields->if_contains("error");
  const bj::value* message =
      error == nullptr || !error->is_object() ? nullptr : error->get_object().if_contains("message");
  return message != nullptr && message->is_string() ? std::string(message->get_string())
                                                    : absl::StrCat("the workers answered ", asked.status());
}

}  // namespace

struct PersonaEndpoint::Publication {
  std::string owner, name;
  PersonaVersion version;
  PersonaDelivery delivery;
  // Once it is kept:
  bool is_first = false, is_new_version = false;
  Persona persona = {};

  bool has_older_pins() const {
    const auto& all = persona.versions;
    return std::any_of(all.begin(), all.end() - 1,
                       [](const PersonaVersion& v) { return !v.prefix_id.empty(); });
  }
};

Task<void> PersonaEndpoint::handle(Exchange& exchange) {
  const HttpRequest& request = exchange.request();
  if (request.path == kPersonasPath) return list(exchange);
  if (request.method == "PUT") return publish(exchange);
  return request.method == "DELETE" ? erase(exchange) : show(exchange);
}

ApiResult<bool> PersonaEndpoint::let_in(const HttpRequest& request, RequestContext& context) const {
  context.routed.generates = context.routed.prefills = false;
  ApiResult<bool> go = parts_.intake.enter(request, context);
  if (go.ok()) go = parts_.gate.let_in(request, context);
  return go;
}

Task<void> PersonaEndpoint::list(Exchange& exchange) {
  RequestContext context;
  const RequestScope scope(core_, parts_.replies, exchange, context);
  const ApiResult<bool> go = let_in(exchange.request(), context);
  if (!go.ok()) {
    co_await parts_.replies.refuse(exchange, context, go.error());
    co_return;
  }
  bj::array data;
  for (const Persona* persona : core_.personas.registry->visible_to(PinService::owner_of(context))) {
    bj::object item = persona_summary(*persona, persona->versions.back());
    data.emplace_back(std::move(item));
  }
  bj::object out;
  out["object"] = "list";
  out["data"] = std::move(data);
  std::string text = to_json(out);
  co_await parts_.replies.answer(exchange, context, 200, std::move(text));
}

Task<void> PersonaEndpoint::show(Exchange& exchange) {
  RequestContext context;
  const RequestScope scope(core_, parts_.replies, exchange, context);
  ApiResult<bool> go = let_in(exchange.request(), context);
  const std::string name = persona_name_of(exchange.request().path);
  const Persona* known =
      go.ok() ? core_.personas.registry->find(PinService::owner_of(context), name) : nullptr;
  if (go.ok() && known == nullptr) go = not_found(name);
  const auto number = persona_version_of(exchange.request());
  if (go.ok() && !number.ok()) go = number.error();
  const PersonaVersion* version = nullptr;
  if (go.ok()) {
    PersonaCall call;
    call.name = name;
    if (number.value() > 0) call.version = number.value();
    const auto chosen = core_.personas.registry->choose(PinService::owner_of(context), call);
    if (chosen.ok()) version = chosen.value().version;
    if (!chosen.ok()) go = chosen.error();
  }
  if (!go.ok()) {
    co_await parts_.replies.refuse(exchange, context, go.error());
    co_return;
  }
  HeaderList headers;
  headers.emplace_back("etag", version->etag());
  if (has_version(exchange.request(), *version)) {
    co_await parts_.replies.answer(exchange, context, 304, "", std::move(headers));
    co_return;
  }
  bj::object out = persona_summary(*known, *version);
  add_persona_prompt(out, *version);
  if (!version->prefix_id.empty()) out["prefix"] = version->prefix_id;
  const auto definition = parse_json(version->definition);
  if (definition.ok()) out["definition"] = *definition;
  std::string text = to_json(out);
  co_await parts_.replies.answer(exchange, context, 200, std::move(text), std::move(headers));
}

ApiResult<PersonaEndpoint::Publication> PersonaEndpoint::read(const HttpRequest& request,
                                                              const RequestContext& context) const {
  Publication out;
  out.owner = PinService::owner_of(context);
  out.name = persona_name_of(request.path);
  constexpr size_t kEscaped = 6;  // bytes that one may take in JSON
  if (request.body.size() > kEscaped * kPersonaBytesMax)
    return ApiError::too_large(absl::StrCat("a persona has at most ", kPersonaBytesMax, " bytes"));
  const auto body = parse_json(request.body);
  if (!body.ok()) return ApiError::bad_field("", to_std(body.status().message()));
  if (!body->is_object()) return ApiError::bad_field("", "the body must be a JSON object");
  auto delivery = parse_delivery(body->get_object());
  if (!delivery.ok()) return delivery.error();
  out.delivery = *std::move(delivery);
  // (Before it is compiled: that takes the event loop's time.)
  out.version.definition = definition_json(body->get_object());
  if (out.version.definition.size() > kPersonaBytesMax)
    return ApiError::too_large(absl::StrCat("a persona has at most ", kPersonaBytesMax,
                                            " bytes, and this one ", out.version.definition.size()));
  auto definition = parse_persona(body->get_object(), out.name);
  if (!definition.ok()) return definition.error();
  auto prompt = PersonaPrompt::compile(*std::move(definition));
  if (!prompt.ok()) return prompt.error();
  out.version.prompt = *std::move(prompt);
  out.version.created_s = unix_now_s();
  if (!out.delivery.model.empty() && !AccessGate::may_use(context, out.delivery.model))
    return ApiError::not_found_model(out.delivery.model);
  return out;
}

// A version that another gateway makes meanwhile comes before this one.
Task<ApiResult<bool>> PersonaEndpoint::keep(const HttpRequest& request, Publication& publication) {
  Status kept;
  for (int i = 0; i < kTries; ++i) {
    const Persona* known = core_.personas.registry->find_own(publication.owner, publication.name);
    ApiResult<bool> tags = check_persona_tags(request, known);
    if (!tags.ok()) co_return tags.error();
    auto change = core_.personas.registry->propose(publication.owner, publication.name, publication.version);
    if (!change.ok()) co_return change.error();
    publication.is_first = known == nullptr;
    publication.is_new_version = change->is_new_version;
    publication.persona = change->persona;
    if (!change->is_new_version) co_return true;
    kept = co_await core_.personas.keeper->keep(std::move(change->persona));
    if (kept.ok()) co_return true;
    if (!absl::IsAborted(kept)) break;
  }
  co_return not_kept(core_.log, publication.name, kept);
}

// The model at which the card is computed; empty: the body must say, or there is none.
std::string PersonaEndpoint::model_for(const Publication& publication, const RequestContext& context) const {
  if (!publication.delivery.model.empty()) return publication.delivery.model;
  std::vector<std::string> models = core_.router.view().models();
  std::erase_if(models,
                [&context](const std::string& model) { return !AccessGate::may_use(context, model); });
  return models.size() == 1 ? models.front() : "";
}

// Has the card computed, and keeps the id of its pin. What came of it, for the answer; null: nothing was
// asked.
Task<bj::value> PersonaEndpoint::compute(Exchange& exchange, const RequestContext& context,
                                         Publication& publication) {
  const PersonaPrompt& prompt = *publication.persona.versions.back().prompt;
  if (!(publication.delivery.prefill || publication.delivery.pin) || !prompt.shares_card()) co_return nullptr;
  bj::object out;
  const std::string model = model_for(publication, context);
  if (model.empty()) {
    out["error"] = "'model' names where the card is computed: none or several models are served here";
    co_return out;
  }
  bj::object message, body;
  message["role"] = "system";
  message["content"] = prompt.card();
  body["model"] = model;
  body["messages"] = bj::array({std::move(message)});
  body["pin"] = publication.delivery.pin;
  if (publication.delivery.ttl_s) body["ttl_s"] = *publication.delivery.ttl_s;
  HttpRequest request = exchange.request();
  request.method = "POST";
  request.target = request.path = kPrefixesPath;
  request.body = to_json(body);
  HttpRequest again = request;
  CapturedExchange first(exchange, std::move(request)), second(exchange, std::move(again));
  co_await parts_.prefixes.make(first);
  // Its own pins of before may be all that there is room for.
  const bool retries = first.status() == 409 && publication.has_older_pins();
  if (retries) {
    for (const PersonaVersion& version : publication.persona.versions) {
      if (!version.prefix_id.empty()) co_await unpin(exchange, version.prefix_id);
    }
    co_await parts_.prefixes.make(second);
  }
  const CapturedExchange& asked = retries ? second : first;
  if (asked.status() != 200) {
    out["status"] = asked.status();
    out["error"] = error_text(asked);
    co_return out;
  }
  auto said = parse_json(asked.body());
  if (!said.ok()) co_return out;
  const bj::object* fields = said->if_object();
  const bj::value* id = fields == nullptr ? nullptr : fields->if_contains("id");
  if (publication.delivery.pin && id != nullptr && id->is_string())
    publication.persona.versions.back().prefix_id = std::string(id->get_string());
  co_return *std::move(said);
}

Task<void> PersonaEndpoint::unpin(Exchange& exchange, std::string id) {
  HttpRequest request = exchange.request();
  request.method = "DELETE";
  request.path = absl::StrCat(to_absl(kPrefixesPath), "/", id);
  request.target = request.path;
  request.body.clear();
  CapturedExchange asked(exchange, std::move(request));
  co_await parts_.prefixes.known(asked);
  if (asked.status() != 200 && asked.status() != 404)
    core_.log.warn("persona_not_unpinned", {{"prefix", id}, {"status", asked.status()}});
}

// Keeps the id of the version's pin, and ends those of versions before it. The persona may have changed while
// the card was computed.
Task<void> PersonaEndpoint::note_pin(Exchange& exchange, const Publication& publication) {
  const PersonaVersion& made = publication.persona.versions.back();
  std::vector<std::string> over;
  Status kept;
  for (int i = 0; i < kTries; ++i) {
    const Persona* known = core_.personas.registry->find_own(publication.owner, publication.name);
    over.clear();
    if (known == nullptr) {
      over.push_back(made.prefix_id);  // it was deleted
      break;
    }
    Persona noted = *known;
    bool has_changed = false;
    for (PersonaVersion& version : noted.versions) {
      const std::string before = version.prefix_id;
      if (version.number == made.number) version.prefix_id = made.prefix_id;
      if (version.number < made.number) version.prefix_id.clear();
      has_changed = has_changed || version.prefix_id != before;
      if (version.prefix_id != before && before != made.prefix_id) over.push_back(before);
    }
    if (!has_changed) break;
    kept = co_await core_.personas.keeper->keep(std::move(noted));
    if (!absl::IsAborted(kept)) break;
  }
  if (!kept.ok())
    core_.log.warn("persona_pin_not_noted",
                   {{"persona", publication.name}, {"why", std::string(kept.message())}});
  std::erase(over, "");
  for (const std::string& id : over) co_await unpin(exchange, id);
}

Task<void> PersonaEndpoint::publish(Exchange& exchange) {
  RequestContext context;
  const RequestScope scope(core_, parts_.replies, exchange, context);
  ApiResult<bool> go = let_in(exchange.request(), context);
  Publication publication;
  if (go.ok()) {
    auto read_it = read(exchange.request(), context);
    if (read_it.ok()) publication = *std::move(read_it);
    if (!read_it.ok()) go = read_it.error();
  }
  if (go.ok()) go = co_await keep(exchange.request(), publication);
  if (!go.ok()) {
    co_await parts_.replies.refuse(exchange, context, go.error());
    co_return;
  }
  // The request for the prefix has a place, and a key's limits, of its own.
  context.permits.request.reset();
  context.api_key_lease.reset();
  PersonaVersion& made = publication.persona.versions.back();
  bj::value prefix = co_await compute(exchange, context, publication);
  co_await note_pin(exchange, publication);
  bj::object out = persona_summary(publication.persona, made);
  add_persona_prompt(out, made);
  out["new_version"] = publication.is_new_version;
  out["prefix"] = std::move(prefix);
  std::string text = to_json(out);
  HeaderList headers;
  headers.emplace_back("etag", made.etag());
  const int status = publication.is_first ? 201 : 200;
  co_await parts_.replies.answer(exchange, context, status, std::move(text), std::move(headers));
}

Task<void> PersonaEndpoint::erase(Exchange& exchange) {
  RequestContext context;
  const RequestScope scope(core_, parts_.replies, exchange, context);
  ApiResult<bool> go = let_in(exchange.request(), context);
  const std::string name = persona_name_of(exchange.request().path);
  const std::string owner = PinService::owner_of(context);
  std::vector<std::string> pinned;
  for (int i = 0; go.ok() && i < kTries; ++i) {
    const Persona* known = core_.personas.registry->find_own(owner, name);
    const bool is_read_only =
        known != nullptr ? known->from_folder : core_.personas.registry->find(owner, name) != nullptr;
    if (known == nullptr && !is_read_only) go = not_found(name);
    if (is_read_only) {
      ApiError error = ApiError::bad_field(
          "name", "this persona is read from the gateway's folder (personas.dir), and no client removes it");
      error.http_status = 409;
      error.code = "persona_read_only";
      go = error;
    }
    if (go.ok()) go = check_persona_tags(exchange.request(), known);
    if (!go.ok()) break;
    pinned.clear();
    for (const PersonaVersion& version : known->versions) {
      if (!version.prefix_id.empty()) pinned.push_back(version.prefix_id);
    }
    Persona gone;
    gone.owner = owner;
    gone.name = name;
    const Status kept = co_await core_.personas.keeper->keep(std::move(gone));
    if (kept.ok()) break;
    if (!absl::IsAborted(kept) || i + 1 == kTries) go = not_kept(core_.log, name, kept);
  }
  if (!go.ok()) {
    co_await parts_.replies.refuse(exchange, context, go.error());
    co_return;
  }
  context.permits.request.reset();
  context.api_key_lease.reset();
  for (const std::string& id : pinned) co_await unpin(exchange, id);
  bj::object out;
  out["object"] = "persona";
  out["name"] = name;
  out["deleted"] = true;
  std::string text = to_json(out);
  co_await parts_.replies.answer(exchange, context, 200, std::move(text));
}

}  // namespace troupe
