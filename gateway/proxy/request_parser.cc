#include "gateway/proxy/request_parser.h"

#include <algorithm>

#include "common/api/prefix.h"
#include "common/api/tokenize.h"
#include "common/json/json.h"
#include "gateway/access/end_user.h"
#include "gateway/access/tenant.h"

namespace troupe {
namespace {

// A tenant's request is keyed with a salt that is not the client's to choose.
std::string salt_as(std::string_view tenant_salt, GenerateRequest& request) {
  if (tenant_salt.empty()) return "";
  request.cache_salt = salt_within(tenant_salt, request.cache_salt);
  return request.cache_salt;
}

ApiResult<RoutedRequest> parse_chat(const HttpRequest& request, const RequestParserInput& input) {
  return parse_generate(request, GenerateRequest::Kind::kChat, input);
}

ApiResult<RoutedRequest> parse_completion(const HttpRequest& request, const RequestParserInput& input) {
  return parse_generate(request, GenerateRequest::Kind::kCompletion, input);
}

// Any worker of the model counts the same: no prefix key, so the load decides.
RoutedRequest text_only(std::string model) {
  RoutedRequest routed;
  routed.model = std::move(model);
  routed.generates = false;
  return routed;
}

ApiResult<RoutedRequest> parse_tokenize(const HttpRequest& request, const RequestParserInput& input) {
  auto parsed = parse_tokenize_request(request.body, input.options.api);
  if (!parsed.ok()) return parsed.error();
  std::string asked = follow_route(request, input, parsed->source);
  RoutedRequest routed = text_only(std::move(parsed->source.model));
  routed.asked_model = std::move(asked);
  return routed;
}

ApiResult<RoutedRequest> parse_detokenize(const HttpRequest& request, const RequestParserInput& input) {
  auto parsed = parse_detokenize_request(request.body, input.options.api);
  if (!parsed.ok()) return parsed.error();
  GenerateRequest named;
  named.model = std::move(parsed->model);
  std::string asked = follow_route(request, input, named);
  RoutedRequest routed = text_only(std::move(named.model));
  routed.asked_model = std::move(asked);
  return routed;
}

}  // namespace

ForwardParser forward_parser(std::string_view path) {
  if (path == "/v1/chat/completions") return parse_chat;
  if (path == "/v1/completions") return parse_completion;
  if (path == "/tokenize") return parse_tokenize;
  if (path == "/detokenize") return parse_detokenize;
  return nullptr;
}

bool costs_tokens(const HttpRequest& request, const RoutedRequest& routed) {
  return routed.takes_room() && request.path != "/v1/messages/count_tokens";
}

ApiResult<Duration> timeout_of(const HttpRequest& request, const RequestParserOptions& options) {
  return client_timeout(request, options.request_timeout);
}

std::string follow_route(const HttpRequest& request, const RequestParserInput& input,
                         GenerateRequest& named) {
  if (input.options.routes.empty()) return {};
  const ModelRoute* const route = input.options.routes.find(named.model);
  if (route == nullptr) return {};
  const std::string_view in_body = end_user_in_body(named.user, named.metadata_user, named.safety_identifier);
  std::string_view subject = end_user_of(request.headers, input.user_header, in_body);
  if (subject.empty()) subject = request.header("x-session-id");
  if (subject.empty()) subject = named.prompt_cache_key;
  std::string asked = route->name;
  // (A model that keeps a part of its own name is not renamed.)
  named.model = arm_of(*route, end_user_id(input.key, subject)).model;
  return asked;
}

ApiResult<Resend> resend_of(const HttpRequest& request) {
  const std::string_view text = request.header("x-troupe-retry");
  if (text.empty()) return Resend::kAsConfigured;
  if (text == "always") return Resend::kAlways;
  if (text == "connect") return Resend::kConnect;
  return ApiError::bad_field(
      "x-troupe-retry",
      "x-troupe-retry must be 'always' or 'connect' (send it again only where no worker "
      "has seen it)");
}

ApiResult<RoutedRequest> parse_generate(const HttpRequest& request, GenerateRequest::Kind kind,
                                        const RequestParserInput& input) {
  const RequestParserOptions& options = input.options;
  auto parsed = kind == GenerateRequest::Kind::kChat ? input.parser.parse_chat(request.body)
                                                     : input.parser.parse_completion(request.body);
  if (!parsed.ok()) return parsed.error();
  if (parsed->resume)
    return ApiError::unsupported("troupe_resume", "'troupe_resume' is what this gateway tells its workers");
  if (parsed->model.empty()) parsed->model = input.model;
  const std::string_view session = request.header("x-session-id");
  RoutedRequest routed;
  routed.asked_model = follow_route(request, input, *parsed);
  if (options.names_users)
    routed.end_user = end_user_in_body(parsed->user, parsed->metadata_user, parsed->safety_identifier);
  routed.salt = salt_as(input.tenant_salt, *parsed);
  if (parsed->persona_json.empty()) {
    routed.key = route::make_prefix_key(*parsed, session);
  } else {
    auto persona = assemble_persona({request, input.personas, input.client}, *parsed);
    if (!persona.ok()) return persona.error();
    routed.key = std::move(persona->key);
    routed.persona = std::make_unique<AssembledPersona>(*std::move(persona));
  }
  if (options.mark_salt) routed.marks = prompt_marks(*parsed, *options.mark_salt);
  routed.stream = parsed->stream;
  routed.whole = !parsed->stream;
  routed.choices = parsed->choice_count();
  routed.priority = parsed->priority;
  routed.answer_tokens_max = parsed->max_tokens;
  // (A client may name any number; beyond this one no context makes a difference.)
  constexpr int64_t kAnswerTokensMax = int64_t{1} << 40;
  routed.key.answer_tokens = std::min(parsed->max_tokens.value_or(0), kAnswerTokensMax);
  routed.model = std::move(parsed->model);
  if (options.keep_parsed) routed.parsed = std::make_unique<GenerateRequest>(*std::move(parsed));
  return routed;
}

ApiResult<RoutedRequest> parse_prefix(const HttpRequest& request, const RequestParserInput& input) {
  auto parsed = parse_prefix_request(request.body, input.options.api);
  if (!parsed.ok()) return parsed.error();
  RoutedRequest routed;
  routed.own_salt = !parsed->source.cache_salt.empty();
  routed.asked_model = follow_route(request, input, parsed->source);
  routed.salt = salt_as(input.tenant_salt, parsed->source);
  routed.key = route::make_prefix_key(parsed->source, "");
  routed.key.session = {};
  routed.key.session_source = route::SessionSource::kNone;
  routed.model = std::move(parsed->source.model);
  routed.generates = false;
  routed.prefills = true;
  routed.pin = parsed->pin;
  routed.ttl_s = parsed->ttl_s;
  routed.answer_tokens_max = 0;
  return routed;
}

ApiResult<GenerateRequest::Kind> kind_of_body(std::string_view body) {
  const auto value = parse_json(body);
  if (!value.ok()) return ApiError::bad_field("", to_std(value.status().message()));
  const bj::object* object = value->if_object();
  if (object == nullptr) return ApiError::bad_field("", "the body must be a JSON object");
  if (object->contains("messages")) return GenerateRequest::Kind::kChat;
  if (object->contains("prompt")) return GenerateRequest::Kind::kCompletion;
  return ApiError::bad_field("messages", "the body has neither 'messages' (chat) nor 'prompt' (completion)");
}

}  // namespace troupe
