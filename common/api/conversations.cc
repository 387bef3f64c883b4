#include "common/api/conversations.h"

#include "absl/strings/str_cat.h"
#include "common/api/read.h"

namespace troupe {

namespace {

constexpr size_t kHexBytes = 32;

Fault read_hash(std::string_view param, dom::element value, Hash128& out) {
  std::string text;
  if (auto fault = read_string(param, value, kHexBytes, text)) return fault;
  const auto hash = Hash128::from_hex(text);
  if (!hash) return expected(param, "32 hex digits", value);
  out = *hash;
  return std::nullopt;
}

Fault read_ids(std::string_view param, dom::element value, std::vector<int32_t>& out) {
  dom::array items;
  if (value.get(items)) return expected(param, "an array of token ids", value);
  return read_id_list(param, items, out);
}

Fault read_conversation_field(std::string_view name, dom::element value, CachedConversation& conversation) {
  constexpr IntegerRange kCount{0, std::numeric_limits<int32_t>::max()};
  if (name == "model")
    return read_string(name, value, std::numeric_limits<size_t>::max(), conversation.model);
  if (name == "session") return read_hash(name, value, conversation.session);
  if (name == "set") return read_hash(name, value, conversation.set);
  if (name == "salt") return read_hash(name, value, conversation.salt);
  if (name == "prefix_tokens") return read_integer(name, value, kCount, conversation.prefix_tokens);
  if (name == "tokens") return read_integer(name, value, kCount, conversation.tokens);
  if (name == "ids") return read_ids(name, value, conversation.ids);
  return std::nullopt;
}

Fault read_conversation(dom::object fields, CachedConversation& conversation) {
  for (const auto field : fields) {
    if (field.value.is_null()) continue;
    if (auto fault = read_conversation_field(field.key, field.value, conversation)) return fault;
  }
  if (conversation.model.empty()) return missing("model", "the name of a model that GET /v1/models lists");
  if (conversation.session.is_zero()) return missing("session", "the conversation's name: 32 hex digits");
  return std::nullopt;
}

std::string quoted_or_null(const Hash128& hash) {
  return hash.is_zero() ? "null" : '"' + hash.hex() + '"';
}

}  // namespace

std::string_view conversation_session_of(std::string_view path) {
  const size_t begin = kConversationsPath.size() + 1;
  if (!path.starts_with(kConversationsPath) || path.size() <= begin || path[begin - 1] != '/') return "";
  return path.substr(begin);
}

std::string conversation_json(const CachedConversation& conversation) {
  std::string out = "{\"object\":\"conversation\",\"model\":";
  append_json_string(out, conversation.model);
  absl::StrAppend(&out, ",\"session\":\"", conversation.session.hex(),
                  "\",\"set\":", quoted_or_null(conversation.set),
                  ",\"salt\":", quoted_or_null(conversation.salt),
                  ",\"prefix_tokens\":", conversation.prefix_tokens, ",\"tokens\":", conversation.tokens);
  if (!conversation.ids.empty()) {
    out += ",\"ids\":[";
    for (const int32_t id : conversation.ids) absl::StrAppend(&out, id, ",");
    out.back() = ']';
  }
  return out + '}';
}

std::string conversation_list_json(std::span<const CachedConversation> conversations) {
  std::string out = "{\"object\":\"list\",\"data\":[";
  for (const CachedConversation& conversation : conversations) {
    if (out.back() != '[') out += ',';
    out += conversation_json(conversation);
  }
  return out + "]}";
}

std::string conversation_made_json(int64_t tokens, int64_t cached_tokens) {
  return absl::StrCat("{\"object\":\"conversation\",\"tokens\":", tokens,
                      ",\"cached_tokens\":", cached_tokens, "}");
}

ApiResult<CachedConversation> parse_conversation(std::string_view body, const ApiLimits& limits) {
  StrictJson json;
  auto fields = parse_body(json, body, limits);
  if (!fields.ok()) return fields.error();
  CachedConversation conversation;
  if (auto fault = read_conversation(*fields, conversation)) return *std::move(fault);
  if (conversation.ids.empty()) return missing("ids", "an array of at least one token id");
  conversation.tokens = static_cast<int64_t>(conversation.ids.size());
  if (conversation.prefix_tokens <= conversation.tokens) return conversation;
  return ApiError::bad_field("prefix_tokens",
                             absl::StrCat("'prefix_tokens' is ", conversation.prefix_tokens,
                                          ", but there are only ", conversation.tokens, " ids"));
}

ApiResult<std::vector<CachedConversation>> parse_conversation_list(std::string_view body) {
  StrictJson json;
  auto fields = parse_body(json, body, {});
  if (!fields.ok()) return fields.error();
  dom::array items;
  if (fields->at_key("data").get(items)) return missing("data", "an array of tails");
  std::vector<CachedConversation> conversations;
  for (const dom::element item : items) {
    dom::object object;
    if (item.get(object)) return expected("data", "an array of objects", item);
    if (auto fault = read_conversation(object, conversations.emplace_back())) return *std::move(fault);
  }
  return conversations;
}

}  // namespace troupe
