// A gateway with API keys: answers to clients with no key, or a wrong one.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/api/prefix.h"
#include "tests/common/temp_dir.h"
#include "tests/gateway/gateway_fixture.h"

namespace troupe::gateway_test {
namespace {

using testing::HasSubstr;

std::string key_lines(const std::string& name, const std::string& settings = "") {
  const Sha256 digest = sha256("key-" + name);
  return absl::StrCat(name, ":\n  sha256: \"",
                      absl::BytesToHexString({reinterpret_cast<const char*>(digest.data()), digest.size()}),
                      "\"\n", settings);
}

std::string bearer(const std::string& name) {
  return "authorization: Bearer key-" + name + "\r\n";
}

class Locked : public ::testing::Test {
 protected:
  void start(std::vector<Upstream> workers, GatewayConfig config = TestGateway::quick_config()) {
    config.api_keys = folder_.write("keys.yaml", keys_);
    gateway_ = std::make_unique<TestGateway>(loop_, std::move(workers), config);
  }
  Answer send(const std::string& method, const std::string& path, const std::string& headers) const {
    RawPeer peer = gateway_->connect();
    peer.send(method + " " + path + " HTTP/1.1\r\nhost: t\r\n" + headers + "\r\n");
    return read_answer(peer);
  }
  double count(const std::string& name) const { return gateway_->metric("troupe_gateway_requests_" + name); }

  std::string keys_ = key_lines("writer");
  TempDir folder_;
  Loop loop_;
  StubWorker a_{loop_, answer_whole};
  std::unique_ptr<TestGateway> gateway_;
};

constexpr size_t kLargeBytes = 200'000;

std::string head_of_large(const std::string& path, const std::string& headers) {
  return "POST " + path + " HTTP/1.1\r\nhost: t\r\ncontent-length: " + std::to_string(kLargeBytes) + "\r\n" +
         headers + "\r\n";
}

TEST_F(Locked, BodyWithoutAKeyIsNotRead) {
  GatewayConfig config = TestGateway::quick_config();
  config.main_server.bodies_bytes_max = 2 * kLargeBytes;
  start({a_.endpoint()}, config);
  std::vector<RawPeer> strangers;
  for (const std::string path : {"/v1/chat/completions", "/v1/completions", "/v1/prefixes", "/tokenize"}) {
    for (const std::string& headers : {std::string(), bearer("stranger")}) {
      RawPeer& peer = strangers.emplace_back(gateway_->connect());
      peer.send(head_of_large(path, headers) + std::string(kLargeBytes - 1, 'x'));
      const Answer refused = read_answer(peer);
      EXPECT_EQ(refused.status, 401) << path;
      EXPECT_EQ(refused.header("www-authenticate"), "Bearer");
      EXPECT_EQ(refused.header("connection"), "close");
      EXPECT_NE(refused.header("x-request-id"), "");
      EXPECT_THAT(refused.body, HasSubstr(R"("code":"invalid_api_key")"));
    }
  }
  const std::string body = chat_body(std::string(kLargeBytes, 'p'), "Hi");
  EXPECT_EQ(gateway_->ask(body, bearer("writer")).status, 200);
  // Each is counted once, as any answer is.
  EXPECT_EQ(count("received_total"), 9);
  EXPECT_EQ(count("total{code=\"401\"}"), 8);
  EXPECT_EQ(gateway_->metric("troupe_gateway_malformed_total{code=\"401\"}"), -1);
}

TEST_F(Locked, ExpectContinueWithoutAKeyIsRefused) {
  start({a_.endpoint()});
  RawPeer stranger = gateway_->connect();
  stranger.send(head_of_large("/v1/chat/completions", "expect: 100-continue\r\n"));
  EXPECT_EQ(read_answer(stranger).status, 401);
  RawPeer writer = gateway_->connect();
  const std::string body = chat_body("p", "Hi");
  writer.send("POST /v1/chat/completions HTTP/1.1\r\nhost: t\r\nexpect: 100-continue\r\ncontent-length: " +
              std::to_string(body.size()) + "\r\n" + bearer("writer") + "\r\n");
  EXPECT_EQ(writer.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  writer.send(body);
  EXPECT_EQ(read_answer(writer).status, 200);
}

// A client that sends a small body with a wrong key may send the right one on the same connection.
TEST_F(Locked, ConnectionStaysOpenAfterARefusedSmallBody) {
  start({a_.endpoint()});
  RawPeer peer = gateway_->connect();
  peer.send(http_post("/v1/chat/completions", chat_body("p", "Hi")));
  EXPECT_EQ(read_answer(peer).status, 401);
  peer.send(http_post("/v1/chat/completions", chat_body("p", "Hi"), bearer("writer")));
  EXPECT_EQ(read_answer(peer).status, 200);
}

// A worker with one prefix, of one model.
struct PrefixKeeper {
  std::string id = prefix_id(Hash128{1, 2});
  std::string model = "demo";
  std::string owner;     // for whom it was computed; empty: the operator, and each may see it
  bool is_ours = false;  // it reports its load
  bool kept = true;
  bool waits = false;  // delays its answers about the prefix
  int asked = 0;
};

std::string state_of(const PrefixKeeper& keeper) {
  PrefixState state;
  state.hash = Hash128{1, 2};
  state.model = keeper.model;
  return prefix_json(state);
}

Task<void> keep_prefix(PrefixKeeper* keeper, Exchange& exchange) {
  const HttpRequest& request = exchange.request();
  HeaderList headers;
  headers.emplace_back("content-type", "application/json");
  std::string body = R"({"data":[]})";
  int status = 200;
  const std::string_view owner = request.header(kOwnerHeader);
  const bool may_see = owner.empty() || keeper->owner.empty() || keeper->owner == owner;
  if (request.path == "/v1/models") {
    body = R"({"object":"list","data":[{"id":"demo","object":"model"},{"id":"secret","object":"model"}]})";
  } else if (request.path == "/v1/load" && keeper->is_ours) {
    LoadReport report;
    report.epoch = "life";
    body = load_report_json(report);
  } else if (request.path == kPrefixesPath && request.method == "POST") {
    keeper->owner = owner;
    body = state_of(*keeper);
  } else if (request.path == std::string(kPrefixesPath) + "/" + keeper->id && keeper->kept && may_see) {
    keeper->asked += 1;
    Timer timer(exchange.executor());
    while (keeper->waits) {
      timer.expires_after(1ms);
      co_await timer.async_wait(use_task);
    }
    body = request.method == "DELETE" ? prefix_deleted_json(keeper->id) : state_of(*keeper);
    keeper->kept = request.method != "DELETE";
  } else if (request.path != "/readyz") {
    status = 404;
  }
  co_await exchange.respond(status, headers, std::move(body));
}

class LockedPrefixes : public Locked {
 protected:
  LockedPrefixes() { keys_ += key_lines("guest", "  models: [demo]\n"); }
  std::string path() const { return std::string(kPrefixesPath) + "/" + keeper_.id; }

  PrefixKeeper keeper_;
  TestServer worker_{loop_, [this](Exchange& exchange) { return keep_prefix(&keeper_, exchange); }};
};

TEST_F(LockedPrefixes, KeySeesAndDeletesPrefixesOfItsModelsOnly) {
  keeper_.model = "secret";
  start({worker_.endpoint()});
  const Answer none =
      send("GET", std::string(kPrefixesPath) + "/" + prefix_id(Hash128{3, 4}), bearer("guest"));
  for (const std::string method : {"GET", "DELETE"}) {
    const Answer hidden = send(method, path(), bearer("guest"));
    EXPECT_EQ(hidden.status, 404) << method << hidden.body;
    EXPECT_EQ(hidden.body.size(), none.body.size()) << "nothing tells that it is there";
  }
  EXPECT_TRUE(loop_.call([this] { return keeper_.kept; }));
  EXPECT_EQ(send("GET", path(), bearer("writer")).status, 200);
  EXPECT_EQ(send("DELETE", path(), bearer("writer")).status, 200);
  EXPECT_FALSE(loop_.call([this] { return keeper_.kept; }));
}

// A key without a tenant is an owner of its own: another key of the same model is not asked about, pinned or
// not.
TEST_F(LockedPrefixes, KeySeesAndDeletesOnlyWhatWasComputedForIt) {
  keeper_.is_ours = true;
  start({worker_.endpoint()});
  EXPECT_TRUE(loop_.eventually([this] { return gateway_->gateway->fleet().is_troupe_worker(0); }));
  RawPeer peer = gateway_->connect();
  peer.send(http_post(std::string(kPrefixesPath),
                      R"({"model":"demo","messages":[{"role":"system","content":"x"}]})", bearer("guest")));
  EXPECT_EQ(read_answer(peer).status, 200);
  EXPECT_NE(loop_.call([this] { return keeper_.owner; }), "")
      << "a worker knows whose it is without a pin, too";
  for (const std::string method : {"GET", "DELETE"})
    EXPECT_EQ(send(method, path(), bearer("writer")).status, 404) << method;
  EXPECT_TRUE(loop_.call([this] { return keeper_.kept; }));
  for (const std::string method : {"GET", "DELETE"})
    EXPECT_EQ(send(method, path(), bearer("guest")).status, 200) << method;
  EXPECT_FALSE(loop_.call([this] { return keeper_.kept; }));
}

// A worker that is not asked reveals nothing, not even that it does not answer.
TEST_F(LockedPrefixes, WorkerWithoutTheKeysModelsIsNotAsked) {
  keys_ += key_lines("outsider", "  models: [another]\n");
  start({worker_.endpoint()});
  EXPECT_EQ(send("DELETE", path(), bearer("outsider")).status, 404);
  EXPECT_EQ(loop_.call([this] { return keeper_.asked; }), 0);
}

TEST_F(LockedPrefixes, PrefixRequestCountsAgainstTheKeysLimits) {
  keys_ += key_lines("slow", "  requests_per_s: 0.01\n");
  start({worker_.endpoint()});
  EXPECT_EQ(send("GET", path(), bearer("slow")).status, 200);
  const Answer over = send("GET", path(), bearer("slow"));
  EXPECT_EQ(over.status, 429) << over.body;
  EXPECT_NE(over.header("retry-after"), "");
}

TEST_F(LockedPrefixes, ConcurrentPrefixRequestsAreBounded) {
  GatewayConfig config = TestGateway::quick_config();
  config.proxy.text_requests_max = 1;
  keeper_.waits = true;
  start({worker_.endpoint()}, config);
  RawPeer first = gateway_->connect();
  first.send("GET " + path() + " HTTP/1.1\r\nhost: t\r\n" + bearer("writer") + "\r\n");
  EXPECT_TRUE(loop_.eventually([this] { return keeper_.asked == 1; }));
  EXPECT_EQ(send("GET", path(), bearer("writer")).status, 429);
  loop_.call([this] { keeper_.waits = false; });
  EXPECT_EQ(read_answer(first).status, 200);
  EXPECT_EQ(send("GET", path(), bearer("writer")).status, 200);
}

class LockedAdmin : public Locked {
 protected:
  LockedAdmin() { keys_ += key_lines("chief", "  admin: true\n"); }
  std::string url_of_b() const { return R"({"url":"http://)" + b_.id() + "\"}"; }
  size_t members() {
    return loop_.call([this] { return gateway_->gateway->fleet().member_count(); });
  }

  StubWorker b_{loop_, answer_whole};
};

TEST_F(LockedAdmin, OnlyAnAdminKeyChangesTheFleet) {
  start({a_.endpoint()});
  const std::string drain = "/admin/workers/" + a_.id() + "/drain";
  for (const std::string& headers : {std::string(), bearer("stranger"), bearer("writer")}) {
    const int status = headers == bearer("writer") ? 403 : 401;
    for (const std::string method : {"POST", "DELETE"})
      EXPECT_EQ(gateway_->admin_send(method, "/admin/workers", url_of_b(), headers).status, status);
    EXPECT_EQ(gateway_->admin_send("POST", drain, "", headers).status, status);
    const Answer explained = gateway_->admin_send("POST", "/admin/explain", chat_body("p", "Hi"), headers);
    EXPECT_EQ(explained.status, status);
    EXPECT_EQ(explained.header("www-authenticate"), status == 401 ? "Bearer" : "");
    EXPECT_THAT(explained.body, HasSubstr(status == 401 ? "API key" : "admin: true"));
  }
  EXPECT_EQ(members(), 1u);
  EXPECT_EQ(gateway_->worker_state(0), "ready");
  EXPECT_EQ(gateway_->admin_send("POST", "/admin/workers", url_of_b(), bearer("chief")).status, 200);
  EXPECT_EQ(members(), 2u);
  for (const char* open : {"/metrics", "/livez", "/readyz", "/admin/workers", "/admin/table"})
    EXPECT_EQ(gateway_->admin(open).status, 200) << open;
  const Answer other = gateway_->admin_send("POST", "/admin/explain", chat_body("p", "Hi"),
                                            bearer("chief") + "x-troupe-key: writer\r\n");
  EXPECT_THAT(other.body, HasSubstr(R"("api_key":"writer")"));
  const Answer nobody = gateway_->admin_send("POST", "/admin/explain", chat_body("p", "Hi"),
                                             bearer("chief") + "x-troupe-key: ghost\r\n");
  EXPECT_EQ(nobody.status, 400);
  EXPECT_THAT(nobody.body, HasSubstr("x-troupe-key"));
}

TEST_F(LockedAdmin, BodyWithoutAKeyIsNotReadAtTheAdminPort) {
  start({a_.endpoint()});
  for (const std::string path : {"/admin/explain", "/admin/workers", "/metrics", "/nowhere"}) {
    RawPeer stranger = RawPeer::connect(gateway_->gateway->metrics_port());
    stranger.send(head_of_large(path, ""));
    const Answer refused = read_answer(stranger);
    EXPECT_EQ(refused.header("connection"), "close") << path;
    EXPECT_GE(refused.status, 400) << path;
  }
}

TEST_F(LockedAdmin, ClientCertificateReplacesAnAdminKey) {
  GatewayConfig config = TestGateway::quick_config();
  config.metrics_demands_certificates = true;
  start({a_.endpoint()}, config);
  EXPECT_EQ(gateway_->admin_send("POST", "/admin/workers", url_of_b()).status, 200);
}

TEST(ExposedEndpoints, EndpointsOpenToStrangersAreListed) {
  const TempDir folder;
  GatewaySettings settings;
  settings.worker_urls = {"http://127.0.0.1:1"};
  const auto doors = [&settings] {
    const auto config = make_config(settings);
    EXPECT_TRUE(config.ok()) << config.status();
    return exposed_endpoints(*config);
  };
  EXPECT_EQ(doors().open + doors().close, "");
  settings.main_server.host = "0.0.0.0";
  EXPECT_THAT(doors().open, testing::AllOf(HasSubstr("/admin)"), HasSubstr("/admin/gossip")));
  EXPECT_THAT(doors().close, testing::AllOf(HasSubstr("api_keys"), HasSubstr("gossip.secret"),
                                            HasSubstr("metrics_host: 127.0.0.1")));
  settings.api_keys = folder.write("keys.yaml", key_lines("writer"));
  EXPECT_THAT(doors().open, testing::Not(HasSubstr("/admin)")));
  EXPECT_THAT(doors().close, testing::Not(HasSubstr("api_keys")));
  settings.gossip_secret = folder.write("secret", "short");
  EXPECT_THAT(std::string(make_config(settings).status().message()), HasSubstr("gossip.secret: "));
  settings.gossip_secret = folder.write("secret", "sixteen bytes or more");
  EXPECT_EQ(doors().open + doors().close, "");
  settings.gossip_secret = settings.api_keys = "";
  settings.metrics_server.host = "127.0.0.1";
  EXPECT_EQ(doors().open, "");
}

// Addresses of workers are an operator's.
TEST_F(Locked, OnlyAdminsSeeAddressesOfWorkers) {
  keys_ += key_lines("boss", "  admin: true\n");
  start({a_.endpoint()});
  const std::string body = chat_body("a persona", "x");
  const std::string name = gateway_->ask(body, bearer("writer")).route("node");
  EXPECT_THAT(name, testing::MatchesRegex("node-[0-9a-f]+"));
  EXPECT_EQ(gateway_->ask(body, bearer("writer")).route("node"), name);
  EXPECT_EQ(gateway_->ask(body, bearer("boss")).route("node"), a_.id());
  EXPECT_THAT(gateway_->admin("/admin/workers").body, HasSubstr("\"name\":\"" + name + "\""));
}

}  // namespace
}  // namespace troupe::gateway_test
