// Workers from etcd: they join, and leave only once their probes fail as well.

#include "gateway/cluster/worker_discovery.h"

#include "tests/gateway/gateway_fixture.h"

namespace troupe::gateway_test {
namespace {

class MembershipTest : public ::testing::Test {
 protected:
  static std::string record(const Endpoint& endpoint, const std::string& epoch = "e1") {
    return worker_record_json({"http://" + endpoint.authority(), "demo", epoch});
  }
  static std::string key(const std::string& id) { return "/troupe/v1/workers/" + id; }
  // On the loop's thread.
  template <typename F>
  void with(F change) {
    loop_.call([&] { change(*membership_); });
  }
  bool member(const StubWorker& worker) {
    return loop_.call([&] { return gateway_.gateway->fleet().find(worker.id()).has_value(); });
  }
  // A worker leaves through tend() alone, which is called here now and then as in a gateway.
  bool leaves(const StubWorker& worker) {
    return loop_.eventually([&] {
      membership_->tend();
      return !gateway_.gateway->fleet().find(worker.id()).has_value();
    });
  }

  Loop loop_;
  Logger log_{LogLevel::kError, -1};
  StubWorker configured_{loop_, answer_whole}, other_{loop_, answer_whole};
  TestGateway gateway_{loop_, {configured_.endpoint()}};
  std::unique_ptr<WorkerDiscovery> membership_ = loop_.call([this] {
    return std::make_unique<WorkerDiscovery>(gateway_.gateway->fleet(),
                                             std::vector<std::string>{configured_.id()}, log_);
  });
};

TEST_F(MembershipTest, RegisteredWorkerIsProbedAndServes) {
  with([&](WorkerDiscovery& m) { m.registered(key("a"), record(other_.endpoint())); });
  EXPECT_TRUE(gateway_.becomes(1, "ready"));
}

TEST_F(MembershipTest, WorkerThatReturnsWithTlsIsReachedByTls) {
  with([&](WorkerDiscovery& m) { m.registered(key("a"), record(other_.endpoint())); });
  ASSERT_TRUE(gateway_.becomes(1, "ready"));
  const std::string secure = worker_record_json({"https://" + other_.endpoint().authority(), "demo", "e2"});
  with([&](WorkerDiscovery& m) { m.registered(key("a"), secure); });
  EXPECT_TRUE(loop_.call([&] { return gateway_.gateway->fleet().client(1).endpoint().tls; }));
  EXPECT_TRUE(gateway_.becomes(1, "dead")) << "which it does not speak";
  with([&](WorkerDiscovery& m) { m.registered(key("a"), record(other_.endpoint(), "e3")); });
  EXPECT_TRUE(gateway_.becomes(1, "ready"));
  EXPECT_EQ(loop_.call([&] { return gateway_.gateway->fleet().size(); }), 2u);
}

TEST_F(MembershipTest, UnregisteredWorkerStaysWhileItAnswersProbes) {
  with([&](WorkerDiscovery& m) {
    m.registered(key("a"), record(other_.endpoint()));
    m.gone(key("a"));
  });
  ASSERT_TRUE(gateway_.becomes(1, "ready"));
  with([](WorkerDiscovery& m) { m.tend(); });
  EXPECT_TRUE(member(other_));
  other_.stop();
  EXPECT_TRUE(leaves(other_));
}

TEST_F(MembershipTest, DeadWorkerStaysWhileRegistered) {
  with([&](WorkerDiscovery& m) { m.registered(key("a"), record(other_.endpoint())); });
  ASSERT_TRUE(gateway_.becomes(1, "ready"));
  other_.stop();
  ASSERT_TRUE(gateway_.becomes(1, "dead"));
  with([](WorkerDiscovery& m) { m.tend(); });
  EXPECT_TRUE(member(other_));
  with([](WorkerDiscovery& m) { m.all({}); });
  EXPECT_TRUE(leaves(other_));
}

TEST_F(MembershipTest, ReregisteredWorkerStaysThoughDead) {
  with([&](WorkerDiscovery& m) {
    m.registered(key("a"), record(other_.endpoint()));
    m.gone(key("a"));
    m.registered(key("a"), record(other_.endpoint()));
  });
  ASSERT_TRUE(gateway_.becomes(1, "ready"));
  other_.stop();
  ASSERT_TRUE(gateway_.becomes(1, "dead"));
  with([](WorkerDiscovery& m) { m.tend(); });
  EXPECT_TRUE(member(other_));
}

TEST_F(MembershipTest, ConfiguredWorkersNeverLeave) {
  with([&](WorkerDiscovery& m) {
    m.registered(key("c"), record(configured_.endpoint()));
    m.gone(key("c"));
  });
  configured_.stop();
  ASSERT_TRUE(gateway_.becomes(0, "dead"));
  with([](WorkerDiscovery& m) { m.tend(); });
  EXPECT_TRUE(member(configured_));
}

TEST_F(MembershipTest, RenewedLeaseDoesNotUndoAnOperatorsRemoval) {
  with([&](WorkerDiscovery& m) { m.registered(key("a"), record(other_.endpoint())); });
  ASSERT_TRUE(gateway_.becomes(1, "ready"));
  loop_.call([&] { gateway_.gateway->fleet().remove(1); });
  with([&](WorkerDiscovery& m) { m.registered(key("a"), record(other_.endpoint())); });
  EXPECT_FALSE(member(other_));
  // A new life of the worker joins again.
  with([&](WorkerDiscovery& m) { m.registered(key("a"), record(other_.endpoint(), "e2")); });
  EXPECT_TRUE(member(other_));
}

TEST_F(MembershipTest, MalformedRecordIsIgnored) {
  for (const char* text : {"", "{}", "[]", R"({"url":"ftp://x:1","model":"m","epoch":"e"})",
                           R"({"url":7,"model":"m","epoch":"e"})"})
    with([&](WorkerDiscovery& m) { m.registered(key("a"), text); });
  EXPECT_EQ(loop_.call([&] { return membership_->size(); }), 0u);
  EXPECT_EQ(loop_.call([&] { return gateway_.gateway->fleet().size(); }), 1u);
}

TEST(StateConfig, EtcdNeedsItsMembersAndNoWorkers) {
  GatewaySettings settings;
  settings.state_store = "etcd";
  EXPECT_FALSE(make_config(settings).ok());
  settings.etcd_endpoints = {"http://127.0.0.1:2379", "127.0.0.1:3379"};
  const auto config = make_config(settings);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->state.etcd.members.size(), 2u);
  EXPECT_TRUE(config->router.shared_table);
  for (const char* prefix : {"", "/", "troupe", "/troupe/", "/tr oupe"}) {
    settings.state.prefix = prefix;
    EXPECT_FALSE(make_config(settings).ok()) << prefix;
  }
  settings.state.prefix = "/x";
  settings.etcd_endpoints = {"ftp://127.0.0.1:2379"};
  EXPECT_FALSE(make_config(settings).ok());
  settings.etcd_endpoints = {"http://127.0.0.1:2379"};
  settings.state_store = "memory";
  settings.worker_urls = {"http://127.0.0.1:1"};
  EXPECT_FALSE(make_config(settings).ok()) << "members that nobody asks";
}

}  // namespace
}  // namespace troupe::gateway_test
