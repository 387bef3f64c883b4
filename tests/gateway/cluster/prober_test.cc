// Probing of workers, and its results on the metrics port.

#include <map>
#include <set>

#include "tests/gateway/gateway_fixture.h"

namespace troupe::gateway_test {
namespace {

const std::string kProbedCard(1200, 'c');

TEST(Prober, FollowsAWorkerFromReadyToDrainingToReadyToDead) {
  Loop loop;
  StubWorker stub(loop, answer_whole);
  TestGateway gateway(loop, {stub.endpoint()});
  EXPECT_EQ(gateway.worker_state(0), "ready");
  EXPECT_EQ(gateway.get("/health").status, 200);
  loop.call([&] { stub.ready_status = 503; });
  EXPECT_TRUE(gateway.becomes(0, "draining"));
  EXPECT_EQ(gateway.get("/health").status, 503);
  EXPECT_EQ(gateway.ask(chat_body(kProbedCard, "x")).status, 503);
  loop.call([&] { stub.ready_status = 200; });
  EXPECT_TRUE(gateway.becomes(0, "ready"));
  EXPECT_EQ(gateway.ask(chat_body(kProbedCard, "x")).status, 200);
  stub.stop();
  EXPECT_TRUE(gateway.becomes(0, "dead"));
  const std::string worker = "worker=\"" + gateway.gateway->fleet().id(0) + "\"";
  EXPECT_EQ(gateway.metric("troupe_gateway_worker_up{" + worker + "}"), 0);
  for (const std::string state : {"ready", "draining", "suspect", "dead", "unknown", "failing"}) {
    EXPECT_EQ(gateway.metric("troupe_gateway_worker_state{state=\"" + state + "\"," + worker + "}"),
              state == "dead" ? 1 : 0)
        << state;
  }
}

TEST(Prober, WorkerWithoutReadyzIsProbedByItsModelsAlone) {
  Loop loop;
  StubWorker stub(loop, answer_whole);
  loop.call([&] { stub.ready_status = 404; });
  TestGateway gateway(loop, {stub.endpoint()});
  EXPECT_EQ(gateway.worker_state(0), "ready");
  EXPECT_EQ(gateway.ask(chat_body(kProbedCard, "x")).status, 200);
}

TEST(Prober, NewEpochForgetsTheWorkersResidency) {
  Loop loop;
  StubWorker stub(loop, answer_whole);
  loop.call([&] {
    stub.load_status = 200;
    stub.load.epoch = "first";
    stub.load.ready = true;
    stub.load.running = 3;
  });
  TestGateway gateway(loop, {stub.endpoint()});
  gateway.ask(chat_body(kProbedCard, "x"));
  EXPECT_GT(std::stoi(gateway.ask(chat_body(kProbedCard, "y")).route("expect")), 0);
  EXPECT_TRUE(loop.eventually([&] { return gateway.gateway->router().loads().at(0).others_requests == 3; }));
  loop.call([&] { stub.load.epoch = "second"; });
  EXPECT_TRUE(loop.eventually([probes = stub.probes, &stub] { return stub.probes > probes + 2; }));
  EXPECT_EQ(gateway.ask(chat_body(kProbedCard, "z")).route("expect"), "0");
}

TEST(Prober, BadLoadReportDoesNotEndTheReports) {
  Loop loop;
  StubWorker stub(loop, answer_whole);
  loop.call([&] {
    stub.load_status = 200;
    stub.load.epoch = "first";
    stub.load.running = 3;
  });
  TestGateway gateway(loop, {stub.endpoint()});
  const auto foreign = [&] { return gateway.gateway->router().loads().at(0).others_requests; };
  EXPECT_TRUE(loop.eventually([&] { return foreign() == 3; }));
  loop.call([&] { stub.load_status = 500; });
  const int probes = loop.call([&] { return stub.probes; });
  EXPECT_TRUE(loop.eventually([&] { return stub.probes > probes + 2; }));
  EXPECT_EQ(gateway.worker_state(0), "ready");
  EXPECT_EQ(gateway.ask(chat_body(kProbedCard, "x")).status, 200);
  loop.call([&] {
    stub.load_status = 200;
    stub.load.epoch = "second";
    stub.load.running = 5;
  });
  EXPECT_TRUE(loop.eventually([&] { return foreign() == 5; }));
  EXPECT_EQ(gateway.ask(chat_body(kProbedCard, "y")).route("expect"), "0") << "the new epoch was not seen";
}

TEST(Prober, RevivedWorkerIsProbedOnAllPathsAgain) {
  Loop loop;
  StubWorker stub(loop, answer_whole);
  loop.call([&] { stub.ready_status = 404; });
  TestGateway gateway(loop, {stub.endpoint()});
  EXPECT_EQ(gateway.worker_state(0), "ready");
  loop.call([&] {  // replaced at its address by a worker with /readyz and /v1/load
    stub.ready_status = stub.load_status = 200;
    stub.load.epoch = "new";
    stub.load.running = 4;
    for (int i = 0; i < 3; ++i) gateway.gateway->fleet().on_event(0, route::HealthEvent::kConnectError);
  });
  const int probes = loop.call([&] { return stub.probes; });
  EXPECT_TRUE(loop.eventually([&] { return stub.probes > probes; }));
  EXPECT_TRUE(loop.eventually([&] { return gateway.gateway->router().loads().at(0).others_requests == 4; }));
}

TEST(Prober, ModelsAreTheUnionAndRequestsGoToTheirModel) {
  Loop loop;
  StubWorker a(loop, answer_whole), b(loop, answer_whole);
  loop.call([&] { a.models = {"demo", "small"}; });
  loop.call([&] { b.models = {"demo", "large"}; });
  TestGateway gateway(loop, {a.endpoint(), b.endpoint()});
  auto models = parse_models(gateway.get("/v1/models").body);
  ASSERT_TRUE(models.ok());
  std::multiset<std::string> ids;
  for (const ModelCard& card : models.value()) ids.insert(card.id);
  EXPECT_EQ(ids, (std::multiset<std::string>{"demo", "large", "small"}));
  for (int i = 0; i < 5; ++i) {
    const std::string body =
        R"({"model":"large","messages":[{"role":"user","content":"q)" + std::to_string(i) + "\"}]}";
    EXPECT_EQ(gateway.ask(body).route("node"), b.id());
  }
  b.stop();
  EXPECT_TRUE(gateway.becomes(1, "dead"));
  EXPECT_EQ(gateway.ask(R"({"model":"large","messages":[{"role":"user","content":"q"}]})").status, 503)
      << "a model whose workers are down is not an unknown one";
}

TEST(Admin, ExplainSendsNoRequest) {
  Loop loop;
  StubWorker a(loop, answer_whole), b(loop, answer_whole);
  TestGateway gateway(loop, {a.endpoint(), b.endpoint()});
  const Answer explained = gateway.explain(chat_body(kProbedCard, "x"));
  EXPECT_EQ(explained.status, 200);
  const auto value = parse_json(explained.body);
  ASSERT_TRUE(value.ok()) << explained.body;
  const bj::object& object = value->as_object();
  ASSERT_EQ(object.at("order").as_array().size(), 2u);
  EXPECT_EQ(object.at("prefix_messages").as_int64(), 1);
  EXPECT_TRUE(a.seen.empty() && b.seen.empty());
  EXPECT_EQ(loop.call([&] { return gateway.gateway->router().known().sets.size(); }), 0u);
  const Answer real = gateway.ask(chat_body(kProbedCard, "x"));
  EXPECT_EQ(real.route("set"), std::string(object.at("set").as_string()));
  const Answer after = gateway.explain(chat_body(kProbedCard, "x"));
  EXPECT_EQ(
      std::string(
          parse_json(after.body)->as_object().at("order").as_array()[0].as_object().at("node").as_string()),
      real.route("node"));
  EXPECT_EQ(gateway.explain("{}").status, 400);
}

TEST(Admin, TableAndWorkersAreShown) {
  Loop loop;
  StubWorker a(loop, answer_whole), b(loop, answer_whole);
  TestGateway gateway(loop, {a.endpoint(), b.endpoint()});
  const Answer asked = gateway.ask(chat_body(kProbedCard, "x"));
  EXPECT_TRUE(loop.eventually([&] { return gateway.gateway->router().table()->epoch() > 0; }));
  const Answer table = gateway.admin("/admin/table");
  EXPECT_NE(table.body.find(asked.route("set")), std::string::npos);
  EXPECT_NE(table.body.find(a.id()), std::string::npos);
  const Answer workers = gateway.admin("/admin/workers");
  const auto value = parse_json(workers.body);
  ASSERT_TRUE(value.ok());
  ASSERT_EQ(value->as_object().at("workers").as_array().size(), 2u);
  EXPECT_EQ(std::string(value->as_object().at("workers").as_array()[0].as_object().at("state").as_string()),
            "ready");
  EXPECT_EQ(gateway.admin("/v1/chat/completions").status, 404);
}

TEST(Admin, TableShowsTheSecondChoiceOfASet) {
  Loop loop;
  StubWorker a(loop, answer_whole), b(loop, answer_whole), c(loop, answer_whole);
  GatewayConfig config = TestGateway::quick_config();
  config.prober.interval = config.prober.suspicion_interval = 60s;  // only the request detects the failure
  TestGateway gateway(loop, {a.endpoint(), b.endpoint(), c.endpoint()}, config);
  std::map<std::string, std::string> cards;  // by set
  for (int i = 0; i < 12; ++i) {
    const std::string card = std::to_string(i) + kProbedCard;
    cards[gateway.ask(chat_body(card, "x")).route("set")] = card;
  }
  ASSERT_TRUE(loop.eventually([&] { return gateway.gateway->router().table()->sets().size() == 12; }));
  const auto table = parse_json(gateway.admin("/admin/table").body);
  ASSERT_TRUE(table.ok());
  std::string set, first, second;
  for (const bj::value& value : table->as_object().at("sets").as_array()) {
    const bj::object& item = value.as_object();
    ASSERT_EQ(item.at("nodes").as_array().size(), 1u) << "one home alone";
    set = item.at("set").as_string();
    first = item.at("first").as_string();
    second = item.at("second").as_string();
    EXPECT_NE(first, second);
  }
  for (StubWorker* stub : {&a, &b, &c}) {
    if (stub->id() == first) stub->stop();
  }
  const Answer answer = gateway.ask(chat_body(cards.at(set), "another conversation"));
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.route("attempt"), "2");
  EXPECT_EQ(answer.route("node"), second);
}

TEST(Admin, WrongMethodIsRefusedWithTheAllowedOnes) {
  Loop loop;
  StubWorker stub(loop, answer_whole);
  TestGateway gateway(loop, {stub.endpoint()});
  const Answer wrong = gateway.admin("/admin/explain");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.header("allow"), "POST");
  RawPeer peer = RawPeer::connect(gateway.gateway->metrics_port());
  peer.send(http_post("/metrics", "{}"));
  const Answer posted = read_answer(peer);
  EXPECT_EQ(posted.status, 405);
  EXPECT_EQ(posted.header("allow"), "GET, HEAD");
  EXPECT_EQ(gateway.get("/v1/chat/completions").header("allow"), "POST");
  RawPeer main_peer = gateway.connect();
  main_peer.send(http_post("/v1/models", "{}"));
  EXPECT_EQ(read_answer(main_peer).header("allow"), "GET, HEAD");
}

TEST(Admin, ExplainDoesNotChangeTheNextDecision) {
  Loop loop;
  StubWorker a(loop, answer_whole), b(loop, answer_whole);
  GatewayConfig config = TestGateway::quick_config();
  config.router.policy = "round-robin";
  TestGateway gateway(loop, {a.endpoint(), b.endpoint()}, config);
  const std::string first = gateway.ask(chat_body(kProbedCard, "1")).route("node");
  const Answer explained = gateway.explain(chat_body(kProbedCard, "2"));
  const std::string second = gateway.ask(chat_body(kProbedCard, "2")).route("node");
  EXPECT_NE(first, second) << "the explained request took the other worker's turn";
  EXPECT_EQ(std::string(parse_json(explained.body)
                            ->as_object()
                            .at("order")
                            .as_array()[0]
                            .as_object()
                            .at("node")
                            .as_string()),
            second);
}

}  // namespace
}  // namespace troupe::gateway_test
