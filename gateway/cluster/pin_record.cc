#include "gateway/cluster/pin_record.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/json/json.h"

namespace troupe {
namespace {

constexpr size_t kNodesMax = 64, kNameBytesMax = 1024;
// An open body is closed with any values to see whether it is JSON.
constexpr std::string_view kSaltedEnd = R"("","ttl_s":null})", kPlainEnd = "null}";

StatusOr<std::string> text_in(const bj::object& fields, const char* name, size_t bytes_max) {
  const bj::value* value = fields.if_contains(name);
  if (value == nullptr || !value->is_string())
    return invalid_argument(absl::StrCat(name, ": must be a string"));
  const bj::string& text = value->get_string();
  if (text.size() > bytes_max)
    return invalid_argument(absl::StrCat(name, ": is longer than ", bytes_max, " bytes"));
  return std::string(text.data(), text.size());
}

StatusOr<int64_t> count_in(const bj::object& fields, const char* name) {
  const bj::value* value = fields.if_contains(name);
  if (value == nullptr || !value->is_int64() || value->get_int64() < 0)
    return invalid_argument(absl::StrCat(name, ": must be a whole number, 0 or more"));
  return value->get_int64();
}

StatusOr<bool> flag_in(const bj::object& fields, const char* name) {
  const bj::value* value = fields.if_contains(name);
  if (value == nullptr || !value->is_bool())
    return invalid_argument(absl::StrCat(name, ": must be true or false"));
  return value->get_bool();
}

Status read_nodes(const bj::object& fields, route::Pin& pin) {
  const bj::value* value = fields.if_contains("nodes");
  const bj::array* nodes = value == nullptr ? nullptr : value->if_array();
  if (nodes == nullptr || nodes->size() > kNodesMax)
    return invalid_argument(absl::StrCat("nodes: must be a list of at most ", kNodesMax));
  for (const bj::value& item : *nodes) {
    if (!item.is_object()) return invalid_argument("nodes: must hold objects");
    route::Pin::Claim& claim = pin.claims.emplace_back();
    TROUPE_ASSIGN_OR_RETURN(claim.node, text_in(item.get_object(), "id", kNameBytesMax));
    TROUPE_ASSIGN_OR_RETURN(claim.cache_epoch, text_in(item.get_object(), "epoch", kNameBytesMax));
  }
  return absl::OkStatus();
}

StatusOr<Hash128> hash_in(const bj::object& fields, const char* name) {
  TROUPE_ASSIGN_OR_RETURN(const std::string text, text_in(fields, name, 32));
  const auto hash = Hash128::from_hex(text);
  if (!hash) return invalid_argument(absl::StrCat(name, ": must be 32 hex digits"));
  return *hash;
}

Status read_key(const bj::object& fields, route::PrefixKey& key) {
  TROUPE_ASSIGN_OR_RETURN(key.set, hash_in(fields, "set"));
  TROUPE_ASSIGN_OR_RETURN(const int64_t messages, count_in(fields, "prefix_messages"));
  TROUPE_ASSIGN_OR_RETURN(const int64_t prefix_bytes, count_in(fields, "prefix_bytes"));
  TROUPE_ASSIGN_OR_RETURN(const int64_t prompt_bytes, count_in(fields, "prompt_bytes"));
  TROUPE_ASSIGN_OR_RETURN(key.chat, flag_in(fields, "chat"));
  if (messages > INT32_MAX) return invalid_argument("prefix_messages: is too large");
  key.prefix_messages = static_cast<int32_t>(messages);
  key.prefix_bytes = static_cast<size_t>(prefix_bytes);
  key.prompt_bytes = static_cast<size_t>(prompt_bytes);
  return absl::OkStatus();
}

Status check_texts(const route::Pin& pin) {
  const auto answer = parse_json(pin.answer);
  if (!answer.ok() || !answer->is_object()) return invalid_argument("answer: must be an object, as text");
  const auto body = parse_json(absl::StrCat(pin.body, to_absl(pin.salted ? kSaltedEnd : kPlainEnd)));
  if (!body.ok() || !body->is_object())
    return invalid_argument("body: must be an object's text, up to its last values");
  return absl::OkStatus();
}

}  // namespace

std::string pin_record_json(const PinRecord& record) {
  const route::Pin& pin = record.pin;
  bj::object fields;
  fields["prefix"] = pin.prefix.hex();
  fields["owner"] = pin.owner;
  fields["model"] = pin.model;
  fields["tokens"] = pin.tokens;
  fields["expires"] = pin.expires;
  fields["until"] = pin.expires ? record.until_unix_s : 0;
  fields["set"] = pin.key.set.hex();
  fields["prefix_messages"] = pin.key.prefix_messages;
  fields["prefix_bytes"] = static_cast<int64_t>(pin.key.prefix_bytes);
  fields["prompt_bytes"] = static_cast<int64_t>(pin.key.prompt_bytes);
  fields["chat"] = pin.key.chat;
  bj::array nodes;
  for (const route::Pin::Claim& claim : pin.claims) {
    bj::object node;
    node["id"] = claim.node;
    node["epoch"] = claim.cache_epoch;
    nodes.emplace_back(std::move(node));
  }
  fields["nodes"] = std::move(nodes);
  fields["answer"] = pin.answer;
  if (!record.writer.empty()) fields["writer"] = record.writer;
  fields["salted"] = pin.salted;
  fields["body"] = pin.body;
  return to_json(fields);
}

StatusOr<PinRecord> parse_pin_record(std::string_view json) {
  JsonLimits limits;
  limits.bytes_max = kPinRecordBytesMax;
  TROUPE_ASSIGN_OR_RETURN(const bj::value root, parse_json(json, limits));
  if (!root.is_object()) return invalid_argument("a pin's record is an object");
  const bj::object& fields = root.get_object();
  PinRecord record;
  route::Pin& pin = record.pin;
  TROUPE_ASSIGN_OR_RETURN(pin.prefix, hash_in(fields, "prefix"));
  TROUPE_ASSIGN_OR_RETURN(pin.owner, text_in(fields, "owner", kNameBytesMax));
  TROUPE_ASSIGN_OR_RETURN(pin.model, text_in(fields, "model", kNameBytesMax));
  TROUPE_ASSIGN_OR_RETURN(pin.tokens, count_in(fields, "tokens"));
  TROUPE_ASSIGN_OR_RETURN(pin.expires, flag_in(fields, "expires"));
  TROUPE_ASSIGN_OR_RETURN(record.until_unix_s, count_in(fields, "until"));
  TROUPE_RETURN_IF_ERROR(read_key(fields, pin.key));
  TROUPE_RETURN_IF_ERROR(read_nodes(fields, pin));
  TROUPE_ASSIGN_OR_RETURN(pin.answer, text_in(fields, "answer", kPinRecordBytesMax));
  TROUPE_ASSIGN_OR_RETURN(pin.salted, flag_in(fields, "salted"));
  TROUPE_ASSIGN_OR_RETURN(pin.body, text_in(fields, "body", kPinRecordBytesMax));
  if (fields.contains("writer")) {
    TROUPE_ASSIGN_OR_RETURN(record.writer, text_in(fields, "writer", kNameBytesMax));
  }
  TROUPE_RETURN_IF_ERROR(check_texts(pin));
  pin.shared = true;
  return record;
}

}  // namespace troupe
