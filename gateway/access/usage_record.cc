#include "gateway/access/usage_record.h"

#include <cstdio>
#include <ctime>

#include "absl/strings/str_cat.h"
#include "common/json/json.h"

namespace troupe {

namespace {

constexpr size_t kTextBytesMax = 512;

class Fields {
 public:
  void text(std::string_view name, std::string_view value) {
    begin(name);
    value = value.substr(0, kTextBytesMax);
    if (value.empty()) {
      out_ += "null";
    } else {
      append_json_string(out_, is_valid_utf8(value) ? value : std::string_view("?"));
    }
  }
  void count(std::string_view name, int64_t value) {
    begin(name);
    absl::StrAppend(&out_, value);
  }
  void flag(std::string_view name, bool value) {
    begin(name);
    out_ += value ? "true" : "false";
  }
  // Negative: null.
  void number(std::string_view name, double value) {
    begin(name);
    char text[32];
    std::snprintf(text, sizeof text, "%.3f", value);
    out_ += value < 0 ? "null" : text;
  }
  std::string take() { return std::move(out_) + "}"; }

 private:
  void begin(std::string_view name) {
    absl::StrAppend(&out_, out_.empty() ? "{\"" : ",\"", to_absl(name), "\":");
  }
  std::string out_;
};

std::string time_text(int64_t unix_ms) {
  const auto seconds = static_cast<std::time_t>(unix_ms / 1000);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[48];
  std::snprintf(text, sizeof text, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", utc.tm_year + 1900, utc.tm_mon + 1,
                utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec, static_cast<int>(unix_ms % 1000));
  return text;
}

// Tokens in the time in which they came; -1: there was none.
double tokens_per_s(const UsageRecord& record) {
  const double seconds = (record.duration_ms - record.ttft_ms) / 1000;
  if (record.ttft_ms < 0 || seconds <= 0 || record.tokens.completion < 2) return -1;
  return static_cast<double>(record.tokens.completion - 1) / seconds;
}

}  // namespace

std::string usage_line(const UsageRecord& record) {
  Fields line;
  line.text("time", time_text(record.unix_ms));
  line.text("id", record.request_id);
  line.text("key", record.key);
  line.text("tenant", record.tenant);
  line.text("end_user", record.end_user);
  line.text("path", record.path);
  line.text("model", record.model);
  line.text("arm", record.arm);
  line.text("set", record.set);
  line.flag("stream", record.stream);
  line.count("status", record.status);
  line.text("end", record.end);
  line.text("why", record.why);
  line.text("finish_reason", record.finish);
  line.text("moderation", record.verdict);
  line.count("prompt_tokens", record.tokens.prompt);
  line.count("cached_tokens", record.tokens.cached);
  line.count("completion_tokens", record.tokens.completion);
  line.count("reasoning_tokens", record.tokens.reasoning);
  line.flag("counted", record.tokens.counted);
  line.number("ttft_ms", record.ttft_ms);
  line.number("duration_ms", record.duration_ms);
  line.number("tokens_per_s", tokens_per_s(record));
  line.text("node", record.node);
  line.count("attempts", record.attempts);
  return line.take();
}

}  // namespace troupe
