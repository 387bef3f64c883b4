#include "sim/fleet/request_lines.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/json/json.h"

namespace troupe::sim {

namespace {

// To the microsecond, as in a gateway's record.
void append_ms(std::string& out, std::string_view name, Duration time) {
  absl::StrAppendFormat(&out, ",\"%s\":%.3f", absl::string_view(name.data(), name.size()),
                        static_cast<double>(time.count()) / 1e6);
}

void append_text(std::string& out, std::string_view name, std::string_view text) {
  absl::StrAppend(&out, ",\"", absl::string_view(name.data(), name.size()), "\":");
  append_json_string(out, text);
}

}  // namespace

void append_request_line(std::string& out, const RequestLine& line) {
  absl::StrAppend(&out, "{\"number\":", line.number);
  append_ms(out, "timestamp", line.arrived);
  if (line.turn > 0) absl::StrAppend(&out, ",\"turn\":", line.turn);
  absl::StrAppend(&out, ",\"input_length\":", line.prompt_tokens);
  if (line.tokens >= 0) absl::StrAppend(&out, ",\"output_length\":", line.tokens);
  if (line.simulated_node >= 0) absl::StrAppend(&out, ",\"node\":\"n", line.simulated_node, "\"");
  if (!line.live_node.empty()) append_text(out, "node", line.live_node);
  if (!line.branch.empty()) append_text(out, "branch", line.branch);
  absl::StrAppend(&out, ",\"attempts\":", line.attempts);
  if (line.expected_tokens >= 0) absl::StrAppend(&out, ",\"expected\":", line.expected_tokens);
  if (line.cached_tokens >= 0) absl::StrAppend(&out, ",\"cached\":", line.cached_tokens);
  if (line.first) append_ms(out, "ttft_ms", *line.first - line.arrived);
  append_ms(out, "duration_ms", line.ended - line.arrived);
  if (line.place.waited) append_ms(out, "queue_ms", line.place.wait);
  if (line.end == RequestEnd::kLost || line.end == RequestEnd::kRefused) out += ",\"lost\":true";
  if (line.end == RequestEnd::kRefused) {
    append_text(out, "refused", line.place.refusal());
    absl::StrAppend(&out, ",\"status\":", line.place.refusal_status());
  }
  if (line.live_status != 0) absl::StrAppend(&out, ",\"status\":", line.live_status);
  if (line.end == RequestEnd::kUnfinished) out += ",\"unfinished\":true";
  out += "}\n";
}

}  // namespace troupe::sim
