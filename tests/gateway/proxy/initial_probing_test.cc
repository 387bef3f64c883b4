// Requests to a gateway that has just started wait until it has probed its workers.

#include "gateway/cluster/worker_discovery.h"
#include "tests/gateway/gateway_fixture.h"

namespace troupe::gateway_test {
namespace {

class InitialProbing : public ::testing::Test {
 protected:
  TestGateway start(std::vector<Upstream> workers, GatewayConfig config = TestGateway::quick_config()) {
    return TestGateway(loop_, std::move(workers), std::move(config), 42, /*looks=*/false);
  }
  bool probed(const TestGateway& gateway) {
    return loop_.call([&] { return gateway.gateway->fleet().probed(); });
  }
  std::unique_ptr<WorkerDiscovery> membership_of(TestGateway& gateway,
                                                 std::vector<std::string> configured = {}) {
    return loop_.call(
        [&] { return std::make_unique<WorkerDiscovery>(gateway.gateway->fleet(), configured, log_); });
  }

  Loop loop_;
  Logger log_{LogLevel::kError, -1};
  StubWorker stub_{loop_, answer_whole};
};

TEST_F(InitialProbing, RequestWaitsForTheFirstProbes) {
  stub_.ready_after = 200ms;
  const TestGateway gateway = start({stub_.endpoint()});
  const Answer answer = gateway.ask(chat_body("A persona", "x"));
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_TRUE(probed(gateway));
  EXPECT_LT(gateway.metric("troupe_gateway_own_seconds_sum"), .1) << "waiting is no computing";
}

TEST_F(InitialProbing, ModelListWaitsForTheFirstProbes) {
  stub_.ready_after = 200ms;
  const TestGateway gateway = start({stub_.endpoint()});
  const Answer answer = gateway.get("/v1/models");
  EXPECT_EQ(answer.status, 200);
  EXPECT_NE(answer.body.find("\"demo\""), std::string::npos) << answer.body;
  EXPECT_LT(gateway.metric("troupe_gateway_own_seconds_sum"), .1) << "waiting is no computing";
}

TEST_F(InitialProbing, InvalidRequestIsRefusedBeforeAndUnknownModelAfterTheFirstProbes) {
  stub_.ready_after = 200ms;
  const TestGateway gateway = start({stub_.endpoint()});
  EXPECT_EQ(gateway.ask("{}").status, 400);
  EXPECT_FALSE(probed(gateway));
  std::string body = chat_body("A persona", "x");
  body.replace(body.find("\"demo\""), 6, "\"other\"");
  EXPECT_EQ(gateway.ask(body).status, 404);
  EXPECT_TRUE(probed(gateway));
}

TEST_F(InitialProbing, WaitEndsAtTheRequestsDeadline) {
  stub_.ready_after = 5s;
  GatewayConfig config = TestGateway::quick_config();
  config.prober.timeout = 5s;
  const TestGateway gateway = start({stub_.endpoint()}, config);
  const TimePoint begin = now();
  const Answer answer = gateway.ask(chat_body("A persona", "x"), "x-request-timeout-ms: 100\r\n");
  EXPECT_EQ(answer.status, 503);
  EXPECT_NE(answer.body.find("just started"), std::string::npos) << answer.body;
  EXPECT_GE(now() - begin, 100ms);
  EXPECT_EQ(gateway.ask(chat_body("A persona", "x")).status, 503);
  EXPECT_LT(now() - begin, kInitialProbingMax + 2s);
}

TEST_F(InitialProbing, WaitsForMembersFromEtcdToo) {
  TestGateway gateway = start({});
  const auto membership = membership_of(gateway);
  EXPECT_FALSE(probed(gateway));
  RawPeer peer = gateway.connect();
  peer.send(http_post("/v1/chat/completions", chat_body("A persona", "x")));
  ASSERT_TRUE(loop_.eventually([&] { return gateway.gateway->proxy().requests_running() == 1; }));
  loop_.call([&] {
    membership->all({{"/troupe/v1/workers/a",
                      worker_record_json({"http://" + stub_.endpoint().authority(), "demo", "e1"})}});
    EXPECT_FALSE(gateway.gateway->fleet().probed()) << "told of, but not looked at";
  });
  EXPECT_EQ(read_answer(peer).status, 200);
  EXPECT_TRUE(probed(gateway));
}

TEST_F(InitialProbing, WaitEndsWhenEtcdIsUnreachable) {
  TestGateway gateway = start({});
  const auto membership = membership_of(gateway);
  loop_.call([&] { membership->unreachable(); });
  EXPECT_TRUE(probed(gateway));
  EXPECT_EQ(gateway.ask(chat_body("A persona", "x")).status, 503);
  // Configured workers are enough to begin with.
  TestGateway named(loop_, {stub_.endpoint()});
  const auto more = membership_of(named, {stub_.id()});
  EXPECT_TRUE(probed(named));
}

}  // namespace
}  // namespace troupe::gateway_test
