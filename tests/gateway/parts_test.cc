// The gateway's small pure parts: usage read in passing, whole events, headers, settings.

#include <algorithm>
#include <fstream>
#include <sstream>

#include "gateway/config.h"
#include "gateway/upstream/forward.h"
#include "gateway/upstream/headers.h"
#include "gateway/upstream/usage.h"
#include "tests/common/temp_dir.h"
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

TEST(UsageTap, ReadsEveryUsageOfAnApiThatHasSeveral) {
  const std::string opening =
      "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":9,"
      "\"cache_read_input_tokens\":3,\"output_tokens\":1}}}\n\n";
  const std::string end = "data: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":70}}\n\n";
  for (const bool at_once : {true, false}) {
    UsageTap tap;
    tap.read_every_usage();
    if (!at_once) tap.feed(opening);
    EXPECT_FALSE(tap.counts().has_value()) << "no answer is counted";
    if (!at_once) tap.feed("data: {\"text\":\"" + std::string(10'000, 'x') + "\"}\n\n");
    tap.feed(at_once ? opening + end : end);
    tap.feed("data: {\"type\":\"message_stop\"}\n\n");
    const auto counts = tap.counts();
    ASSERT_TRUE(counts.has_value()) << at_once;
    EXPECT_EQ(counts->prompt_tokens, 12);
    EXPECT_EQ(counts->completion_tokens, 70);
    EXPECT_EQ(counts->cached_tokens, 3);
  }
  UsageTap alone;
  alone.read_every_usage();
  alone.feed(end);
  EXPECT_FALSE(alone.counts().has_value()) << "its prompt is not counted";
}

// A tool's input has whatever names a model gives it; the answer's usage comes last.
TEST(UsageTap, ReadsTheLastOneThatIsValid) {
  UsageTap tap;
  tap.read_every_usage();
  tap.feed(
      R"({"content":[{"type":"tool_use","input":{"usage":{"input_tokens":1}}}],"usage":{"input_tokens":5,)"
      R"("output_tokens":2},"tools":[{"usage":{"type":"string"}}]})");
  const auto counts = tap.counts();
  ASSERT_TRUE(counts.has_value());
  EXPECT_EQ(counts->prompt_tokens, 5);
  EXPECT_EQ(counts->completion_tokens, 2);
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
  const std::vector<Choice> choices = {
      {.index = 0, .text = "usage", .finish = FinishReason::kStop, .logprobs = &logprobs},
      {.index = 1, .text = "usage", .finish = FinishReason::kStop, .logprobs = &logprobs}};
  const auto counts = counts_of(answer_json(header, choices, {12, 2, 8}));
  ASSERT_TRUE(counts.has_value());
  EXPECT_EQ(counts->prompt_tokens, 12);
  EXPECT_EQ(counts->completion_tokens, 2);
  EXPECT_EQ(counts->cached_tokens, 8);
  EXPECT_FALSE(counts_of(chunk_json(header, choices[0], false)).has_value());
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

TEST(WholeEvents, AreTheSameHoweverPiecesCutThem) {
  const std::string stream = "data: a\n\n: b\r\n\r\ndata: c\ndata: d\n\nrest\r\n";
  const size_t whole = stream.rfind("rest");
  for (size_t first = 1; first < 6; ++first) {
    EventHold hold(1 << 20);
    std::string passed;
    for (size_t at = 0, size = first; at < stream.size(); at += size, size = size % 5 + 1) {
      std::string piece = stream.substr(at, size);
      hold.keep_whole(piece);
      EXPECT_TRUE(piece.empty() || piece.ends_with("\n\n") || piece.ends_with("\r\n\r\n")) << piece;
      passed += piece;
    }
    EXPECT_EQ(passed, stream.substr(0, whole));
    EXPECT_EQ(hold.held(), stream.substr(whole));
  }
  EventHold small(4);
  std::string piece = "data: long";
  small.keep_whole(piece);
  EXPECT_EQ(piece, "data: long") << "one that is too long is passed on in parts";
}

TEST(StreamEvents, AnAnswersEndIsItsFinishReasonOrDone) {
  EXPECT_TRUE(ends_answer("data: {\"choices\":[{\"finish_reason\":\"stop\"}]}\n\n"));
  EXPECT_TRUE(ends_answer("data: {\"finish_reason\":null}\n\ndata: {\"finish_reason\" : \"length\"}\n\n"));
  EXPECT_TRUE(ends_answer("data: [DONE]\n\n"));
  EXPECT_TRUE(ends_answer("data: [DONE]\n\n", /*one_choice=*/false));
  EXPECT_FALSE(ends_answer("data: {\"choices\":[{\"finish_reason\":\"stop\"}]}\n\n", /*one_choice=*/false));
  EXPECT_TRUE(ends_answer("data:[DONE]\r\n\r\n"));
  EXPECT_FALSE(ends_answer("data: {\"choices\":[{\"delta\":{\"content\":\"ends with data: [DONE]\"}}]}\n\n"));
  EXPECT_TRUE(ends_answer("data: {\"text\":\"data: [DONE]\"}\n\ndata: [DONE]\n\n"));
  EXPECT_FALSE(ends_answer("data: {\"choices\":[{\"finish_reason\":null}]}\n\n"));
  EXPECT_FALSE(ends_answer("data: {\"text\":\"\\\"finish_reason\\\": \\\"stop\\\"\"}\n\n"));
  EXPECT_FALSE(ends_answer(""));
  EXPECT_FALSE(ends_answer("data: {\"finish_reason\""));
}

TEST(ErrorEvent, OnlyAWholeEventIsAnError) {
  EXPECT_EQ(error_event(""), "");
  EXPECT_EQ(error_event("data: {\"n\":1}\n\n"), "");
  EXPECT_EQ(error_event("data: {\"x\":\"data: {\"error\"\n\n"), "");
  EXPECT_EQ(error_event("data: {\"text\":\"error\"}\n\n"), "");
  EXPECT_EQ(error_event("data: {\"text\":\"\\\"error\\\"\",\"error\":null}\n\n"), "");
  for (const std::string event :
       {"data:{\"error\": {\"message\": \"boom\"}}\n\n", "event: error\ndata: {\"message\": \"boom\"}\n\n",
        "data: {\"id\": \"c\", \"error\": {\"message\": \"boom\"}}\n\n",
        "data: {\"object\": \"error\", \"message\": \"boom\", \"code\": 500}\n\n",
        "error: {\"code\": 500, \"message\": \"boom\"}\n\n", "event: error\r\ndata: boom\r\n\r\n"}) {
    EXPECT_EQ(error_event(event), event);
    EXPECT_EQ(error_event("data: {\"text\":\"an error\"}\n\n" + event + "data: [DONE]\n\n"), event);
    const StreamError parsed = parse_error_event(event);
    const auto json = parse_json(parsed.json);
    ASSERT_TRUE(json.ok()) << parsed.json;
    EXPECT_NE(parsed.json.find("boom"), std::string::npos) << parsed.json;
    EXPECT_TRUE(json->as_object().contains("error")) << parsed.json;
    EXPECT_EQ(parsed.status, event.find("500") != std::string::npos ? 500 : 502) << event;
  }
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
  request.headers = {{"x-api-key", "sk"},
                     {"api-key", "sk"},
                     {"cookie", "session=1"},
                     {"proxy-authorization", "p"},
                     {"x-api", "1"}};
  EXPECT_EQ(headers_for_worker(request), (HeaderList{{"x-api", "1"}})) << "secrets of the client's";
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
      {{"http://a:1", "http://A:1"}, "worker_urls[1]: http://a:1 is there twice"},
      {{"http://[::1]:1", "http://[0::0001]:1"}, "twice"},
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
    const auto depth = static_cast<size_t>(std::count(key.begin(), key.end(), '.'));
    EXPECT_NE(text.str().find("\n" + std::string(2 * depth, ' ') + leaf + ":"), std::string::npos) << key;
  }
  from_file.worker_urls.clear();  // an example in the file, none by default
  EXPECT_EQ(schema.help(), default_schema.help()) << "a value in the file is not the default";
}

// tests/fixtures/old_gateway.yaml is an earlier configs/gateway.yaml: operators have files like it.
TEST(Config, LoadsAnOlderFile) {
  GatewaySettings settings;
  SettingsSchema schema("troupe-gateway", "");
  describe_settings(settings, schema);
  const Status status = schema.load_yaml_file(TROUPE_SOURCE_DIR "/tests/fixtures/old_gateway.yaml");
  ASSERT_TRUE(status.ok()) << status.ToString();
  const auto config = make_config(settings);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->main_server.port, 30000);
  EXPECT_EQ(config->metrics_server.port, 29000);
  EXPECT_EQ(config->metrics_server.host, config->main_server.host);
  EXPECT_FALSE(config->fleet.workers.empty());
}

// The error of a file with a worker and these lines.
std::string config_error(const std::string& lines) {
  GatewaySettings settings;
  SettingsSchema schema("troupe-gateway", "");
  describe_settings(settings, schema);
  const Status status = schema.load_yaml("worker_urls: [http://127.0.0.1:1]\n" + lines, "f.yaml");
  EXPECT_TRUE(status.ok()) << status.ToString();
  return std::string(make_config(settings).status().message());
}

TEST(Config, SettingsThatCouldMatchNothingAreRefused) {
  const struct {
    std::string lines, says;
  } cases[] = {
      {"cors: {allowed_origins: ['http://a:80:90']}", "cors.allowed_origins: 'http://a:80:90' is no origin"},
      {"admin: {hosts: [b, 'http://a']}", "admin.hosts[1]: 'http://a' must be a name alone"},
      {"admin: {hosts: ['*.a']}", "admin.hosts[0]: '*.a' must be"},
      {"admin: {hosts: ['a:29000']}", "no scheme, port"},
      {"admin: {worker_urls_allowed: ['[']}", "admin.worker_urls_allowed: '[' must be such as"},
      {"access_log: on", "access_log: 'on' is no file"},
      {"access_log: 'False'", "stderr; for none leave it out"},
  };
  for (const auto& c : cases)
    EXPECT_NE(config_error(c.lines).find(c.says), std::string::npos) << config_error(c.lines);
  EXPECT_EQ(config_error("admin: {hosts: [gateway.example.com, A_b-1., '::1', 10.0.0.1]}\naccess_log: ./on"),
            "");
  EXPECT_EQ(config_error("access_log: off"), "");
}

TEST(Config, FilesThatAStartMakesAreCheckedAndNotMade) {
  const TempDir dir;
  const std::string made = dir.path() + "/made", missing = dir.path() + "/no/file";
  std::ofstream(dir.path() + "/torn") << "{\"troupe\":\"pins\",\"version\":1}\n{\"half";
  for (const std::string key : {"pins.file", "access_log", "record"}) {
    const auto check = [&key](const std::string& path) {
      GatewayConfig config;
      if (key == "pins.file") config.pins.file = path;
      if (key == "access_log") config.telemetry.access_log = path;
      if (key == "record") config.record = path;
      return std::string(check_files(config).message());
    };
    EXPECT_EQ(check(made), "") << key;
    EXPECT_FALSE(std::ifstream(made).is_open()) << key;
    for (const std::string& bad : {missing, dir.path(), dir.path() + "/torn/x"})
      EXPECT_EQ(check(bad).find(key + ": " + bad), 0u) << check(bad);
    const std::string torn = check(dir.path() + "/torn");
    EXPECT_EQ(torn.find("line 2") != std::string::npos, key == "pins.file") << torn;
    EXPECT_EQ(torn.empty(), key != "pins.file") << "it is appended to: " << torn;
  }
  EXPECT_TRUE(check_files(GatewayConfig()).ok());
}

// Returns the configuration of a file with a worker and these lines.
GatewayConfig config_of(const std::string& lines) {
  GatewaySettings settings;
  SettingsSchema schema("troupe-gateway", "");
  describe_settings(settings, schema);
  const Status status = schema.load_yaml("worker_urls: [http://127.0.0.1:1]\n" + lines, "f.yaml");
  EXPECT_TRUE(status.ok()) << status.ToString();
  auto config = make_config(settings);
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? *std::move(config) : GatewayConfig();
}

TEST(Config, BindsRoutingToTheRouterAndItsFollowers) {
  const GatewayConfig c = config_of(
      "mode: plan\nroute: {plan_interval_s: 0.5, anchors_max: 64, strict_sets: 3, node_kv_tokens: 2048,\n"
      "  sets_max: 77, gateways: 6}\ngossip: {interval_ms: 61}\n"
      "handover: {text_bytes: 0, at_once: 21, deadline_secs: 22, ramp_secs: 23}\n");
  EXPECT_EQ(c.router.affinity.mode, route::Mode::kPlan);
  EXPECT_FALSE(c.residency.enabled);
  EXPECT_EQ(c.router.planner.tick, 500ms);
  EXPECT_EQ(c.state.plan_tick, 500ms);
  EXPECT_EQ(c.router.sketch.anchors_max, 64u);
  EXPECT_EQ(c.router.sketch.sessions_max, 64u);
  EXPECT_EQ(c.router.planner.strict_sets, 3u);
  EXPECT_EQ(c.router.memory.node_kv_tokens_guess, 2048);
  EXPECT_EQ(c.router.memory.sets_max, 77u);
  EXPECT_EQ(c.fleet.sets_max, 77u);
  EXPECT_EQ(c.router.affinity.gateways, 6);
  EXPECT_EQ(c.gossip.rules.gateways, 6);
  EXPECT_EQ(c.gossip.rules.interval, 61ms);
  EXPECT_TRUE(c.gossip.rules.ledger);
  EXPECT_FALSE(c.router.affinity.peer_ledger) << "there is nobody to tell";
  EXPECT_EQ(c.migrator.text_bytes, 0u);
  EXPECT_FALSE(c.migrator.enabled);
  EXPECT_EQ(c.router.moves_at_once, 21u);
  EXPECT_EQ(c.migrator.deadline, 22s);
  EXPECT_EQ(c.fleet.ramp, 23s);
}

TEST(Config, BindsRequestSettingsToProxyAndFleet) {
  const GatewayConfig c = config_of(
      "request_timeout_secs: 7\nstream_heartbeat_timeout_ms: 201\nforeign_worker_silence_timeout_ms: 0\n"
      "foreign_worker_stall_timeout_ms: 3\nshutdown_grace_period_secs: 4\nshutdown_notice_secs: 2\n"
      "retry: {attempts_max: 5, resend_to_foreign: false}\nlog_level: warn\n"
      "probe: {interval_ms: 11, timeout_ms: 12, dead_after: 13, alive_after: 14}\n"
      "upstream: {connect_timeout_ms: 51, idle_connections: 52, idle_timeout_ms: 53}\n"
      "otlp: {endpoint: 'http://127.0.0.1:2', interval_ms: 71, timeout_ms: 72}\n");
  EXPECT_EQ(c.proxy.request_timeout, 7s);
  EXPECT_EQ(c.proxy.silence_max, 201ms);
  EXPECT_EQ(c.proxy.foreign_silence_max, 0ms);
  EXPECT_EQ(c.proxy.foreign_stall_max, 3ms);
  EXPECT_EQ(c.grace, 4s);
  EXPECT_EQ(c.notice, 2s);
  EXPECT_EQ(c.proxy.retry.attempts_max, 5);
  EXPECT_FALSE(c.proxy.resend_to_foreign);
  EXPECT_EQ(c.log_level, LogLevel::kWarn);
  EXPECT_EQ(c.prober.interval, 11ms);
  EXPECT_EQ(c.prober.timeout, 12ms);
  EXPECT_EQ(c.fleet.health.dead_after, 13);
  EXPECT_EQ(c.fleet.health.alive_after, 14);
  EXPECT_EQ(c.fleet.client.connect_timeout, 51ms);
  EXPECT_EQ(c.fleet.client.idle_connections_max, 52u);
  EXPECT_EQ(c.fleet.client.idle_timeout, 53ms);
  ASSERT_TRUE(c.telemetry.otlp.has_value());
  EXPECT_EQ(c.telemetry.otlp->interval, 71ms);
  EXPECT_EQ(c.telemetry.otlp->timeout, 72ms);
}

TEST(Config, BindsLimitsToTheirOwners) {
  const GatewayConfig c = config_of(
      "limits: {body_bytes: 1025, bodies_bytes: 1026, header_bytes: 1027, header_timeout_ms: 31,\n"
      "  body_timeout_ms: 32, idle_timeout_ms: 33, write_timeout_ms: 34, requests: 35,\n"
      "  tokenize_requests: 36, connections: 37, worker_requests: 38}\n"
      "admission: {worker_fill: 2, worker_requests: 41, foreign_worker_requests: 42, queue: 43,\n"
      "  queue_timeout_ms: 44, fair: false, requests: 45, tokens: 46, persona_requests: 47,\n"
      "  persona_tokens: 48}\n");
  const HttpServerOptions& http = c.main_server;
  EXPECT_EQ(http.body_bytes_max, 1025u);
  EXPECT_EQ(c.proxy.api.body_bytes_max, 1025u);
  EXPECT_EQ(c.metrics_server.body_bytes_max, kGossipBytesMax);
  EXPECT_EQ(http.bodies_bytes_max, 1026u);
  EXPECT_EQ(http.header_bytes_max, 1027u);
  EXPECT_EQ(http.header_timeout, 31ms);
  EXPECT_EQ(http.body_timeout, 32ms);
  EXPECT_EQ(http.idle_timeout, 33ms);
  EXPECT_EQ(http.write_timeout, 34ms);
  EXPECT_EQ(c.proxy.requests_max, 35u);
  EXPECT_EQ(c.proxy.text_requests_max, 36u);
  EXPECT_EQ(http.connections_max, 37u);
  EXPECT_EQ(c.metrics_server.connections_max, 256u);
  EXPECT_EQ(c.fleet.in_flight_max, 38);
  const route::PoolRoomOptions& room = c.admission_queue.room;
  EXPECT_EQ(room.fill, 2);
  EXPECT_EQ(room.worker_requests, 41);
  EXPECT_EQ(room.foreign_requests, 42);
  const route::AdmissionOptions& admission = c.admission_queue.admission;
  EXPECT_EQ(admission.queue_max, 43u);
  EXPECT_EQ(admission.wait_max, 44ms);
  EXPECT_FALSE(admission.fair);
  EXPECT_EQ(admission.total.requests, 45);
  EXPECT_EQ(admission.total.tokens, 46);
  EXPECT_EQ(admission.persona.requests, 47);
  EXPECT_EQ(admission.persona.tokens, 48);
}

}  // namespace
}  // namespace troupe::gateway_test
