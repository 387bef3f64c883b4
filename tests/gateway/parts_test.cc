// The gateway's small pure parts: usage read in passing, whole events, headers, settings.

#include <fstream>
#include <sstream>

#include "gateway/config.h"
#include "gateway/upstream/forward.h"
#include "gateway/upstream/headers.h"
#include "gateway/upstream/usage.h"
#include "tests/gateway/gateway_fixture.h"

namespace troupe::gateway_test {
namespace {

std::optional<route::AnswerCounts> counts_of(std::string_view text, size_t piece = 7) {
  UsageTap tap;
  for (size_t at = 0; at < text.size(); at += piece) tap.feed(text.substr(at, piece));
  return tap.counts();
}

TEST(UsageTap, ReadsTheLastUsageHoweverSplit) {
  const std::string text =
      "data: {\"usage\":null}\n\n" + std::string(10'000, 'x') +
      "\ndata: {\"choices\":[], \"usage\" : {\"prompt_tokens\":12,\"completion_tokens\":3,"
      "\"prompt_tokens_details\":{\"cached_tokens\":8}}}\n\ndata: [DONE]\n\n";
  for (const size_t piece : {1, 7, 100, 2047, 2048, 5000, 20'000}) {
    const auto counts = counts_of(text, piece);
    ASSERT_TRUE(counts.has_value()) << piece;
    EXPECT_EQ(counts->prompt_tokens, 12);
    EXPECT_EQ(counts->completion_tokens, 3);
    EXPECT_TRUE(counts->has_cached);
    EXPECT_EQ(counts->cached_tokens, 8);
  }
}

TEST(UsageTap, CountsEventsWithData) {
  UsageTap tap;
  tap.feed("data: {\"a\":\"data:\"}\n\n: hb\n\n");
  EXPECT_EQ(tap.events(), 1U);
  tap.feed("event: message\ndata: {}\n\ndata:{}\r\n\r\n");
  EXPECT_EQ(tap.events(), 3U);
  tap.feed("");
  EXPECT_EQ(tap.events(), 3U);
}

// A token "usage" is a name among the alternatives of a completion, and the answer's own usage comes last.
TEST(UsageTap, SearchesTheSameBytesHoweverSplit) {
  const std::string usage = "{\"usage\":{\"prompt_tokens\":5}}";
  const std::string last_in = usage + std::string(UsageTap::kTailBytes - usage.size(), 'x');
  const std::string out = last_in + "xx";  // the tail begins within {"usage"
  for (const size_t piece : {1, 7, 100, 2047, 2048, 5000}) {
    EXPECT_TRUE(counts_of("x" + last_in, piece).has_value()) << piece;
    EXPECT_FALSE(counts_of(out, piece).has_value()) << piece;
  }
}

TEST(UsageTap, CountsAllChoicesOfAnAnswerWithLogprobs) {
  AnswerHeader header;
  header.kind = GenerateRequest::Kind::kCompletion;
  const std::vector<TokenLogprob> logprobs = {{"usage", -0.5f, {{"usage", -0.5f}}, 0}};
  const std::vector<Choice> choices = {{0, "usage", FinishReason::kStop, &logprobs},
                                       {1, "usage", FinishReason::kStop, &logprobs}};
  const auto counts = counts_of(answer_json(header, choices, {12, 2, 8}));
  ASSERT_TRUE(counts.has_value());
  EXPECT_EQ(counts->prompt_tokens, 12);
  EXPECT_EQ(counts->completion_tokens, 2);
  EXPECT_EQ(counts->cached_tokens, 8);
  EXPECT_FALSE(counts_of(chunk_json(header, choices[0], false, false)).has_value());
}

TEST(UsageTap, IgnoresMalformedUsage) {
  EXPECT_FALSE(counts_of("").has_value());
  EXPECT_FALSE(counts_of("data: {\"usage\":null}\n\n").has_value());
  EXPECT_FALSE(counts_of("{\"usage\":{\"prompt_tokens\":-1}}").has_value());
  EXPECT_FALSE(counts_of("{\"usage\":{\"prompt_tokens\":\"many\"}}").has_value());
  EXPECT_FALSE(counts_of("{\"usage\":{\"prompt_tokens\":1").has_value());
  EXPECT_FALSE(counts_of("{\"content\":\"\\\"usage\\\":{\\\"prompt_tokens\\\":5}\"}").has_value());
  EXPECT_FALSE(counts_of("\"usage\"").has_value());
  const auto lying =
      counts_of("{\"usage\":{\"prompt_tokens\":5,\"prompt_tokens_details\":{\"cached_tokens\":99}}}");
  ASSERT_TRUE(lying.has_value());
  EXPECT_FALSE(lying->has_cached);
  const auto old = counts_of("{\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":1}}");
  ASSERT_TRUE(old.has_value());
  EXPECT_FALSE(old->has_cached);
}

TEST(WholeEvents, EndAtABlankLine) {
  EXPECT_EQ(whole_events(""), 0u);
  EXPECT_EQ(whole_events("data: x\n"), 0u);
  EXPECT_EQ(whole_events("data: x\n\n"), 9u);
  EXPECT_EQ(whole_events("data: x\n\ndata: y"), 9u);
  EXPECT_EQ(whole_events("data: x\r\n\r\ndata: y\r\n"), 11u);
  EXPECT_EQ(whole_events("a\n\nb\r\n\r\nc\n\nd"), 11u);
}

TEST(ErrorEvent, OnlyAWholeEventIsAnError) {
  EXPECT_EQ(error_event(""), "");
  EXPECT_EQ(error_event("data: {\"n\":1}\n\n"), "");
  EXPECT_EQ(error_event("data: {\"x\":\"data: {\"error\"\n\n"), "");
  EXPECT_EQ(error_event("event: a\ndata: {\"n\":\"data: {\"error\"\n\n"), "");
  EXPECT_EQ(error_event("data: {\"error\":1}\n\n"), "data: {\"error\":1}\n\n");
  EXPECT_EQ(error_event("data: {\"error\":1}\r\n\r\ndata: [DONE]\r\n\r\n"), "data: {\"error\":1}\r\n\r\n");
  EXPECT_EQ(error_event("data: 1\n\ndata: {\"error\":1}\n\ndata: [DONE]\n\n"), "data: {\"error\":1}\n\n");
}

TEST(Headers, HopByHopHeadersAreRemoved) {
  HttpRequest request;
  request.headers = {
      {"host", "h"},           {"connection", "close, X-Private"}, {"x-private", "1"}, {"accept", "*/*"},
      {"content-length", "5"}, {"transfer-encoding", "chunked"},   {"upgrade", "h2c"}, {"user-agent", "u"}};
  const HeaderList out = headers_for_worker(request);
  EXPECT_EQ(out, (HeaderList{{"accept", "*/*"}, {"user-agent", "u"}}));
  const HeaderList back = headers_for_client({{"content-type", "text/plain"},
                                              {"keep-alive", "5"},
                                              {"x-request-id", "theirs"},
                                              {"content-length", "3"},
                                              {"x-a", "1"}},
                                             {{"x-request-id", "ours"}});
  EXPECT_EQ(back, (HeaderList{{"x-request-id", "ours"}, {"content-type", "text/plain"}, {"x-a", "1"}}));
}

GatewaySettings settings_with(std::vector<std::string> urls) {
  GatewaySettings settings;
  settings.worker_urls = std::move(urls);
  return settings;
}

TEST(Config, EachWorkerUrlIsChecked) {
  EXPECT_TRUE(make_config(settings_with({"http://127.0.0.1:31000", "http://127.0.0.1:31001"})).ok());
  const struct {
    std::vector<std::string> urls;
    std::string says;
  } cases[] = {
      {{}, "worker_urls"},
      {{"http://a:1", "http://b:1", "http://a:1"}, "worker_urls[2]"},
      {{"http://a:1", "a:1"}, "twice"},
      {{"http://a:1", "https://a:1"}, "twice"},
      {{"http://a:1", "ftp://b:1"}, "worker_urls[1]"},
      {{"http://a:notaport"}, "worker_urls[0]"},
  };
  for (const auto& c : cases) {
    const auto config = make_config(settings_with(c.urls));
    ASSERT_FALSE(config.ok()) << c.says;
    EXPECT_NE(std::string(config.status().message()).find(c.says), std::string::npos)
        << config.status().ToString();
  }
}

TEST(Config, CommentedFileShowsEveryKeyAndDefault) {
  const std::string path = std::string(TROUPE_SOURCE_DIR) + "/configs/gateway.yaml";
  GatewaySettings from_file, defaults;
  SettingsSchema schema("troupe-gateway", ""), default_schema("troupe-gateway", "");
  describe_settings(from_file, schema);
  describe_settings(defaults, default_schema);
  const Status status = schema.load_yaml_file(path);
  ASSERT_TRUE(status.ok()) << status.ToString();
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  for (const std::string& key : schema.keys()) {
    const std::string leaf = key.substr(key.rfind('.') + 1);
    EXPECT_NE(text.str().find("\n" + std::string(key == leaf ? "" : "  ") + leaf + ":"), std::string::npos)
        << key;
  }
  from_file.worker_urls.clear();  // an example in the file, none by default
  EXPECT_EQ(schema.help(), default_schema.help()) << "a value in the file is not the default";
}

}  // namespace
}  // namespace troupe::gateway_test
