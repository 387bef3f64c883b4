// Run-time changes of the fleet by an operator: POST and DELETE /admin/workers, POST
// /admin/workers/{id}/drain.

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <thread>

#include "tests/gateway/gateway_fixture.h"

namespace troupe::gateway_test {
namespace {

std::string url_body(const Endpoint& endpoint) {
  return R"({"url":"http://)" + endpoint.authority() + "\"}";
}

// Answers once the test opens it.
struct Gate {
  bool open = false;
};
Task<void> answer_at_gate(const Gate& gate, StubWorker& stub, Exchange& exchange) {
  Timer timer(exchange.executor());
  while (!gate.open) {
    timer.expires_after(1ms);
    co_await timer.async_wait(use_task);
  }
  co_await answer_whole(stub, exchange);
}

class AdminWorkersTest : public ::testing::Test {
 protected:
  Answer change(const std::string& method, const Endpoint& endpoint) {
    return gateway_.admin_send(method, "/admin/workers", url_body(endpoint));
  }
  // Ids and states, as listed.
  std::map<std::string, std::string> listed() {
    std::map<std::string, std::string> found;
    const auto list = parse_json(gateway_.admin("/admin/workers").body);
    EXPECT_TRUE(list.ok()) << list.status();
    for (const bj::value& worker : list->at("workers").as_array()) {
      found[std::string(worker.at("id").as_string())] = std::string(worker.at("state").as_string());
    }
    return found;
  }
  bool lists(const std::string& id, const std::string& state) {
    for (int i = 0; i < 5000; ++i) {
      if (listed()[id] == state) return true;
      std::this_thread::sleep_for(1ms);
    }
    return false;
  }
  // Nodes that new personas go to; several, so that chance sends some to every worker.
  std::set<std::string> nodes() {
    std::set<std::string> found;
    for (int i = 0; i < 24; ++i) {
      const std::string card(800, static_cast<char>('a' + i));
      const Answer answer = gateway_.ask(chat_body(card + std::to_string(++personas_), "Hi"));
      EXPECT_EQ(answer.status, 200) << answer.body;
      found.insert(answer.route("node"));
    }
    return found;
  }
  // The share of one that joined rises from a tenth.
  bool both_get_requests() {
    std::set<std::string> found;
    for (int i = 0; i < 20 && found.size() < 2; ++i) found.merge(nodes());
    return found == std::set<std::string>{a_.id(), b_.id()};
  }

  Loop loop_;
  StubWorker a_{loop_, answer_whole}, b_{loop_, answer_whole};
  TestGateway gateway_{loop_, {a_.endpoint()}};
  int personas_ = 0;
};

TEST_F(AdminWorkersTest, AddedWorkerIsProbedAndGetsRequests) {
  EXPECT_EQ(nodes(), std::set<std::string>{a_.id()});
  const Answer added = change("POST", b_.endpoint());
  EXPECT_EQ(added.status, 200) << added.body;
  EXPECT_NE(added.body.find(b_.id()), std::string::npos);
  ASSERT_TRUE(lists(b_.id(), "ready"));
  EXPECT_TRUE(both_get_requests());
  EXPECT_EQ(change("POST", b_.endpoint()).status, 200) << "again changes nothing";
  EXPECT_EQ(listed().size(), 2u);
}

TEST_F(AdminWorkersTest, GatewayStaysReadyWhileANewWorkerIsProbed) {
  EXPECT_EQ(change("POST", dead_endpoint(loop_)).status, 200);
  EXPECT_EQ(gateway_.admin("/readyz").status, 200);
  EXPECT_EQ(nodes(), std::set<std::string>{a_.id()});
}

TEST_F(AdminWorkersTest, RemovedWorkerFinishesItsRequestsAndGetsNoMore) {
  change("POST", b_.endpoint());
  ASSERT_TRUE(lists(b_.id(), "ready"));
  Gate gate;
  const StubAnswer held = [&gate](StubWorker& stub, Exchange& e) { return answer_at_gate(gate, stub, e); };
  loop_.call([&] { a_.answer = b_.answer = held; });
  RawPeer first = gateway_.connect(), second = gateway_.connect();
  for (RawPeer* peer : {&first, &second}) {
    peer->send(
        http_post("/v1/chat/completions", chat_body(std::string(800, peer == &first ? 'x' : 'y'), "Hi")));
  }
  ASSERT_TRUE(loop_.eventually([&] { return a_.running + b_.running == 2; }));
  EXPECT_EQ(change("DELETE", b_.endpoint()).status, 200);
  EXPECT_EQ(listed().size(), 1u);
  loop_.call([&] { gate.open = true; });
  EXPECT_EQ(read_answer(first).status, 200);
  EXPECT_EQ(read_answer(second).status, 200);
  EXPECT_EQ(nodes(), std::set<std::string>{a_.id()});
  const int probes = loop_.call([&] { return b_.probes; });
  std::this_thread::sleep_for(200ms);  // four probe intervals
  EXPECT_LE(loop_.call([&] { return b_.probes; }), probes + 1);
  EXPECT_EQ(change("DELETE", b_.endpoint()).status, 404);
  // It returns to its old slot.
  change("POST", b_.endpoint());
  ASSERT_TRUE(lists(b_.id(), "ready"));
  EXPECT_TRUE(both_get_requests());
  EXPECT_EQ(loop_.call([&] { return gateway_.gateway->fleet().size(); }), 2u);
}

TEST_F(AdminWorkersTest, ModelOfTheLastRemovedWorkerIsUnknown) {
  EXPECT_EQ(change("DELETE", a_.endpoint()).status, 200);
  EXPECT_EQ(gateway_.ask(chat_body("p", "Hi")).status, 503);
  EXPECT_EQ(gateway_.admin("/readyz").status, 503);
}

TEST_F(AdminWorkersTest, DrainedWorkerGetsNoNewRequests) {
  change("POST", b_.endpoint());
  ASSERT_TRUE(lists(b_.id(), "ready"));
  const std::string path = "/admin/workers/" + b_.id() + "/drain";
  EXPECT_EQ(gateway_.admin_send("POST", path, "").status, 200);
  EXPECT_EQ(listed()[b_.id()], "draining");
  EXPECT_EQ(nodes(), std::set<std::string>{a_.id()});
  std::this_thread::sleep_for(150ms);  // good probes do not end the drain
  EXPECT_EQ(listed()[b_.id()], "draining");
  change("POST", b_.endpoint());
  EXPECT_EQ(listed()[b_.id()], "ready");
}

// Pods come under new addresses all the time: state is bounded by the present ones.
TEST_F(AdminWorkersTest, ThousandsOfWorkersMayJoinAndLeave) {
  change("POST", b_.endpoint());
  ASSERT_TRUE(lists(b_.id(), "ready"));
  Fleet& fleet = gateway_.gateway->fleet();
  size_t most = 0;
  for (int i = 0; i < 5000; ++i) {
    most = std::max(most, loop_.call([&] {
      Endpoint endpoint;
      endpoint.host = "127.0." + std::to_string(i / 250) + "." + std::to_string(1 + i % 250);
      endpoint.port = 1;
      const auto node = fleet.add(endpoint);
      EXPECT_TRUE(node.ok()) << node.status();
      EXPECT_EQ(fleet.id(*node), endpoint.authority());
      EXPECT_EQ(gateway_.gateway->router().view().node(*node).id, endpoint.authority());
      if (i % 3 == 0) fleet.drain(*node);
      fleet.remove(*node);
      return fleet.size();
    }));
  }
  EXPECT_LE(most, 200u) << "slots are given to the next";
  EXPECT_TRUE(both_get_requests());
  const std::string metrics = gateway_.admin("/metrics").body;
  EXPECT_EQ(metrics.find("worker=\"127.0.3."), std::string::npos) << "of those that are gone nothing is told";
  EXPECT_NE(metrics.find("worker=\"" + b_.id()), std::string::npos);
}

TEST_F(AdminWorkersTest, SlotIsNotReusedWhileARequestRunsThere) {
  change("POST", b_.endpoint());
  ASSERT_TRUE(lists(b_.id(), "ready"));
  Fleet& fleet = gateway_.gateway->fleet();
  Gate gate;
  loop_.call([&] {
    b_.answer = [&gate](StubWorker& stub, Exchange& e) { return answer_at_gate(gate, stub, e); };
    fleet.drain(0);  // so that the request goes to the other worker
  });
  RawPeer peer = gateway_.connect();
  peer.send(http_post("/v1/chat/completions", chat_body("p", "Hi")));
  ASSERT_TRUE(loop_.eventually([&] { return b_.running == 1; }));
  change("DELETE", b_.endpoint());
  const auto slot_of_new = [&](int number) {
    return loop_.call([&] {
      Endpoint endpoint;
      endpoint.host = "127.0.9." + std::to_string(number);
      endpoint.port = 1;
      return fleet.add(endpoint).value();
    });
  };
  EXPECT_EQ(slot_of_new(1), 2u);
  EXPECT_EQ(loop_.call([&] { return fleet.id(1); }), b_.id());
  loop_.call([&] { gate.open = true; });
  const Answer answer = read_answer(peer);
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.route("node"), b_.id());
  EXPECT_TRUE(loop_.eventually([&] { return gateway_.gateway->proxy().requests_running() == 0; }));
  for (int number = 2; number < 100; ++number) {  // probes under way hold it, too
    if (slot_of_new(number) == 1) return;
    std::this_thread::sleep_for(10ms);
  }
  ADD_FAILURE() << "its slot was given to nobody";
}

TEST_F(AdminWorkersTest, InvalidChangesAreRefused) {
  for (const std::string body :
       {"", "{}", "[]", R"({"url":5})", R"({"url":"ftp://a"})", R"({"url":"http://a:1","weight":2})",
        R"({"url":"nonsense"})", R"({"url":""})", R"({"url":"http://"})", R"({"url":"http://a:1/v1?x=1"})"}) {
    for (const std::string method : {"POST", "DELETE"}) {
      const Answer refused = gateway_.admin_send(method, "/admin/workers", body);
      EXPECT_EQ(refused.status, 400) << method << body;
      if (!body.starts_with("{")) continue;
      EXPECT_NE(refused.body.find(R"("param":"url")"), std::string::npos) << refused.body;
      EXPECT_NE(refused.body.find("http://host:port"), std::string::npos) << refused.body;
    }
  }
  EXPECT_EQ(gateway_.admin_send("POST", "/admin/workers/nobody:1/drain", "").status, 404);
  const Answer put = gateway_.admin_send("PUT", "/admin/workers", "{}");
  EXPECT_EQ(put.status, 405);
  EXPECT_EQ(put.header("allow"), "GET, HEAD, POST, DELETE");
  EXPECT_EQ(gateway_.admin("/admin/workers/" + a_.id() + "/drain").status, 405);
  EXPECT_EQ(gateway_.admin("/admin/workers//drain").status, 404);
  EXPECT_EQ(listed().size(), 1u);
}

TEST(AdminWorkersRules, OnlyAllowedWorkersAreAdded) {
  Loop loop;
  StubWorker a(loop, answer_whole), b(loop, answer_whole);
  GatewayConfig config = TestGateway::quick_config();
  config.workers_addable = *WorkerUrlRules::parse({b.id()});
  TestGateway gateway(loop, {a.endpoint()}, config);
  const Answer refused = gateway.admin_send("POST", "/admin/workers", R"({"url":"http://127.0.0.1:9"})");
  EXPECT_EQ(refused.status, 403);
  EXPECT_NE(refused.body.find("worker_url_not_allowed"), std::string::npos) << refused.body;
  EXPECT_EQ(gateway.admin_send("POST", "/admin/workers", url_body(b.endpoint())).status, 200);
  EXPECT_EQ(gateway.admin_send("DELETE", "/admin/workers", url_body(a.endpoint())).status, 200);
}

TEST_F(AdminWorkersTest, WithoutRulesOnlyALocalNetworksWorkersAreAdded) {
  for (const std::string url : {"http://169.254.169.254", "http://[::ffff:169.254.169.254]:80",
                                "http://2852039166", "http://[fe80::1]", "http://metadata.google.internal",
                                "https://llm.example.com", "http://203.0.113.7:31000"}) {
    const Answer refused = gateway_.admin_send("POST", "/admin/workers", "{\"url\":\"" + url + "\"}");
    EXPECT_EQ(refused.status, 403) << url;
    EXPECT_NE(refused.body.find("admin.worker_urls_allowed"), std::string::npos) << refused.body;
  }
  EXPECT_EQ(listed().size(), 1u);
  EXPECT_EQ(gateway_.admin_send("POST", "/admin/workers", R"({"url":"http://10.0.0.7:31000"})").status, 200);
  EXPECT_EQ(listed().size(), 2u);
}

}  // namespace
}  // namespace troupe::gateway_test
