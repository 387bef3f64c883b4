#include "common/etcd/keys.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/json/json.h"

namespace troupe {
namespace {

constexpr size_t kRecordBytesMax = 16u << 10;
constexpr size_t kPrefixBytesMax = 256;

StatusOr<bj::object> parse_record(std::string_view json, std::string_view whose) {
  JsonLimits limits;
  limits.bytes_max = kRecordBytesMax;
  TROUPE_ASSIGN_OR_RETURN(bj::value root, parse_json(json, limits));
  if (!root.is_object())
    return invalid_argument(absl::StrCat("a ", to_absl(whose), "'s record is an object"));
  return std::move(root.get_object());
}

Status read_string(const bj::object& record, const char* name, std::string& to) {
  const bj::value* value = record.if_contains(name);
  if (value == nullptr || !value->is_string())
    return invalid_argument(absl::StrCat(name, ": must be a string"));
  to = std::string(value->get_string());
  return absl::OkStatus();
}

}  // namespace

Status check_state_prefix(std::string_view prefix) {
  const bool plain = std::all_of(prefix.begin(), prefix.end(), [](char c) { return c > ' ' && c < 0x7f; });
  if (plain && prefix.size() >= 2 && prefix.size() <= kPrefixBytesMax && prefix.front() == '/' &&
      prefix.back() != '/')
    return absl::OkStatus();
  return invalid_argument("must be a path such as /troupe/v1, with no / at its end");
}

std::string worker_record_json(const WorkerRecord& record) {
  std::string out = "{\"url\":";
  append_json_string(out, record.url);
  out += ",\"model\":";
  append_json_string(out, record.model);
  out += ",\"epoch\":";
  append_json_string(out, record.epoch);
  return out + "}";
}

StatusOr<WorkerRecord> parse_worker_record(std::string_view json) {
  TROUPE_ASSIGN_OR_RETURN(const bj::object fields, parse_record(json, "worker"));
  WorkerRecord record;
  TROUPE_RETURN_IF_ERROR(read_string(fields, "url", record.url));
  TROUPE_RETURN_IF_ERROR(read_string(fields, "model", record.model));
  TROUPE_RETURN_IF_ERROR(read_string(fields, "epoch", record.epoch));
  return record;
}

std::string gateway_record_json(const GatewayRecord& record) {
  std::string out = "{\"url\":";
  append_json_string(out, record.url);
  return out + "}";
}

StatusOr<GatewayRecord> parse_gateway_record(std::string_view json) {
  TROUPE_ASSIGN_OR_RETURN(const bj::object fields, parse_record(json, "gateway"));
  GatewayRecord record;
  TROUPE_RETURN_IF_ERROR(read_string(fields, "url", record.url));
  return record;
}

}  // namespace troupe
