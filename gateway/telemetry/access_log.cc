#include "gateway/telemetry/access_log.h"

#include <chrono>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/log_line.h"

namespace troupe {

namespace {

// Bound of each text from the client, so that a line is shorter than PIPE_BUF even with every byte escaped.
constexpr size_t kPathBytesMax = 512;
constexpr size_t kNameBytesMax = 128;
constexpr std::string_view kNone = "-";

class Line {
 public:
  Line(int64_t unix_ms, std::string_view event) {
    out_.reserve(512);
    out_ = "ts=";
    append_log_time(out_, unix_ms);
    out_ += " level=info event=";
    out_ += event;
  }
  Line& text(std::string_view key, std::string_view value, size_t bytes_max = kNameBytesMax) {
    name(key);
    append_log_value(out_, value.empty() ? kNone : value, bytes_max);
    return *this;
  }
  Line& word(std::string_view key, std::string_view value) {  // needs no escaping
    name(key);
    out_ += value.empty() ? kNone : value;
    return *this;
  }
  template <typename T>
  Line& count(std::string_view key, T value) {
    name(key);
    absl::StrAppend(&out_, value);
    return *this;
  }
  // Time between the two; "-" where either was not reached.
  Line& span(std::string_view key, TimePoint from, TimePoint to) {
    if (from == TimePoint{} || to == TimePoint{}) return word(key, kNone);
    char text[32];
    const auto us = std::chrono::duration_cast<std::chrono::microseconds>(to - from).count();
    std::snprintf(text, sizeof text, "%lld.%03lld", static_cast<long long>(us / 1000),
                  static_cast<long long>(us % 1000));
    return word(key, text);
  }
  std::string take() { return std::move(out_); }

 private:
  void name(std::string_view key) {
    out_ += ' ';
    out_ += key;
    out_ += '=';
  }
  std::string out_;
};

Line& add_choice(Line& line, const RequestRecord& request_record, const RequestFacts& facts) {
  const AttemptRecord* last = request_record.tries.empty() ? nullptr : &request_record.tries.back();
  line.text("model", facts.model);
  line.word("set", facts.set.is_zero() ? std::string() : facts.set.hex());
  line.text("node", last == nullptr ? kNone : last->node);
  line.word("branch", last == nullptr ? kNone : route::branch_name(last->branch));
  line.count("attempts", request_record.tries.size()).count("resumes", request_record.resumes);
  return line.count("expect", last == nullptr ? 0 : last->expect_cached);
}

Line& add_counts(Line& line, const std::optional<route::AnswerCounts>& counts) {
  if (counts && counts->has_cached) {
    line.count("cached", counts->cached_tokens);
  } else {
    line.word("cached", kNone);
  }
  if (!counts) return line.word("prompt", kNone).word("completion", kNone);
  return line.count("prompt", counts->prompt_tokens).count("completion", counts->completion_tokens);
}

Counter& dropped(Metrics& metrics, std::string reason) {
  return metrics.counter("troupe_gateway_access_log_dropped_total",
                         "Requests that are not in --access-log's file, by why.",
                         {{"reason", std::move(reason)}});
}

}  // namespace

std::string_view outcome_name(RequestOutcome end) {
  switch (end) {
    case RequestOutcome::kCancelled:
      return "cancelled";
    case RequestOutcome::kAnswered:
      return "answered";
    case RequestOutcome::kRefused:
      return "refused";
    case RequestOutcome::kBroken:
      return "broken";
  }
  return "cancelled";
}

std::string access_line(const RequestRecord& request_record, const RequestFacts& facts, int64_t unix_ms) {
  Line line(unix_ms, "request");
  line.text("request", facts.request_id)
      .word("trace", request_record.trace ? request_record.trace->trace_id() : std::string());
  line.text("client", request_record.client).text("key", facts.key);
  line.text("method", facts.method).text("path", facts.path, kPathBytesMax);
  line.count("status", request_record.status)
      .word("end", outcome_name(request_record.end))
      .text("why", request_record.why);
  line.count("in", facts.bytes_in).count("out", facts.bytes_out);
  line.span("ms", request_record.started, facts.ended)
      .span("first_byte_ms", request_record.started, request_record.first_byte);
  line.span("own_ms", request_record.started, request_record.chosen)
      .span("queue_ms", request_record.queued, request_record.left_queue(facts.ended));
  add_choice(line, request_record, facts);
  add_counts(line, request_record.counts).word("stream", facts.stream ? "true" : "false");
  line.text("persona", request_record.persona);
  return line.take();
}

std::string malformed_line(const HttpRefusal& refusal, int64_t unix_ms) {
  const HttpRequest* request = refusal.request;
  Line line(unix_ms, "malformed");
  line.text("request", refusal.request_id).text("client", refusal.remote_address);
  line.text("method", request == nullptr ? kNone : request->method);
  line.text("path", request == nullptr ? kNone : request->path, kPathBytesMax);
  line.count("status", refusal.status).text("why", refusal.why, kPathBytesMax);
  return line.take();
}

StatusOr<std::unique_ptr<AccessLog>> AccessLog::open(const std::string& path, const Parts& parts) {
  int fd = -1;
  if (path != kAccessLogStderr) {
    TROUPE_ASSIGN_OR_RETURN(fd, AppendLog::open("access_log", path));
  }
  return std::unique_ptr<AccessLog>(new AccessLog(fd, path, parts));
}

AccessLog::AccessLog(int fd, const std::string& path, const Parts& parts)
    : lines_(fd, path,
             {"access_log",
              parts.clock,
              parts.log,
              parts.metrics.counter("troupe_gateway_access_log_lines_total",
                                    "Lines written to --access-log's file."),
              dropped(parts.metrics, "write_failed"),
              dropped(parts.metrics, "queue_full"),
              {}}) {}

}  // namespace troupe
