#include "gateway/proxy/passed_request.h"

#include <absl/strings/match.h>

#include <algorithm>
#include <array>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/json/json.h"
#include "gateway/access/end_user.h"
#include "gateway/access/tenant.h"
#include "gateway/proxy/form_field.h"
#include "gateway/proxy/json_patch.h"
#include "gateway/upstream/stream_events.h"

namespace troupe {
namespace {

constexpr size_t kModelBytesMax = 1024;
constexpr std::string_view kResponsesPath = "/v1/responses", kEmbeddingsPath = "/v1/embeddings";

// Names the conversation, by whatever these APIs call who asks.
void name_session(const bj::object& fields, GenerateRequest& named) {
  named.prompt_cache_key = string_member(fields, "prompt_cache_key");
  named.user = string_member(fields, "user");
  const bj::value* metadata = fields.if_contains("metadata");  // of /v1/messages
  if (named.user.empty() && metadata != nullptr && metadata->is_object())
    named.user = string_member(metadata->get_object(), "user_id");
  named.safety_identifier = string_member(fields, "safety_identifier");
}

// Reads a text, or a list of token ids. False: another thing, which its worker may know.
bool read_text(const bj::value& value, GenerateRequest::Prompt& prompt) {
  if (value.is_string()) prompt = std::string(value.get_string());
  if (!value.is_array()) return value.is_string();
  std::vector<int32_t> ids;
  for (const bj::value& item : value.get_array()) {
    if (!item.is_int64()) return false;
    ids.push_back(static_cast<int32_t>(item.get_int64()));
  }
  prompt = std::move(ids);
  return true;
}

// The texts of an embeddings request are to its key the prompts of a completion: texts that begin alike are
// computed where their beginning is cached.
void name_texts(const bj::object& fields, GenerateRequest& named) {
  const bj::value* input = fields.if_contains("input");
  if (input == nullptr || read_text(*input, named.prompt) || !input->is_array()) return;
  bool first = true;
  for (const bj::value& item : input->get_array())
    if (read_text(item, first ? named.prompt : named.more_prompts.emplace_back())) first = false;
}

// Servers take other spellings of the name (those in Go), and of true ("true", 1).
bool may_ask_for_stream(const bj::key_value_pair& field) {
  const bj::value& value = field.value();
  return absl::EqualsIgnoreCase(to_absl(std::string_view(field.key())), "stream") && !value.is_null() &&
         !(value.is_bool() && !value.get_bool());
}

constexpr std::array<std::string_view, 2> kKeptThere{"previous_response_id", "conversation"};

// An item of `input` that names one which the server keeps. (Its type may be left out.)
bool is_reference(const bj::value& item) {
  const bj::object* fields = item.if_object();
  if (fields == nullptr) return false;
  const std::string_view type = string_member(*fields, "type");
  return type == "item_reference" || (type.empty() && fields->contains("id") && !fields->contains("role") &&
                                      !fields->contains("content"));
}

// A worker keeps answers under ids, and hands a conversation on to any client that knows one: the gateway's
// own key is all that it sees. Servers in Go take these names whatever their case is.
std::optional<ApiError> find_kept_there(const bj::object& fields) {
  const auto refused = [](std::string_view name) {
    return ApiError::unsupported(
        name, absl::StrCat("'", to_absl(name),
                           "' is not supported where API keys name tenants: what it names at the worker may "
                           "be another tenant's; send the conversation so far, whole, in 'input'."));
  };
  for (const auto& field : fields) {
    const std::string_view key = field.key();
    for (const std::string_view name : kKeptThere)
      if (absl::EqualsIgnoreCase(to_absl(key), to_absl(name)) && !field.value().is_null())
        return refused(name);
    if (!absl::EqualsIgnoreCase(to_absl(key), "input") || !field.value().is_array()) continue;
    const bj::array& items = field.value().get_array();
    if (std::any_of(items.begin(), items.end(), is_reference)) return refused("item_reference");
  }
  return std::nullopt;
}

// Reads what routing needs of a JSON body into `named` and `routed`.
std::optional<ApiError> read_body(const HttpRequest& request, const RequestParserInput& input,
                                  GenerateRequest& named, RoutedRequest& routed) {
  JsonLimits limits;
  limits.bytes_max = std::max(limits.bytes_max, input.options.api.body_bytes_max);
  const auto value = parse_json(request.body, limits);
  if (!value.ok()) return ApiError::bad_field("", to_std(value.status().message()));
  const bj::object* fields = value->if_object();
  if (fields == nullptr) return ApiError::bad_field("", "the body must be a JSON object");
  // Servers in Go take a key for `model` whatever its case is.
  for (const auto& field : *fields) {
    const std::string_view key = field.key();
    if (key != "model" && absl::EqualsIgnoreCase(to_absl(key), "model"))
      return ApiError::bad_field(key, "'model' must be written in lower case");
  }
  // (Its text would be missing in the count.)
  const bj::value* persona = fields->if_contains("persona");
  if (request.path == "/v1/messages/count_tokens" && persona != nullptr && !persona->is_null())
    return ApiError::unsupported("persona", "'persona' is of chats: tokens are counted without it.");
  if (request.path == kResponsesPath && input.among_tenants)
    if (auto refused = find_kept_there(*fields)) return refused;
  const bj::value* model = fields->if_contains("model");
  if (model != nullptr && !model->is_null() && !model->is_string())
    return ApiError::bad_field("model", "'model' must be a string");
  named.model = string_member(*fields, "model");
  named.cache_salt = string_member(*fields, "cache_salt");
  const bj::value* stream = fields->if_contains("stream");
  routed.stream = stream != nullptr && stream->is_bool() && stream->get_bool();
  routed.whole = std::none_of(fields->begin(), fields->end(), may_ask_for_stream);
  name_session(*fields, named);
  if (request.path == kEmbeddingsPath) name_texts(*fields, named);
  return std::nullopt;
}

std::optional<ApiError> read_form(const HttpRequest& request, const std::string& boundary,
                                  GenerateRequest& named) {
  const auto model = form_field(request.body, boundary, "model");
  if (!model.ok()) return ApiError::bad_field("", to_std(model.status().message()));
  if (*model) named.model = std::string(**model);
  return std::nullopt;
}

// A server that reads another one of two would read the body in another way.
bool has_two_types(const HttpRequest& request) {
  const auto is_type = [](const auto& header) { return header.first == "content-type"; };
  return std::count_if(request.headers.begin(), request.headers.end(), is_type) > 1;
}

}  // namespace

ApiResult<RoutedRequest> parse_passed(const HttpRequest& request, const RequestParserInput& input) {
  GenerateRequest named;  // has what names the conversation, and no prompt
  named.kind = GenerateRequest::Kind::kCompletion;
  RoutedRequest routed;
  if (has_two_types(request)) return ApiError::bad_field("content-type", "'content-type' must be there once");
  const auto type = form_boundary(request.header("content-type"));
  if (!type.ok()) return ApiError::bad_field("content-type", to_std(type.status().message()));
  const std::string& boundary = *type;
  auto fault =
      boundary.empty() ? read_body(request, input, named, routed) : read_form(request, boundary, named);
  if (fault) return *std::move(fault);
  if (named.model.size() > kModelBytesMax || !is_valid_utf8(named.model))
    return ApiError::bad_field("model", "'model' must be a name of at most 1024 bytes, in UTF-8");
  if (named.model.empty()) named.model = input.model;
  routed.asked_model = follow_route(request, input, named);
  if (input.options.names_users) routed.end_user = end_user_in_body(named.user, "", named.safety_identifier);
  // Workers keep a cache of prefixes for these paths' prompts, too: what one tenant sent is not another's to
  // see.
  const bool ours_answer = request.path == kEmbeddingsPath;
  const auto* text = std::get_if<std::string>(&named.prompt);
  const bool has_text = text == nullptr || !text->empty() || !named.more_prompts.empty();
  if ((request.path == kResponsesPath || ours_answer) && !input.tenant_salt.empty())
    routed.salt = salt_within(input.tenant_salt, named.cache_salt);
  named.cache_salt = input.tenant_salt;
  routed.key = route::make_prefix_key(named, request.header("x-session-id"));
  routed.key.others_only = !ours_answer;
  if (boundary.empty() && !(ours_answer && has_text)) routed.key.prompt_bytes = request.body.size();
  routed.model = std::move(named.model);
  routed.generates = false;
  routed.passes = true;
  return routed;
}

std::string with_model(std::string_view body, std::string_view content_type, const std::string& model) {
  const auto boundary = form_boundary(content_type);
  if (!boundary.ok()) return std::string(body);
  if (boundary->empty()) {
    JsonPatch named{"model", {}};
    append_json_string(named.json, model);
    return with_members(body, {&named, 1});
  }
  const auto form = form_field(body, *boundary, "model");
  if (!form.ok() || !*form) return std::string(body);
  const std::string_view field = **form;
  const auto begin = static_cast<size_t>(field.data() - body.data());
  std::string out(body.substr(0, begin));
  out += model;
  out += body.substr(begin + field.size());
  return out;
}

}  // namespace troupe
