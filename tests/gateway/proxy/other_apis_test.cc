// The Responses and the Messages API, which pass as they come: what the gateway does for their clients as
// for those of chats, and in their forms.

#include <gmock/gmock.h>

#include <fstream>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gateway/access/secret.h"
#include "tests/gateway/gateway_fixture.h"

namespace troupe::gateway_test::other_apis {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string kMessages = "/v1/messages", kResponses = "/v1/responses";
const std::string kEvents = "text/event-stream", kJson = "application/json";

std::string event(const std::string& type, const std::string& members) {
  return absl::StrCat("event: ", type, "\ndata: {\"type\":\"", type, "\",", members, "}\n\n");
}

// An answer to a stream request, in parts, and a whole one. Each counts 330 tokens of the prompt, of which 30
// were cached, and 77 of the answer.
struct Api {
  std::string path, opening, text, end, whole;
};

Api messages() {
  const std::string prompt =
      R"("input_tokens":200,"cache_read_input_tokens":30,"cache_creation_input_tokens":100)";
  return {kMessages,
          event("message_start", R"("message":{"content":[],"usage":{)" + prompt + R"(,"output_tokens":1}})"),
          event("content_block_delta", R"("delta":{"type":"text_delta","text":"\"usage\":{}"})"),
          event("message_delta", R"("delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":77})") +
              event("message_stop", R"("n":1)"),
          R"({"type":"message","content":[{"type":"text","text":"a"}],"stop_reason":"end_turn","usage":{)" +
              prompt + R"(,"output_tokens":77}})"};
}

Api responses() {
  const std::string usage =
      R"("usage":{"input_tokens":330,"input_tokens_details":{"cached_tokens":30},"output_tokens":77},"metadata":{"a":")" +
      std::string(5000, 'm') + "\"}";  // far from the end
  return {kResponses,
          event("response.created", R"("response":{"usage":{"input_tokens":0,"output_tokens":0}})"),
          event("response.output_text.delta", R"("delta":"a")"),
          event("response.completed", R"("response":{"status":"completed",)" + usage + "}"),
          R"({"object":"response","status":"completed","output":[{"type":"message"}],)" + usage + "}"};
}

Task<void> say(Exchange& exchange, std::string type, std::vector<std::string> pieces, Duration pause) {
  HeaderList headers;
  headers.emplace_back("content-type", type);
  co_await exchange.start(200, headers);
  Timer timer(exchange.executor());
  for (const std::string& piece : pieces) {
    co_await exchange.write(piece);
    if (pause == Duration::zero()) continue;
    timer.expires_after(pause);
    co_await timer.async_wait(use_task);
  }
  co_await exchange.finish();
}

StubAnswer says(const std::string& type, const std::vector<std::string>& pieces, Duration pause = {}) {
  return [=](StubWorker&, Exchange& exchange) { return say(exchange, type, pieces, pause); };
}

Task<void> break_off(Exchange& exchange, std::string type) {
  HeaderList headers;
  headers.emplace_back("content-type", type);
  co_await exchange.start(200, headers);
  co_await exchange.write("half");
  exchange.cut();
}

std::string body_of(bool stream) {
  return std::string(R"({"model":"demo","messages":[],"stream":)") + (stream ? "true}" : "false}");
}

class OtherApis : public ::testing::Test {
 protected:
  // Requests at most until the stub is asked, too. (Where one goes hangs on the ports.)
  static constexpr int kAskedMax = 200;

  size_t seen_count() {
    return loop_.call([&] { return stub_.seen.size(); });
  }
  void answer_with(StubAnswer answer) {
    loop_.call([&] { stub_.answer = std::move(answer); });
  }
  // With one key, "key-payer", of 1000 tokens a minute.
  GatewayConfig with_key() {
    const Sha256 digest = sha256("key-payer");
    const std::string_view bytes(reinterpret_cast<const char*>(digest.data()), digest.size());
    GatewayConfig config = TestGateway::quick_config();
    config.api_keys = testing::TempDir() + "/other_apis.yaml";
    std::ofstream(config.api_keys) << "payer:\n  sha256: \"" << absl::BytesToHexString(to_absl(bytes))
                                   << "\"\n  tokens_per_min: 1000\n";
    return config;
  }
  Answer post(const TestGateway& gateway, const std::string& path, const std::string& body,
              const std::string& headers = "authorization: Bearer key-payer\r\n") const {
    RawPeer peer = gateway.connect();
    peer.send(http_post(path, body, headers));
    return read_answer(peer);
  }
  double charged(const TestGateway& gateway) {
    EXPECT_TRUE(loop_.eventually([&] { return gateway.gateway->proxy().requests_running() == 0; }));
    return gateway.metric("troupe_gateway_key_tokens_total{key=\"payer\"}");
  }

  Loop loop_;
  StubWorker stub_{loop_, answer_whole};
};

TEST_F(OtherApis, AreChargedByTheirWorkersCounts) {
  for (const Api& api : {messages(), responses()}) {
    for (const bool stream : {false, true}) {
      answer_with(stream ? says(kEvents, {api.opening, api.text, api.end}) : says(kJson, {api.whole}));
      TestGateway gateway(loop_, {stub_.endpoint()}, with_key());
      for (int n = 1; n <= 3; ++n) {
        EXPECT_EQ(post(gateway, api.path, body_of(stream)).status, 200) << api.path << n;
        EXPECT_EQ(charged(gateway), 407.0 * n) << api.path << stream;
      }
      EXPECT_EQ(gateway.metric("troupe_gateway_cached_tokens_actual_total"), 90) << api.path << stream;
      const Answer over = post(gateway, api.path, body_of(stream));
      EXPECT_EQ(over.status, 429) << over.body;
      EXPECT_THAT(over.body, HasSubstr("tokens a minute"));
    }
  }
}

// The first event counts one token of the answer, whatever came after it.
TEST_F(OtherApis, StreamThatIsCutIsChargedAboutWhatCame) {
  for (const Api& api : {messages(), responses()}) {
    std::vector<std::string> pieces{api.opening};
    for (int i = 0; i < 50; ++i) pieces.push_back(api.text);
    answer_with(says(kEvents, pieces));
    TestGateway gateway(loop_, {stub_.endpoint()}, with_key());
    EXPECT_EQ(post(gateway, api.path, body_of(true)).status, 200);
    EXPECT_NEAR(charged(gateway), static_cast<double>(body_of(true).size() / 4) + 51, 1) << api.path;
  }
}

// Their bodies have pictures and tools: what a chat's prompt comes to is not learned from them.
TEST_F(OtherApis, TeachNothingAboutTheLengthsOfChats) {
  answer_with(says(kJson, {messages().whole}));
  TestGateway gateway(loop_, {stub_.endpoint()});
  const std::string body = R"({"model":"demo","messages":[],"picture":")" + std::string(400'000, 'p') + "\"}";
  EXPECT_EQ(post(gateway, kMessages, body, "").status, 200);
  route::PrefixKey key;
  key.prompt_bytes = 4000;
  EXPECT_EQ(loop_.call([&] { return gateway.gateway->router().prompt_tokens(key); }), 1000);
}

bj::object json_of(const std::string& body) {
  const auto value = parse_json(body);
  EXPECT_TRUE(value.ok()) << body;
  return value.ok() && value->is_object() ? value->get_object() : bj::object();
}

// The error event that ends a stream: its data, without the line break behind it.
bj::object last_event(const std::string& stream) {
  const std::string begin = "event: error\ndata: ";
  const size_t at = stream.rfind(begin);
  EXPECT_NE(at, std::string::npos) << stream;
  EXPECT_TRUE(stream.ends_with("}\n\n")) << stream;
  return at == std::string::npos ? bj::object() : json_of(stream.substr(at + begin.size()));
}

void expect_messages_error(const bj::object& body, const std::string& type) {
  ASSERT_TRUE(body.contains("error")) << to_json(body);
  EXPECT_EQ(body.at("type"), "error");
  const bj::object& error = body.at("error").as_object();
  EXPECT_EQ(error.at("type"), bj::string_view(type)) << to_json(body);
  EXPECT_FALSE(error.at("message").as_string().empty());
}

// Anthropic's SDK skips an event without a type that it knows.
TEST_F(OtherApis, StreamThatIsCutEndsInTheirForms) {
  for (const Api& api : {messages(), responses()}) {
    answer_with(says(kEvents, {api.opening, api.text}));
    TestGateway gateway(loop_, {stub_.endpoint()});
    const Answer cut = post(gateway, api.path, body_of(true));
    EXPECT_TRUE(cut.body.starts_with(api.opening + api.text)) << cut.body;
    const bj::object data = last_event(cut.body);
    if (api.path == kMessages) {
      expect_messages_error(data, "overloaded_error");
      continue;
    }
    EXPECT_EQ(data.at("type"), "error");
    EXPECT_EQ(data.at("code"), "unavailable");
    EXPECT_THAT(std::string(data.at("message").as_string()), HasSubstr("broke off"));
    EXPECT_TRUE(data.at("param").is_null());
    EXPECT_EQ(data.at("sequence_number"), 2);
  }
}

TEST_F(OtherApis, ClientIsKeptAliveWhileEventsAreHeld) {
  GatewayConfig config = TestGateway::quick_config();
  config.proxy.sse_keepalive = 20ms;
  for (const Api& api : {messages(), responses()}) {
    answer_with(says(kEvents, {event("ping", "\"n\":1"), api.opening, api.text, api.end}, 60ms));
    TestGateway gateway(loop_, {stub_.endpoint()}, config);
    const Answer answer = post(gateway, api.path, body_of(true));
    EXPECT_TRUE(answer.body.starts_with(": keep-alive\n\n")) << answer.body;
    EXPECT_THAT(answer.body, HasSubstr(api.opening + api.text)) << "what was held came at once";
    EXPECT_TRUE(answer.body.ends_with(api.end) || answer.body.ends_with(": keep-alive\n\n")) << answer.body;
    EXPECT_EQ(gateway.metric("troupe_gateway_broken_answers_total"), 0);
  }
}

TEST_F(OtherApis, FailuresAfterACommentAreEventsInTheirForms) {
  GatewayConfig config = TestGateway::quick_config();
  config.proxy.sse_keepalive = 5ms;
  for (const std::string& path : {kMessages, kResponses}) {
    answer_with(says(kEvents, {": wait\n\n"}, 60ms));  // and no answer
    TestGateway gateway(loop_, {stub_.endpoint()}, config);
    const Answer answer = post(gateway, path, body_of(true));
    EXPECT_EQ(answer.status, 200);
    const bj::object data = last_event(answer.body);
    EXPECT_EQ(data.at("type"), "error");
    if (path == kMessages) {
      expect_messages_error(data, "api_error");
    } else {
      EXPECT_EQ(data.at("code"), "bad_gateway");
    }
  }
}

TEST_F(OtherApis, RefusalsHaveTheFormOfTheMessagesApi) {
  TestGateway gateway(loop_, {stub_.endpoint()}, with_key());
  const auto expect = [&](const std::string& path, const std::string& body, int status,
                          const std::string& type) {
    const Answer answer = post(gateway, path, body);
    EXPECT_EQ(answer.status, status) << answer.body;
    expect_messages_error(json_of(answer.body), type);
  };
  expect(kMessages, R"({"model":5})", 400, "invalid_request_error");
  expect(kMessages + "/count_tokens", R"({"model":"none"})", 404, "not_found_error");
  for (const auto& [status, type] :
       std::vector<std::pair<int, std::string>>{{401, "authentication_error"}, {429, "rate_limit_error"}}) {
    answer_with(answer_status(status));
    expect(kMessages, body_of(false), status, type);
  }
  const std::string own =
      R"({"type":"error","error":{"type":"overloaded_error","message":"a"},"request_id":"r"})";
  answer_with(says(kJson, {own}));
  EXPECT_EQ(post(gateway, kMessages, body_of(false)).body, own);
  EXPECT_THAT(post(gateway, kResponses, R"({"model":5})").body, Not(HasSubstr("\"type\":\"error\"")));
  EXPECT_EQ(json_of(post(gateway, kMessages, body_of(false), "").body).at("type"), "error")
      << "without a key";
}

TEST_F(OtherApis, KeyComesInTheHeaderOfWhicheverClient) {
  answer_with(says(kJson, {messages().whole}));
  TestGateway gateway(loop_, {stub_.endpoint()}, with_key());
  const auto status = [&](const std::string& headers) {
    return post(gateway, kMessages, body_of(false), headers).status;
  };
  EXPECT_EQ(status("x-api-key: key-payer\r\n"), 200);
  EXPECT_EQ(status("Api-Key: key-payer\r\n"), 200);
  for (const HttpRequest& request : loop_.call([&] { return stub_.seen; })) {
    for (const auto& [name, value] : request.headers)
      EXPECT_THAT(value, Not(HasSubstr("key-payer"))) << name << ": no worker gets it";
  }
  EXPECT_EQ(charged(gateway), 2 * 407);
  for (const std::string wrong :
       {"x-api-key: key-other\r\n", "api-key: Bearer key-payer\r\n", "api-key: \r\n",
        "authorization: Bearer key-other\r\nx-api-key: key-payer\r\n"})
    EXPECT_EQ(status(wrong), 401) << wrong;
}

// A player begins with the first bytes; and so much sound is held nowhere.
TEST_F(OtherApis, SoundPassesFromItsFirstByteOn) {
  for (const std::string type : {"audio/mpeg", "Audio/PCM", "application/octet-stream"}) {
    answer_with(says(type, {"first", "second"}, 300ms));
    TestGateway gateway(loop_, {stub_.endpoint()});
    RawPeer peer = gateway.connect();
    peer.send(http_post("/v1/audio/speech", R"({"model":"demo","input":"x"})"));
    peer.read_until("first");
    EXPECT_EQ(loop_.call([&] { return stub_.running; }), 1) << "it came whole";
    EXPECT_NE(peer.read_until("second\r\n0\r\n\r\n"), "") << type;
  }
}

TEST_F(OtherApis, SoundCostsAKeyNoTokensOfItsBytes) {
  const std::string sound(100'000, 's');
  answer_with(says("audio/mpeg", {sound}));
  TestGateway gateway(loop_, {stub_.endpoint()}, with_key());
  EXPECT_EQ(post(gateway, "/v1/audio/speech", R"({"model":"demo","input":"x"})").body.size(), sound.size());
  const double spoken = charged(gateway);
  EXPECT_LT(spoken, 20);
  answer_with(says("text/plain", {"words"}));
  const std::string part = "--x\r\ncontent-disposition: form-data; name=\"";
  const std::string form =
      part + "model\"\r\n\r\ndemo\r\n" + part + "file\"; filename=\"a\"\r\n\r\n" + sound + "\r\n--x--\r\n";
  RawPeer peer = gateway.connect();
  peer.send(
      "POST /v1/audio/transcriptions HTTP/1.1\r\nhost: t\r\nauthorization: Bearer key-payer\r\n"
      "content-type: multipart/form-data; boundary=x\r\ncontent-length: " +
      std::to_string(form.size()) + "\r\n\r\n" + form);
  const Answer transcript = read_answer(peer);
  EXPECT_EQ(transcript.status, 200) << transcript.body;
  EXPECT_LT(charged(gateway) - spoken, 20);
}

TEST_F(OtherApis, TextAndJsonAreReadBeforeTheyPass) {
  StubWorker good(loop_, says("text/plain", {"words"}));
  for (const std::string type : {"application/json", "text/plain", "application/problem+json"}) {
    answer_with([type](StubWorker&, Exchange& exchange) { return break_off(exchange, type); });
    TestGateway gateway(loop_, {stub_.endpoint(), good.endpoint()});
    const size_t before = seen_count();
    for (int i = 0; i < kAskedMax && seen_count() == before; ++i) {
      const std::string body = absl::StrCat(R"({"model":"demo","user":")", i, "\"}");
      EXPECT_EQ(post(gateway, "/v1/audio/transcriptions", body).body, "words") << type;
    }
    EXPECT_GT(seen_count(), before) << type;
  }
}

TEST_F(OtherApis, AnswerThatIsNoneIsAskedOfTheNextWorker) {
  const std::string page = "<html>502", good_answer = R"({"data":[{"embedding":[0.5]}]})";
  for (const auto& [type, body] : {std::pair<std::string, std::string>{"text/html", page},
                                   {kJson, ""},
                                   {kJson, "null"},
                                   {kJson, "{}"},
                                   {kJson, R"({"data":[{"emb)"}}) {
    answer_with(says(type, {body}));
    StubWorker good(loop_, says(kJson, {good_answer}));
    TestGateway both(loop_, {stub_.endpoint(), good.endpoint()});
    const size_t before = seen_count();
    for (int i = 0; i < kAskedMax && seen_count() == before; ++i) {
      const std::string asked = R"({"model":"demo","user":")" + std::to_string(i) + "\"}";
      EXPECT_EQ(post(both, "/v1/embeddings", asked, "").body, good_answer) << body;
    }
    EXPECT_GT(seen_count(), before) << body << ": nothing was shown";
    TestGateway alone(loop_, {stub_.endpoint()});
    EXPECT_EQ(post(alone, "/v1/embeddings", R"({"model":"demo"})", "").status, 502) << body;
  }
}

}  // namespace
}  // namespace troupe::gateway_test::other_apis
