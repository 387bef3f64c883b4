#include "common/core/shared_state.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/core/json.h"

namespace troupe {
namespace {

constexpr size_t kRecordBytesMax = 16u << 10;
constexpr size_t kPrefixBytesMax = 256;

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
  JsonLimits limits;
  limits.bytes_max = kRecordBytesMax;
  TROUPE_ASSIGN_OR_RETURN(const bj::value root, parse_json(json, limits));
  if (!root.is_object()) return invalid_argument("a worker's record is an object");
  WorkerRecord record;
  for (const auto& [name, to] :
       {std::pair{"url", &record.url}, {"model", &record.model}, {"epoch", &record.epoch}}) {
    const bj::value* value = root.get_object().if_contains(name);
    if (value == nullptr || !value->is_string())
      return invalid_argument(absl::StrCat(name, ": must be a string"));
    *to = std::string(value->get_string());
  }
  return record;
}

}  // namespace troupe
