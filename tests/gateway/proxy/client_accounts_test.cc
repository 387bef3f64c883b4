// Requests of a client beside chats, at the gateway: counts that cost nothing, prefixes and tokens by a
// route's name, personas that are read again or cannot be kept.

#include <fstream>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gateway/access/secret.h"
#include "tests/gateway/gateway_fixture.h"

namespace troupe::gateway_test {
namespace {

// Answers all that is asked here, as workers do.
Task<void> answer_any(StubWorker&, Exchange& exchange) {
  HeaderList headers;
  headers.emplace_back("content-type", "application/json");
  const std::string& path = exchange.request().path;
  std::string body = R"({"count":1,"max_model_len":9,"tokens":[7],"prompt":"a"})";
  if (path == "/v1/messages/count_tokens") body = R"({"input_tokens":7})";
  if (path == "/v1/prefixes")
    body = R"({"id":"prefix-0123456789abcdef0123456789abcdef","object":"prefix","model":"demo","tokens":64})";
  co_await exchange.respond(200, headers, std::move(body));
}

class ClientAccounts : public testing::Test {
 protected:
  void begin(GatewayConfig config, const std::string& owned_by = "troupe") {
    const bool ours = owned_by == "troupe";
    stub_.owned_by = owned_by;
    stub_.load_status = ours ? 200 : 404;
    stub_.load.epoch = "a life";
    auto routes = ModelRoutes::of({{"alias", {{"demo", 1}}}});
    ASSERT_TRUE(routes.ok());
    config.proxy.routes = *std::move(routes);
    gateway_ = std::make_unique<TestGateway>(loop_, std::vector<Upstream>{stub_.endpoint()}, config);
    EXPECT_TRUE(loop_.eventually([&] { return gateway_->gateway->fleet().is_troupe_worker(0) == ours; }));
  }
  Answer send(const std::string& method, const std::string& path, const std::string& body,
              const std::string& headers = "") {
    const std::string bytes = http_post(path, body, "authorization: Bearer key-payer\r\n" + headers);
    RawPeer peer = gateway_->connect();
    peer.send(method + bytes.substr(bytes.find(' ')));
    return read_answer(peer);
  }
  std::string model_seen() {
    return loop_.call([&] {
      const auto body = parse_json(stub_.seen.empty() ? "{}" : stub_.seen.back().body);
      return std::string(body->as_object().contains("model") ? body->at("model").as_string() : "");
    });
  }

  Loop loop_;
  StubWorker stub_{loop_, answer_any};
  std::unique_ptr<TestGateway> gateway_;
};

GatewayConfig with_key(const std::string& limits) {
  const Sha256 digest = sha256("key-payer");
  const std::string_view bytes(reinterpret_cast<const char*>(digest.data()), digest.size());
  GatewayConfig config = TestGateway::quick_config();
  config.api_keys = testing::TempDir() + "/client_accounts.yaml";
  std::ofstream(config.api_keys) << "payer:\n  sha256: \"" << absl::BytesToHexString(to_absl(bytes)) << "\"\n"
                                 << limits;
  config.proxy.names_users = true;
  config.telemetry.usage.totals = true;
  return config;
}

TEST_F(ClientAccounts, CountingTokensCostsNone) {
  const std::string text(4000, 'x');
  const std::string chat = R"({"model":"demo","max_tokens":9,"messages":[{"role":"user","content":")" + text;
  const std::pair<std::string, std::string> cases[] = {
      {"/tokenize", R"({"model":"demo","prompt":")" + text + "\"}"},
      {"/detokenize", R"({"model":"demo","tokens":[1,2,3,4,5,6,7,8,9]})"},
      {"/v1/token/encode", R"({"model":"demo","text":")" + text + "\"}"},
      {"/api/extra/tokencount", R"({"model":"demo","prompt":")" + text + "\"}"},
      {"/v1/messages/count_tokens", chat + "\"}]}"},
  };
  for (const std::string owned_by : {"troupe", "vllm"}) {
    begin(with_key("  tokens_per_day: 10\n"), owned_by);
    for (const auto& [path, body] : cases) {
      for (int i = 0; i < 3; ++i) {
        const Answer answer = send("POST", path, body);
        EXPECT_EQ(answer.status, 200) << owned_by << path << answer.body;
      }
    }
    EXPECT_TRUE(loop_.eventually([&] { return gateway_->gateway->proxy().requests_running() == 0; }));
    EXPECT_LE(gateway_->metric("troupe_gateway_key_tokens_total{key=\"payer\"}"), 0) << owned_by;
    const std::string totals = gateway_->admin("/admin/usage").body;
    EXPECT_NE(totals.find("\"prompt_tokens\":0"), std::string::npos) << totals;
    EXPECT_EQ(totals.find("\"prompt_tokens\":1"), std::string::npos) << totals;
    gateway_.reset();
  }
}

TEST_F(ClientAccounts, PrefixesAndTokensFollowRoutes) {
  begin(TestGateway::quick_config());
  const Answer prefix = send("POST", "/v1/prefixes", R"({"model":"alias","prompt":"Once upon a time"})");
  EXPECT_EQ(prefix.status, 200) << prefix.body;
  EXPECT_EQ(model_seen(), "demo");
  EXPECT_NE(prefix.body.find(R"("model":"alias")"), std::string::npos) << prefix.body;
  const Answer text = send("POST", "/detokenize", R"({"model":"alias","tokens":[1]})");
  EXPECT_EQ(text.status, 200) << text.body;
  EXPECT_EQ(model_seen(), "demo");
  const Answer persona =
      send("PUT", "/v1/personas/mira", R"({"card":"Mira is a smith.","model":"alias","prefill":true})");
  EXPECT_EQ(persona.status, 201) << persona.body;
  EXPECT_EQ(model_seen(), "demo");
  EXPECT_EQ(persona.body.find("\"error\""), std::string::npos) << persona.body;
}

TEST_F(ClientAccounts, APersonaThatTheClientHasIsNotSentAgain) {
  begin(TestGateway::quick_config());
  const Answer made = send("PUT", "/v1/personas/mira", R"({"card":"Mira is a smith."})");
  ASSERT_EQ(made.status, 201) << made.body;
  const std::string etag = made.header("etag");
  RawPeer peer = gateway_->connect();
  peer.send("GET /v1/personas/mira HTTP/1.1\r\nhost: t\r\nif-none-match: " + etag + "\r\n\r\n");
  const std::string head = peer.read_until("\r\n\r\n");
  EXPECT_EQ(head.substr(9, 3), "304") << head;
  EXPECT_NE(head.find("etag: " + etag), std::string::npos) << head;
  peer.send("GET /v1/personas/mira HTTP/1.1\r\nhost: t\r\nif-none-match: \"another\"\r\n\r\n");
  EXPECT_EQ(read_answer(peer).status, 200);
}

TEST_F(ClientAccounts, AStoreThatIsAwayIsNotDescribedToClients) {
  GatewayConfig config = TestGateway::quick_config();
  const Endpoint away = dead_endpoint(loop_);
  config.state.etcd.members = {away};
  begin(config);
  const Answer answer = send("PUT", "/v1/personas/mira", R"({"card":"Mira is a smith."})");
  EXPECT_EQ(answer.status, 503) << answer.body;
  EXPECT_FALSE(answer.header("retry-after").empty()) << answer.head;
  EXPECT_EQ(answer.body.find("etcd"), std::string::npos) << answer.body;
  EXPECT_EQ(answer.body.find(std::to_string(away.port)), std::string::npos) << answer.body;
}

}  // namespace
}  // namespace troupe::gateway_test
