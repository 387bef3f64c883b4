// status, time, log, metrics, api_error, append_by: one short test for each promise.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "common/api/error.h"
#include "common/core/append_by.h"
#include "common/core/log.h"
#include "common/core/log_line.h"
#include "common/core/metrics.h"
#include "common/core/status.h"
#include "common/core/time.h"
#include "common/json/json.h"

namespace troupe::small_parts_test {

using ::testing::HasSubstr;

TEST(Status, AnnotatePrependsPlaceAndKeepsCode) {
  const Status status = annotate(absl::NotFoundError("tensor 'x' is missing"), "model.safetensors");
  EXPECT_EQ(status, absl::NotFoundError("model.safetensors: tensor 'x' is missing"));
  EXPECT_TRUE(annotate(absl::OkStatus(), "anything").ok());
}

TEST(Deadline, RemainingIsZeroOnceExpiredAndMaxWithoutDeadline) {
  const TimePoint now{Duration(1000)};
  const Deadline deadline = Deadline::after(now, Duration(10));
  EXPECT_EQ(deadline.remaining(now), Duration(10));
  EXPECT_FALSE(deadline.expired(now + Duration(9)));
  EXPECT_TRUE(deadline.expired(now + Duration(10)));
  EXPECT_EQ(deadline.remaining(now + Duration(99)), Duration::zero());
  EXPECT_EQ(Deadline::never().remaining(now), Duration::max());
  EXPECT_FALSE(Deadline::never().expired(now));
}

TEST(Log, WritesOneLineOfKeysAndValuesInUtc) {
  EXPECT_EQ(
      format_log_line(1767323045678, LogLevel::kInfo, "listening", {{"host", "127.0.0.1"}, {"port", 31000}}),
      "ts=2026-01-02T03:04:05.678Z level=info event=listening host=127.0.0.1 port=31000");
  EXPECT_EQ(format_log_line(-1, LogLevel::kError, "x", {{"ok", true}}),
            "ts=1969-12-31T23:59:59.999Z level=error event=x ok=true");
}

TEST(Log, KeepsHostileValueInItsFieldAndLine) {
  const std::string line = format_log_line(
      0, LogLevel::kWarn, "e", {{"a", std::string("x\nlevel=info \"q\" \\ \x01\x7f")}, {"b", ""}});
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_THAT(line, HasSubstr(R"(a="x\nlevel=info \"q\" \\ \x01\x7f")"));
  EXPECT_THAT(line, HasSubstr(" b=\"\""));
  EXPECT_THAT(format_log_line(0, LogLevel::kWarn, "e", {{"a", "宋江"}}), HasSubstr("a=宋江"));
}

// Readers begin a new line at other characters, too, and a terminal interprets bytes that are no text.
TEST(Log, EscapesLineEndsBeyondAsciiAndInvalidUtf8) {
  const auto shown = [](std::string_view value) {
    std::string out;
    append_log_value(out, value);
    return out;
  };
  EXPECT_EQ(shown("a\xc2\x85z"), R"("a\xc2\x85z")");          // next line
  EXPECT_EQ(shown("a\xe2\x80\xa8z"), R"("a\xe2\x80\xa8z")");  // line separator
  EXPECT_EQ(shown("\x9b[2J"), R"("\x9b[2J")");
  EXPECT_EQ(shown("\xe5\xae"), R"("\xe5\xae")");  // cut in the middle
  EXPECT_EQ(shown("\xc0\x8a\xed\xa0\x80"), R"("\xc0\x8a\xed\xa0\x80")");
  EXPECT_EQ(shown("\xf4\x90\x80\x80"), R"("\xf4\x90\x80\x80")");
  for (const std::string_view plain : {"宋江", "é", "\xf0\x9f\x8e\xad", "\xc2\xa0"})
    EXPECT_EQ(shown(plain), plain);
}

// A name must not read as another's, nor a line backwards.
TEST(Log, EscapesCharactersThatHideOrTurnAround) {
  const auto shown = [](std::string_view value) {
    std::string out;
    append_log_value(out, value);
    return out;
  };
  EXPECT_EQ(shown("a\xe2\x80\xaez"), R"("a\xe2\x80\xaez")");                      // right-to-left override
  EXPECT_EQ(shown("\xd8\x9c"), R"("\xd8\x9c")");                                  // Arabic letter mark
  EXPECT_EQ(shown("\xe2\x81\xa6\xe2\x81\xa9"), R"("\xe2\x81\xa6\xe2\x81\xa9")");  // isolates
  EXPECT_EQ(shown("\xe2\x80\x8b\xe2\x80\x8f"), R"("\xe2\x80\x8b\xe2\x80\x8f")");  // zero width, mark
  EXPECT_EQ(shown("\xef\xbb\xbf"), R"("\xef\xbb\xbf")");                          // byte order mark
  EXPECT_EQ(shown("\xf3\xa0\x81\x81"), R"("\xf3\xa0\x81\x81")");                  // a tag letter
  for (const std::string_view plain : {"\xd8\x9b", "\xe2\x80\x90", "\xe2\x80\xaf", "\xf3\xa0\x84\x80"})
    EXPECT_EQ(shown(plain), plain) << "their neighbours";
}

TEST(Log, CutsLongValueAtWholeCharacter) {
  std::string value;
  for (int i = 0; i < 10'000; ++i) value += "宋";
  const std::string line = format_log_line(0, LogLevel::kWarn, "e", {{"a", value}});
  EXPECT_LT(line.size(), 4300u);
  EXPECT_TRUE(is_valid_utf8(line));
}

TEST(Log, DropsLinesBelowItsLevel) {
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  const Logger log(LogLevel::kWarn, fds[1]);
  log.info("dropped");
  log.warn("kept", {{"n", 1}});
  close(fds[1]);
  char text[256];
  const ssize_t size = read(fds[0], text, sizeof text);
  close(fds[0]);
  ASSERT_GT(size, 0);
  const std::string line(text, static_cast<size_t>(size));
  EXPECT_THAT(line, HasSubstr("level=warn event=kept n=1\n"));
  EXPECT_EQ(line.find("dropped"), std::string::npos);
}

TEST(Metrics, SameNameAndLabelsGiveTheSameHandle) {
  Metrics metrics;
  EXPECT_EQ(&metrics.counter("vllm:prompt_tokens_total", "h", {{"model_name", "m"}}),
            &metrics.counter("vllm:prompt_tokens_total", "h", {{"model_name", "m"}}));
  EXPECT_NE(&metrics.counter("vllm:prompt_tokens_total", "h", {{"model_name", "m"}}),
            &metrics.counter("vllm:prompt_tokens_total", "h", {{"model_name", "n"}}));
  EXPECT_EQ(&metrics.gauge("g", "h"), &metrics.gauge("g", "h"));
  EXPECT_EQ(&metrics.histogram("h", "h", kTtftBuckets), &metrics.histogram("h", "h", kTtftBuckets));
}

TEST(Metrics, TextHasPrometheusFormat) {
  Metrics metrics;
  metrics.counter("vllm:request_success_total", "Finished requests.", {{"finished_reason", "stop"}})
      .Increment(2);
  metrics.gauge("vllm:num_requests_running", "Running.").Set(3);
  metrics.histogram("vllm:time_to_first_token_seconds", "TTFT.", kTtftBuckets).Observe(0.03);
  const std::string text = metrics.text();
  EXPECT_THAT(text, HasSubstr("# TYPE vllm:request_success_total counter\n"));
  EXPECT_THAT(text, HasSubstr("vllm:request_success_total{finished_reason=\"stop\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("vllm:num_requests_running 3\n"));
  EXPECT_THAT(text, HasSubstr("vllm:time_to_first_token_seconds_bucket{le=\"0.02\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("vllm:time_to_first_token_seconds_bucket{le=\"0.04\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("vllm:time_to_first_token_seconds_bucket{le=\"+Inf\"} 1\n"));
}

TEST(Metrics, BucketsMatchVllmDashboards) {
  EXPECT_EQ(kTtftBuckets.size(), 22u);
  EXPECT_EQ(kTtftBuckets.back(), 2560);
  EXPECT_EQ(kInterTokenBuckets.size(), 19u);
  EXPECT_EQ(kInterTokenBuckets.back(), 80);
  EXPECT_EQ(kRequestLatencyBuckets.size(), 21u);
  EXPECT_EQ(kRequestLatencyBuckets.back(), 7680);
  for (const auto* buckets : {&kTtftBuckets, &kInterTokenBuckets, &kRequestLatencyBuckets}) {
    EXPECT_TRUE(std::is_sorted(buckets->begin(), buckets->end()));
  }
}

TEST(ApiError, HasOpenAisErrorObject) {
  EXPECT_EQ(ApiError::bad_field("messages[2].content", "must be a \"string\"\n").to_json(),
            R"({"error":{"message":"must be a \"string\"\n","type":"invalid_request_error",)"
            R"("param":"messages[2].content","code":null}})");
  EXPECT_EQ(
      ApiError::unsupported("n", "x").to_json(),
      R"({"error":{"message":"x","type":"invalid_request_error","param":"n","code":"unsupported_parameter"}})");
}

TEST(ApiError, EveryKindHasStatusAndCode) {
  EXPECT_EQ(ApiError::not_found_model("m").http_status, 404);
  EXPECT_EQ(ApiError::not_found_model("m").code, "model_not_found");
  EXPECT_THAT(ApiError::not_found_model("gpt-x").message, HasSubstr("'gpt-x'"));
  EXPECT_EQ(ApiError::too_large("x").http_status, 413);
  EXPECT_EQ(ApiError::context_length("prompt", 9, 8).http_status, 400);
  EXPECT_EQ(ApiError::context_length("prompt", 9, 8).code, "context_length_exceeded");
  EXPECT_EQ(ApiError::context_length("prompt", 9, 8).param, "prompt");
  EXPECT_EQ(ApiError::overloaded("x", 3).http_status, 429);
  EXPECT_EQ(ApiError::overloaded("x", 3).retry_after_s, 3);
  EXPECT_EQ(ApiError::unavailable("x").http_status, 503);
  EXPECT_EQ(ApiError::deadline("x").http_status, 504);
  EXPECT_EQ(ApiError::internal("x").http_status, 500);
}

TEST(AppendBy, GrowsByWrittenBytesAndKeepsOldOnes) {
  std::string text = "body: ";
  const auto write = [](std::string_view bytes) {
    return [bytes](char* to) { return bytes.copy(to, bytes.size()); };
  };
  EXPECT_EQ(append_by(text, 100, write("abc")), 3u);
  EXPECT_EQ(text, "body: abc");
  EXPECT_EQ(append_by(text, 100, write("")), 0u);
  EXPECT_EQ(append_by(text, 3,
                      [](char* to) {
                        std::string_view("xyz").copy(to, 3);
                        return size_t{9};
                      }),
            3u)
      << "no more than there was room for";
  EXPECT_EQ(text, "body: abcxyz");
  EXPECT_EQ(text.c_str()[text.size()], '\0');
}

}  // namespace troupe::small_parts_test
