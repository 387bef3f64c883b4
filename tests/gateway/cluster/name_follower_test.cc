// `resolve: each`: every address of a name is a worker of its own.

#include "gateway/cluster/name_follower.h"

#include <gmock/gmock.h>

#include "tests/gateway/gateway_fixture.h"

namespace troupe::gateway_test {
namespace name_follower_test {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

HttpServerOptions at(const std::string& host, uint16_t port) {
  HttpServerOptions options;
  options.host = host;
  options.port = port;
  return options;
}

// Stubs on one port of several addresses, and a gateway that finds them by a name.
class NameFollowerTest : public testing::Test {
 protected:
  NameFollowerTest()
      : one_(loop_, answer_whole),
        two_(loop_, answer_whole, at("127.0.0.2", one_.endpoint().port)),
        three_(loop_, answer_whole, at("127.0.0.3", one_.endpoint().port)) {
    name_.endpoint.host = "workers.test";
    name_.endpoint.port = one_.endpoint().port;
    name_.each = true;
  }
  void start(std::vector<std::string> addresses) {
    addresses_ = std::move(addresses);
    GatewayConfig config = TestGateway::quick_config();
    config.fleet.names = {name_};
    config.fleet.client.resolve_interval = 1s;
    config.fleet.client.lookup = [this](const std::string& host, uint16_t port) {
      asked_.push_back(host);
      std::vector<std::pair<std::string, uint16_t>> found;
      for (const std::string& address : addresses_) found.emplace_back(address, port);
      return found;
    };
    gateway_ = std::make_unique<TestGateway>(loop_, std::vector<Upstream>(), config);
  }
  void dns_has(std::vector<std::string> addresses) {
    loop_.call([&] {
      addresses_ = std::move(addresses);
      asked_.clear();
    });
  }
  // The ready workers' addresses.
  std::vector<std::string> ready() {
    return loop_.call([&] {
      std::vector<std::string> found;
      const Fleet& fleet = gateway_->gateway->fleet();
      for (route::NodeIndex i = 0; i < fleet.size(); ++i) {
        if (fleet.member(i) && fleet.state(i) == route::NodeState::kAlive)
          found.push_back(fleet.id(i).substr(fleet.id(i).find('/') + 1));
      }
      return found;
    });
  }
  bool becomes(const std::vector<std::string>& addresses) {
    for (const TimePoint begin = now(); now() < begin + 5s;) {
      if (testing::Value(ready(), testing::UnorderedElementsAreArray(addresses))) return true;
    }
    return false;
  }

  Loop loop_;
  StubWorker one_, two_, three_;
  Upstream name_;
  std::vector<std::string> addresses_, asked_;
  std::unique_ptr<TestGateway> gateway_;
};

TEST_F(NameFollowerTest, EveryAddressIsAWorkerWithTheNamesHostHeader) {
  start({"127.0.0.1", "127.0.0.2"});
  ASSERT_TRUE(becomes({"127.0.0.1", "127.0.0.2"}));
  const std::string host = name_.endpoint.authority();
  EXPECT_EQ(loop_.call([&] { return gateway_->gateway->fleet().id(0); }), host + "/127.0.0.1");
  for (int i = 0; i < 40; ++i) EXPECT_EQ(gateway_->ask(chat_body("p" + std::to_string(i), "x")).status, 200);
  for (StubWorker* stub : {&one_, &two_}) {
    const std::vector<HttpRequest> seen = loop_.call([&] { return stub->seen; });
    ASSERT_FALSE(seen.empty()) << "each has its share";
    EXPECT_EQ(seen[0].header("host"), host);
  }
}

TEST_F(NameFollowerTest, EachIsProbedByItself) {
  loop_.call([&] { two_.ready_status = 500; });
  start({"127.0.0.1", "127.0.0.2"});
  EXPECT_TRUE(becomes({"127.0.0.1"}));
  for (int i = 0; i < 20; ++i) EXPECT_EQ(gateway_->ask(chat_body("p" + std::to_string(i), "x")).status, 200);
  EXPECT_TRUE(loop_.call([&] { return two_.seen.empty(); }));
}

TEST_F(NameFollowerTest, TheFleetFollowsDnsAndStaysWhileItFails) {
  start({"127.0.0.1", "127.0.0.2"});
  ASSERT_TRUE(becomes({"127.0.0.1", "127.0.0.2"}));
  dns_has({"127.0.0.2", "127.0.0.3"});
  EXPECT_TRUE(becomes({"127.0.0.2", "127.0.0.3"}));
  EXPECT_FALSE(loop_.call([&] {
    return gateway_->gateway->fleet().find(name_.endpoint.authority() + "/127.0.0.1").has_value();
  })) << "it has left for good";
  dns_has({});
  ASSERT_TRUE(loop_.eventually([&] { return asked_.size() >= 2; }));
  EXPECT_THAT(ready(), UnorderedElementsAre("127.0.0.2", "127.0.0.3"));
  dns_has({"127.0.0.1"});
  EXPECT_TRUE(becomes({"127.0.0.1"})) << "it comes back";
  EXPECT_EQ(gateway_->ask(chat_body("p", "x")).status, 200);
}

TEST_F(NameFollowerTest, ANameThatIsNotFoundAtTheStartIsLookedUpAgain) {
  start({});
  EXPECT_THAT(ready(), IsEmpty());
  dns_has({"127.0.0.3"});
  EXPECT_TRUE(becomes({"127.0.0.3"}));
}

TEST_F(NameFollowerTest, AReloadAddsAndRemovesNamesAndChangesTheirSettings) {
  start({"127.0.0.1"});
  ASSERT_TRUE(becomes({"127.0.0.1"}));
  const auto change = [&](const std::vector<Upstream>& names) {
    loop_.call([&] {
      GatewayConfig config = TestGateway::quick_config();
      config.fleet.names = names;
      const Status status = gateway_->gateway->change(config);
      EXPECT_TRUE(status.ok()) << status;
    });
  };
  Upstream keyed = name_;
  keyed.authorization = "Bearer k";
  change({keyed});
  loop_.call([&] { one_.wants_authorization = "Bearer k"; });
  const auto body = chat_body("p", "x");
  EXPECT_EQ(gateway_->ask(body).status, 200) << "the worker is asked with the new key";
  change({});
  EXPECT_TRUE(becomes({}));
  change({keyed});
  EXPECT_TRUE(becomes({"127.0.0.1"}));
}

TEST_F(NameFollowerTest, AnOperatorsRemovalStays) {
  start({"127.0.0.1", "127.0.0.2"});
  ASSERT_TRUE(becomes({"127.0.0.1", "127.0.0.2"}));
  loop_.call([&] { gateway_->gateway->fleet().remove(0); });
  dns_has({"127.0.0.1", "127.0.0.2"});
  ASSERT_TRUE(loop_.eventually([&] { return asked_.size() >= 2; }));
  EXPECT_THAT(ready(), ElementsAre("127.0.0.2"));
  dns_has({"127.0.0.2"});
  ASSERT_TRUE(loop_.eventually([&] { return asked_.size() >= 2; })) << "nothing is there to be removed twice";
  EXPECT_THAT(ready(), ElementsAre("127.0.0.2"));
}

}  // namespace name_follower_test
}  // namespace troupe::gateway_test
