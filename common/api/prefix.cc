// Generation requests' own rows read the shared fields, so that a prefix is rendered as in its requests.

#include "common/api/prefix.h"

#include "absl/strings/str_cat.h"
#include "common/api/read.h"

namespace troupe {

namespace {

using Kind = GenerateRequest::Kind;

constexpr std::string_view kIdBegin = "prefix-";

Fault read_prefix_field(const ApiLimits& limits, std::string_view name, dom::element value,
                        PrefixRequest& request) {
  if (name == "pin") return read_bool(name, value, request.pin);
  if (name == "ttl_s") {
    int64_t ttl_s = 0;
    if (auto fault = read_integer(name, value, {1, kPrefixTtlMaxS}, ttl_s)) return fault;
    request.ttl_s = ttl_s;
    return std::nullopt;
  }
  if (name == "persona") return read_persona(name, value, /*is_taken=*/false, request.source);
  if (!names_chat(name) && name != "prompt" && name != "cache_salt") return std::nullopt;
  return read_request_field(limits, name, value, request.source);
}

bool is_present(dom::object fields, std::string_view name) {
  dom::element value;
  return !fields.at_key(name).get(value) && !value.is_null();
}

Fault choose_kind(dom::object fields, GenerateRequest& source) {
  const bool chat = is_present(fields, "messages"), completion = is_present(fields, "prompt");
  if (chat && completion) {
    return ApiError::bad_field("prompt", "'prompt' and 'messages' exclude each other; send one of them.");
  }
  if (!chat && !completion) {
    return missing("messages", "an array of at least one message; or send 'prompt'");
  }
  source.kind = chat ? Kind::kChat : Kind::kCompletion;
  return std::nullopt;
}

void append_optional(std::string& out, std::string_view name, std::optional<int64_t> value) {
  absl::StrAppend(&out, ",\"", to_absl(name), "\":");
  out += value ? std::to_string(*value) : "null";
}

// Into the object that `out` ends with.
void append_owners(std::string& out, const PrefixState& state) {
  out.pop_back();
  append_optional(out, "left_s", state.left_s);
  out += ",\"owners\":[";
  for (const std::string& owner : state.owners) {
    if (out.back() != '[') out += ',';
    append_json_string(out, owner);
  }
  out += "]}";
}

}  // namespace

ApiResult<PrefixRequest> parse_prefix_request(std::string_view body, const ApiLimits& limits) {
  StrictJson json;
  auto fields = parse_body(json, body, limits);
  if (!fields.ok()) return fields.error();
  PrefixRequest request;
  if (auto fault = choose_kind(*fields, request.source)) return *std::move(fault);
  for (const auto field : *fields) {
    if (field.value.is_null()) continue;
    if (auto fault = read_prefix_field(limits, field.key, field.value, request)) return *std::move(fault);
  }
  if (request.source.continue_final_message)
    return ApiError::unsupported("continue_final_message",
                                 "a prefix ends with its last message; leave out 'continue_final_message'.");
  if (!request.source.more_prompts.empty())
    return ApiError::bad_field("prompt", "'prompt' must be one prompt; make a prefix of each.");
  if (request.source.model.empty()) return missing("model", "the name of a model that GET /v1/models lists");
  return request;
}

std::string_view prefix_id_of(std::string_view path) {
  const size_t begin = kPrefixesPath.size() + 1;
  if (!path.starts_with(kPrefixesPath) || path.size() <= begin || path[begin - 1] != '/') return "";
  return path.substr(begin);
}

std::string prefix_id(const Hash128& hash) {
  return std::string(kIdBegin) + hash.hex();
}

std::optional<Hash128> parse_prefix_id(std::string_view id) {
  if (!id.starts_with(kIdBegin)) return std::nullopt;
  return Hash128::from_hex(id.substr(kIdBegin.size()));
}

ApiError unknown_prefix(std::string_view id, std::string_view remedy) {
  ApiError error = ApiError::bad_field(
      "id", absl::StrCat("there is no prefix '", to_absl(clip_text(id)), "'; ", to_absl(remedy)));
  error.http_status = 404;
  error.code = "prefix_not_found";
  return error;
}

std::string prefix_json(const PrefixState& state) {
  std::string out = absl::StrCat("{\"id\":\"", prefix_id(state.hash), "\",\"object\":\"prefix\",\"model\":");
  append_json_string(out, state.model);
  absl::StrAppend(&out, ",\"set\":", state.set.is_zero() ? "null" : '"' + state.set.hex() + '"');
  absl::StrAppend(&out, ",\"tokens\":", state.tokens, ",\"cached_tokens\":", state.cached_tokens,
                  ",\"pinned\":", state.pinned ? "true" : "false");
  append_optional(out, "ttl_s", state.ttl_s);
  absl::StrAppend(&out, ",\"created_at\":", state.created_s);
  append_optional(out, "expires_at", state.expires_s);
  return out + '}';
}

std::string prefix_list_json(const PrefixList& list) {
  std::string out = "{\"object\":\"list\",\"data\":[";
  for (const PrefixState& state : list.prefixes) {
    if (out.back() != '[') out += ',';
    out += prefix_json(state);
    if (list.with_owners) append_owners(out, state);
  }
  absl::StrAppend(&out, "],\"pinned_tokens\":", list.pinned_tokens,
                  ",\"max_pinned_tokens\":", list.pinned_tokens_max, "}");
  return out;
}

std::string prefix_deleted_json(std::string_view id) {
  std::string out = "{\"id\":";
  append_json_string(out, id);
  return out + ",\"object\":\"prefix\",\"deleted\":true}";
}

}  // namespace troupe
