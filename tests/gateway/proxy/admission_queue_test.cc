// The queue in front of the workers, as clients and workers see it.

#include "gateway/proxy/admission_queue.h"

#include <fstream>
#include <map>
#include <set>
#include <thread>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gateway/access/tenant.h"
#include "tests/gateway/gateway_fixture.h"

namespace troupe::gateway_test {
namespace {

// Answers once the test says so.
Task<void> answer_when_released(bool& released, StubWorker& stub, Exchange& exchange) {
  Timer timer(exchange.executor());
  while (!released) {
    timer.expires_after(1ms);
    co_await timer.async_wait(use_task);
  }
  co_await answer_whole(stub, exchange);
}

class Queue : public testing::Test {
 protected:
  static GatewayConfig config_of(int64_t worker_requests, size_t queue) {
    GatewayConfig config = TestGateway::quick_config();
    config.admission_queue.room.worker_requests = worker_requests;
    config.admission_queue.admission.queue_max = queue;
    return config;
  }
  void begin(const GatewayConfig& config) {
    gateway = std::make_unique<TestGateway>(loop, std::vector<Upstream>{stub.endpoint()}, config);
  }
  // Sends a request and does not wait for its answer.
  RawPeer send(const std::string& question, const std::string& headers = "", const std::string& fields = "") {
    RawPeer peer = gateway->connect();
    std::string body = chat_body("A persona", question);
    if (!fields.empty()) body.insert(body.size() - 1, "," + fields);
    peer.send(http_post("/v1/chat/completions", body, headers));
    return peer;
  }
  void release() {
    loop.call([this] { released = true; });
  }
  bool runs(int count) {
    return loop.eventually([this, count] { return stub.running == count; });
  }
  bool waits(size_t count) {
    return loop.eventually([this, count] { return waiting() == count; });
  }
  size_t waiting() { return gateway->gateway->admission_queue().admission().waiting(); }

  Loop loop;
  bool released = false;
  StubWorker stub{loop, [this](StubWorker& s, Exchange& e) { return answer_when_released(released, s, e); }};
  std::unique_ptr<TestGateway> gateway;
};

TEST_F(Queue, RequestWithoutRoomWaitsAndIsAnswered) {
  begin(config_of(1, 10));
  RawPeer first = send("first");
  ASSERT_TRUE(runs(1));
  RawPeer second = send("second"), third = send("third", "", R"("priority":2)");
  ASSERT_TRUE(waits(2));
  EXPECT_EQ(gateway->metric("troupe_gateway_queue_length{priority=\"0\"}"), 1);
  EXPECT_EQ(gateway->metric("troupe_gateway_queue_length{priority=\"2\"}"), 1);
  EXPECT_GT(gateway->metric("troupe_gateway_tokens_in_flight"), 0);
  const Answer explained = gateway->explain(chat_body("A persona", "me too"));
  EXPECT_NE(explained.body.find(R"("admission":{"outcome":"waiting")"), std::string::npos) << explained.body;
  release();
  for (RawPeer* peer : {&first, &second, &third}) EXPECT_EQ(read_answer(*peer).status, 200);
  ASSERT_EQ(stub.seen.size(), 3u);
  EXPECT_TRUE(
      loop.eventually([this] { return gateway->gateway->admission_queue().admission().running() == 0; }));
  EXPECT_EQ(gateway->metric("troupe_gateway_queue_length{priority=\"0\"}"), 0);
  EXPECT_EQ(gateway->metric("troupe_gateway_queue_seconds_count"), 2);
  EXPECT_EQ(gateway->metric("troupe_gateway_tokens_in_flight"), 0);
}

TEST_F(Queue, FullQueueAndExpiredDeadlineAreErrors) {
  begin(config_of(1, 1));
  RawPeer first = send("first");
  ASSERT_TRUE(runs(1));
  RawPeer late = send("late", "x-request-timeout-ms: 150\r\n");
  ASSERT_TRUE(waits(1));
  const Answer refused = gateway->ask(chat_body("A persona", "too many"));
  EXPECT_EQ(refused.status, 429);
  EXPECT_GE(std::atoi(refused.header("retry-after").c_str()), 1);
  EXPECT_LE(std::atoi(refused.header("retry-after").c_str()), 120);
  const Answer deadline = read_answer(late);
  EXPECT_EQ(deadline.status, 504);
  EXPECT_NE(deadline.body.find("before a worker had room"), std::string::npos) << deadline.body;
  EXPECT_EQ(gateway->metric("troupe_gateway_queue_refused_total{reason=\"queue_full\"}"), 1);
  EXPECT_EQ(gateway->metric("troupe_gateway_queue_refused_total{reason=\"deadline\"}"), 1);
  EXPECT_EQ(stub.seen.size(), 1u) << "no worker was bothered with it";
  release();
  EXPECT_EQ(read_answer(first).status, 200);
}

TEST_F(Queue, DisconnectedClientLeavesTheQueueAtOnce) {
  begin(config_of(1, 10));
  RawPeer first = send("first");
  ASSERT_TRUE(runs(1));
  {
    RawPeer gone = send("gone");
    ASSERT_TRUE(waits(1));
  }
  EXPECT_TRUE(waits(0));
  RawPeer second = send("second");
  ASSERT_TRUE(waits(1));
  release();
  EXPECT_EQ(read_answer(first).status, 200);
  EXPECT_EQ(read_answer(second).status, 200);
  EXPECT_EQ(stub.seen.size(), 2u);
}

TEST_F(Queue, RaisedLimitsAdmitWaitingRequests) {
  begin(config_of(1, 10));
  RawPeer first = send("first"), second = send("second");
  ASSERT_TRUE(waits(1));
  GatewayConfig larger = config_of(2, 10);
  larger.fleet.workers = {stub.endpoint()};
  loop.call([&] { EXPECT_TRUE(gateway->gateway->change(larger).ok()); });
  EXPECT_TRUE(runs(2));
  release();
  EXPECT_EQ(read_answer(first).status, 200);
  EXPECT_EQ(read_answer(second).status, 200);
}

TEST_F(Queue, DrainEndsTheQueueWithinHalfTheGrace) {
  GatewayConfig config = config_of(1, 10);
  config.grace = 2s;
  begin(config);
  RawPeer first = send("first");
  ASSERT_TRUE(runs(1));
  RawPeer second = send("second");
  ASSERT_TRUE(waits(1));
  gateway->drain();
  const Answer told = read_answer(second);
  EXPECT_EQ(told.status, 503);
  EXPECT_EQ(told.header("connection"), "close");
  EXPECT_NE(told.body.find("shutting down"), std::string::npos) << told.body;
}

TEST_F(Queue, NoRequestWaitsForAbsentWorkers) {
  begin(config_of(1, 10));
  RawPeer first = send("first"), second = send("second");
  ASSERT_TRUE(waits(1));
  loop.call([this] { stub.ready_status = 503; });
  EXPECT_EQ(read_answer(second).status, 503);
  release();
  EXPECT_EQ(read_answer(first).status, 200);
}

TEST_F(Queue, RequestForSeveralAnswersTakesAsManyPlaces) {
  begin(config_of(4, 10));
  RawPeer several = send("several", "", R"("n":4)");
  ASSERT_TRUE(runs(1));
  RawPeer next = send("next");
  ASSERT_TRUE(waits(1));
  EXPECT_EQ(loop.call([this] { return gateway->gateway->router().loads().at(0).in_flight; }), 4);
  release();
  EXPECT_EQ(read_answer(several).status, 200);
  EXPECT_EQ(read_answer(next).status, 200);
  EXPECT_TRUE(loop.eventually([this] { return gateway->gateway->router().loads().in_flight_total() == 0; }));
}

TEST_F(Queue, PrefixRequestWaitsLikeAnyOther) {
  begin(config_of(1, 1));
  RawPeer first = send("first");
  ASSERT_TRUE(runs(1));
  const std::string prefix = R"({"model":"demo","messages":[{"role":"system","content":"A persona"}]})";
  RawPeer waiting = gateway->connect();
  waiting.send(http_post("/v1/prefixes", prefix));
  ASSERT_TRUE(waits(1));
  RawPeer refused = gateway->connect();
  refused.send(http_post("/v1/prefixes", prefix));
  const Answer told = read_answer(refused);
  EXPECT_EQ(told.status, 429);
  EXPECT_GE(std::atoi(told.header("retry-after").c_str()), 1);
  release();
  EXPECT_EQ(read_answer(first).status, 200);
  EXPECT_EQ(read_answer(waiting).status, 200);
  EXPECT_EQ(stub.seen.size(), 2u);
}

TEST_F(Queue, ConcurrentTokenizeRequestsAreBounded) {
  GatewayConfig config = config_of(1, 10);
  config.proxy.text_requests_max = 1;
  begin(config);
  const std::string body = R"({"model":"demo","prompt":"hello"})";
  RawPeer first = gateway->connect(), second = gateway->connect();
  first.send(http_post("/tokenize", body));
  ASSERT_TRUE(runs(1));
  second.send(http_post("/tokenize", body));
  const Answer told = read_answer(second);
  EXPECT_EQ(told.status, 429);
  EXPECT_EQ(told.header("retry-after"), "1");
  EXPECT_EQ(waiting(), 0u) << "they do not take part in the queue";
  release();
  EXPECT_EQ(read_answer(first).status, 501) << "the stub's answer has no tokens";
}

// Fails on the test's signal; the worker asked next waits for its release.
Task<void> fail_when_told(bool& told, StubWorker&, Exchange& exchange) {
  Timer timer(exchange.executor());
  while (!told) {
    timer.expires_after(1ms);
    co_await timer.async_wait(use_task);
  }
  co_await respond_status(500, exchange);
}

TEST(Retries, RetryKeepsItsPlaceAheadOfTheQueue) {
  Loop loop;
  bool fails = false, released = false;
  std::vector<std::string> asked;
  const auto question = [](const Exchange& exchange) {
    const std::string& body = exchange.request().body;
    return body.substr(body.find("question "), 10);
  };
  const StubAnswer answer = [&](StubWorker& stub, Exchange& exchange) {
    asked.push_back(question(exchange));
    return asked.size() == 1 ? fail_when_told(fails, stub, exchange)
                             : answer_when_released(released, stub, exchange);
  };
  StubWorker a(loop, answer), b(loop, answer);
  GatewayConfig config = TestGateway::quick_config();
  config.admission_queue.admission.total.requests = 1;
  TestGateway gateway(loop, {a.endpoint(), b.endpoint()}, config);
  std::vector<RawPeer> peers;
  for (int i = 0; i < 3; ++i) {
    peers.push_back(gateway.connect());
    peers.back().send(
        http_post("/v1/chat/completions", chat_body("A persona", "question " + std::to_string(i))));
    ASSERT_TRUE(loop.eventually(
        [&] { return gateway.gateway->admission_queue().admission().waiting() == static_cast<size_t>(i); }));
    ASSERT_TRUE(loop.eventually([&] { return asked.size() == 1; }));
  }
  loop.call([&] { fails = true; });
  ASSERT_TRUE(loop.eventually([&] { return asked.size() == 2; }));
  EXPECT_EQ(loop.call([&] { return asked[1]; }), "question 0") << "sent again before all that wait";
  EXPECT_EQ(loop.call([&] { return gateway.gateway->admission_queue().admission().waiting(); }), 2u);
  loop.call([&] { released = true; });
  for (RawPeer& peer : peers) EXPECT_EQ(read_answer(peer).status, 200);
  EXPECT_EQ(asked, (std::vector<std::string>{"question 0", "question 0", "question 1", "question 2"}));
}

// Two tenants and a key without one, on a worker that records the requests.
class Tenants : public Queue {
 protected:
  void SetUp() override {
    released = true;
    dir = testing::TempDir();
    std::string keys;
    for (const auto& [name, settings] : std::map<std::string, std::string>{{"a1", "tenant: a"},
                                                                           {"a2", "tenant: a"},
                                                                           {"b1", "tenant: b"},
                                                                           {"none", "priority: 1"},
                                                                           {"chief", "admin: true"}}) {
      const Sha256 digest = sha256("key-" + name);
      const std::string_view bytes(reinterpret_cast<const char*>(digest.data()), digest.size());
      absl::StrAppend(&keys, name, ":\n  sha256: \"", absl::BytesToHexString(to_absl(bytes)), "\"\n  ",
                      settings, "\n");
    }
    std::ofstream(dir + "/tenants.yaml") << keys;
    std::ofstream(dir + "/tenants.secret") << std::string(40, 's') << "\n";
    GatewayConfig config = config_of(0, 10);
    config.api_keys = dir + "/tenants.yaml";
    config.tenant_secret = dir + "/tenants.secret";
    begin(config);
  }
  struct Seen {
    bj::object body;
    std::string set;
  };
  Seen ask(const std::string& key, const std::string& fields = "") {
    RawPeer peer = send("hello", "authorization: Bearer key-" + key + "\r\n", fields);
    const Answer answer = read_answer(peer);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return {parse_json(stub.seen.back().body)->as_object(), answer.route("set")};
  }
  static std::string salt(const Seen& seen) {
    const bj::value* value = seen.body.if_contains("cache_salt");
    return value == nullptr ? "" : std::string(std::string_view(value->as_string()));
  }
  std::string dir;
};

Task<void> answer_response(StubWorker&, Exchange& exchange) {
  HeaderList headers;
  headers.emplace_back("content-type", "application/json");
  co_await exchange.respond(200, headers, R"({"object":"response","output":[]})");
}

// vLLM has a cache of prefixes for these as well.
TEST_F(Tenants, ResponsesOfTenantsShareNoCacheEither) {
  loop.call([this] { stub.answer = answer_response; });
  const auto salt_of = [this](const std::string& key, const std::string& body) {
    RawPeer peer = gateway->connect();
    peer.send(http_post("/v1/responses", body, "authorization: Bearer key-" + key + "\r\n"));
    EXPECT_EQ(read_answer(peer).status, 200);
    return salt({parse_json(stub.seen.back().body)->as_object(), ""});
  };
  const std::string of_a = salt_within(tenant_salt(std::string(40, 's'), "a"), "");
  EXPECT_EQ(salt_of("a1", R"({"model":"demo","input":"x"})"), of_a);
  EXPECT_NE(salt_of("b1", R"({"model":"demo","input":"x"})"), of_a);
  EXPECT_NE(salt_of("b1", R"({"model":"demo","input":"x","cache_salt":")" + of_a + "\"}"), of_a);
  EXPECT_EQ(salt_of("none", R"({"model":"demo","input":"x"})"), "");
}

// A worker hands what it keeps under an id on to any client that knows the id.
TEST_F(Tenants, AnswersKeptAtAWorkerAreNotContinued) {
  loop.call([this] { stub.answer = answer_response; });
  const auto ask_with = [this](const std::string& key, const std::string& fields) {
    RawPeer peer = gateway->connect();
    peer.send(http_post("/v1/responses", R"({"model":"demo",)" + fields + "}",
                        "authorization: Bearer key-" + key + "\r\n"));
    return read_answer(peer);
  };
  const std::string input = R"("input":"x",)";
  const std::vector<std::pair<std::string, std::string>> refused{
      {"previous_response_id", input + R"("previous_response_id":"resp_1")"},
      {"previous_response_id", input + R"("Previous_Response_ID":"resp_1")"},
      {"previous_response_id", input + R"("previous_response_id":7)"},
      {"conversation", input + R"("conversation":"conv_1")"},
      {"conversation", input + R"("conversation":{"id":"conv_1"})"},
      {"item_reference", R"("input":[{"type":"message","role":"user"},{"type":"item_reference","id":"m"}])"},
      {"item_reference", R"("input":[{"id":"m"}])"}};
  // (What a key without a tenant continues may be a tenant's.)
  for (const std::string key : {"a1", "b1", "none", "chief"}) {
    for (const auto& [name, fields] : refused) {
      const Answer answer = ask_with(key, fields);
      EXPECT_EQ(answer.status, 400) << key << fields << answer.body;
      EXPECT_NE(answer.body.find(R"("param":")" + name + R"(","code":"unsupported_parameter")"),
                std::string::npos)
          << answer.body;
      EXPECT_NE(answer.body.find("whole, in 'input'"), std::string::npos) << answer.body;
    }
    for (const std::string& fields :
         {input + R"("previous_response_id":null,"conversation":null)",
          std::string(R"("input":[{"role":"user","content":"x","id":"m"},{"type":"message","id":"m"}])")})
      EXPECT_EQ(ask_with(key, fields).status, 200) << key << fields;
  }
}

TEST_F(Tenants, TenantsShareNoCacheAndCannotForgeSalts) {
  const Seen a = ask("a1"), same = ask("a2"), b = ask("b1"), none = ask("none");
  EXPECT_EQ(salt(a), salt_within(tenant_salt(std::string(40, 's'), "a"), ""));
  EXPECT_EQ(salt(same), salt(a));
  EXPECT_EQ(same.set, a.set);
  EXPECT_NE(salt(b), salt(a));
  EXPECT_EQ(salt(none), "");
  EXPECT_EQ((std::set<std::string>{a.set, b.set, none.set}).size(), 3u);
  // A salt of the client's own divides its tenant's further, and reaches no other tenant.
  const Seen own = ask("a1", R"("cache_salt":"own")"),
             stolen = ask("b1", "\"cache_salt\":\"" + salt(a) + "\"");
  EXPECT_EQ((std::set<std::string>{salt(own), salt(stolen), salt(a), salt(b), "own"}).size(), 5u);
  EXPECT_EQ((std::set<std::string>{own.set, stolen.set, a.set, b.set}).size(), 4u);
  EXPECT_EQ(own.body.at("messages"), a.body.at("messages"));
  EXPECT_EQ(salt(ask("none", R"("cache_salt":"own")")), "own");
}

TEST_F(Tenants, RequestPriorityIsNotEarlierThanTheKeys) {
  EXPECT_EQ(ask("none", R"("priority":-3)").body.at("priority"), 1);
  EXPECT_EQ(ask("none", R"("priority":4)").body.at("priority"), 4);
  EXPECT_FALSE(ask("none").body.contains("priority"));
  const Answer explained = gateway->admin_send("POST", "/admin/explain", chat_body("A persona", "hello"),
                                               "authorization: Bearer key-chief\r\nx-troupe-key: none\r\n");
  EXPECT_NE(explained.body.find(R"("api_key":"none","priority":1)"), std::string::npos) << explained.body;
}

Task<void> answer_twenty_events(StubWorker&, Exchange& exchange) {
  co_await begin_stream(exchange);
  for (int i = 0; i < 20; ++i)
    co_await exchange.write("data: " + std::string(150, 'x') + " " + std::to_string(i) + "\n\n");
  Timer timer(exchange.executor());
  timer.expires_after(60s);
  co_await timer.async_wait(use_task);
}

TEST_F(Tenants, DisconnectedClientIsChargedForTheAnsweredPart) {
  loop.call([this] { stub.answer = answer_twenty_events; });
  const std::string body = chat_body("A persona", "hello", true);
  const auto charged = [this] { return gateway->metric("troupe_gateway_key_tokens_total{key=\"none\"}"); };
  {
    RawPeer peer = gateway->connect();
    peer.send(http_post("/v1/chat/completions", body, "authorization: Bearer key-none\r\n"));
    peer.read_until(" 19\n\n");
  }
  ASSERT_TRUE(runs(0));
  const double prompt = static_cast<double>(body.size() / 4);
  for (int i = 0; i < 1000 && charged() < prompt + 19; ++i) std::this_thread::sleep_for(1ms);
  EXPECT_NEAR(charged(), prompt + 20, 1);
}

TEST_F(Tenants, TenantsNeedASecret) {
  GatewaySettings settings;
  settings.worker_urls = {"http://127.0.0.1:1"};
  settings.api_keys = dir + "/tenants.yaml";
  const auto without = make_config(settings);
  ASSERT_FALSE(without.ok());
  EXPECT_NE(std::string(without.status().message()).find("set tenant_secret"), std::string::npos);
  settings.tenant_secret = dir + "/tenants.secret";
  EXPECT_TRUE(make_config(settings).ok());
}

}  // namespace
}  // namespace troupe::gateway_test
