// Several gateways in front of the same workers, which have no residency feed.

#include "gateway/cluster/gossip.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "common/api/api.h"
#include "gateway/access/secret.h"
#include "gateway/route/key/prefix_key.h"
#include "gateway/route/placement/table_codec.h"
#include "tests/gateway/gateway_fixture.h"

namespace troupe::gateway_test {
namespace {

Task<void> never_answer(StubWorker&, Exchange& exchange) {
  Timer timer(exchange.executor());
  timer.expires_at(TimePoint::max());
  co_await timer.async_wait(use_task);
}

std::string persona_body(int index) {
  return chat_body(std::string(1600, static_cast<char>('a' + index)), "Who are you?");
}

Hash128 set_of(int persona) {
  return route::make_prefix_key(parse_chat_request(persona_body(persona)).value(), "").set;
}

std::string framed(const std::vector<std::string>& parts) {
  std::string message;
  for (const std::string& part : parts) {
    const auto length = static_cast<uint32_t>(part.size());
    message.append(reinterpret_cast<const char*>(&length), sizeof length);
    message += part;
  }
  return message;
}

class GossipTest : public ::testing::Test {
 protected:
  static constexpr int kPersonas = 8;

  // A gateway whose metrics port is `own`, with these peers.
  std::unique_ptr<TestGateway> start(const Endpoint& own, const std::vector<Endpoint>& peers,
                                     bool ledger = false) {
    GatewayConfig config = TestGateway::quick_config();
    config.metrics_server.port = own.port;
    config.residency.enabled = false;
    config.router.affinity.mode = route::Mode::kGossip;
    config.router.affinity.gateways = static_cast<int64_t>(peers.size()) + (finds_ ? 2 : 1);
    config.router.affinity.hot_factor = 0;  // else so few requests make every persona hot
    config.router.affinity.noise_tokens = 0;
    config.router.affinity.peer_ledger = ledger;
    config.gossip.rules.ledger = ledger;
    config.gossip.peers = peers;
    config.gossip.finds = finds_;
    config.gossip.seal = seal_;
    config.gossip.rules.interval = 5ms;
    config.gossip.rules.refresh = 20ms;
    config.gossip.rules.retry_max = retry_max_;
    config.gossip.rules.forget_after = 200ms;
    config.gossip.rules.placements_max = placements_max_;
    config.router.planner.tick = 100ms;
    return std::make_unique<TestGateway>(loop_, std::vector<Upstream>{a_.endpoint(), b_.endpoint()}, config,
                                         own.port + (uint64_t{++lives_} << 16));
  }
  bool knows(TestGateway& gateway, int persona, route::NodeIndex node) {
    const Hash128 set = set_of(persona);
    return loop_.eventually([&] { return gateway.gateway->router().known().shadow.tokens(set, node) > 0; });
  }
  static bool answers(TestGateway& gateway, const Endpoint& peer, double up = 1) {
    const std::string name = "troupe_gateway_gossip_peer_up{peer=\"" + peer.authority() + "\"}";
    for (int i = 0; i < 5000 && gateway.metric(name) != up; ++i) std::this_thread::sleep_for(1ms);
    return gateway.metric(name) == up;
  }
  route::NodeIndex index_of(const std::string& id) const { return id == a_.id() ? 0 : 1; }

  Loop loop_;
  uint32_t lives_ = 0;
  size_t placements_max_ = 8192;
  bool finds_ = false;
  GossipAuth seal_;
  std::chrono::milliseconds retry_max_ = 50ms;
  StubWorker a_{loop_, answer_whole}, b_{loop_, answer_whole};
  const Endpoint first_ = dead_endpoint(loop_), second_ = dead_endpoint(loop_),
                 nobody_ = dead_endpoint(loop_);
};

TEST_F(GossipTest, PlacementsOfOneGatewayGuideTheOther) {
  // The list also contains each gateway's own address, and one that is down.
  const std::vector<Endpoint> peers = {first_, second_, nobody_};
  const auto one = start(first_, peers), two = start(second_, peers);
  ASSERT_TRUE(answers(*one, second_) && answers(*two, first_));
  for (int persona = 0; persona < kPersonas; ++persona) {
    TestGateway& asked = persona % 2 == 0 ? *one : *two;
    TestGateway& other = persona % 2 == 0 ? *two : *one;
    const std::string node = asked.ask(persona_body(persona)).route("node");
    ASSERT_TRUE(knows(other, persona, index_of(node))) << persona;
    for (int i = 0; i < 3; ++i) EXPECT_EQ(other.ask(persona_body(persona)).route("node"), node) << persona;
  }
  EXPECT_GE(one->metric("troupe_gateway_gossip_placements_total{direction=\"received\"}"), kPersonas / 2);
  EXPECT_TRUE(answers(*one, nobody_, 0));
}

TEST_F(GossipTest, OwnAddressInThePeerListIsNotAPeer) {
  const auto gateways = [&](TestGateway& gateway) { return gateway.gateway->router().known().gateways; };
  const auto one = start(first_, {first_, second_, nobody_}), two = start(second_, {second_});
  EXPECT_TRUE(loop_.eventually([&] { return gateways(*one) == 3; })) << "who is down may come back";
  EXPECT_TRUE(loop_.eventually([&] { return gateways(*two) == 1; }));
  EXPECT_TRUE(answers(*one, second_));
  EXPECT_EQ(loop_.call([&] { return gateways(*one); }), 3);
}

TEST_F(GossipTest, PeerThatStartsLaterIsFound) {
  const auto one = start(first_, {second_});
  one->ask(persona_body(0));
  EXPECT_TRUE(answers(*one, second_, 0));
  const auto two = start(second_, {first_});
  EXPECT_TRUE(answers(*one, second_));
}

// A found peer (as from etcd) receives all messages at once; one that left receives none.
TEST_F(GossipTest, MessagesGoToFoundPeersAndNotToLeftOnes) {
  finds_ = true;
  const auto first = start(first_, {}), second = start(second_, {});
  const auto found = [this](TestGateway& gateway, const std::vector<Endpoint>& peers) {
    loop_.call([&] { gateway.gateway->gossip().found(peers); });
  };
  EXPECT_EQ(first->ask(persona_body(0)).status, 200);
  found(*first, {second_});
  found(*second, {first_});
  EXPECT_TRUE(answers(*first, second_));
  EXPECT_TRUE(answers(*second, first_));
  const auto node = index_of(first->ask(persona_body(0)).route("node"));
  EXPECT_TRUE(knows(*second, 0, node));

  found(*first, {second_});  // nothing new
  EXPECT_TRUE(answers(*first, second_));
  found(*first, {});
  const std::string up = "troupe_gateway_gossip_peer_up{peer=\"" + second_.authority() + "\"}";
  EXPECT_EQ(first->metric(up), -1);
  const auto sent = [&] {
    return first->metric("troupe_gateway_gossip_placements_total{direction=\"sent\"}");
  };
  const double before = sent();
  EXPECT_EQ(first->ask(persona_body(1)).status, 200);
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(sent(), before);
  found(*first, {second_});
  EXPECT_TRUE(answers(*first, second_));
  const auto other = index_of(first->ask(persona_body(1)).route("node"));
  EXPECT_TRUE(knows(*second, 1, other)) << "also what happened meanwhile";
}

TEST_F(GossipTest, RestartedGatewayCatchesUpWithItsPeers) {
  retry_max_ = 60s;
  const auto one = start(first_, {second_});
  auto two = start(second_, {first_});
  ASSERT_TRUE(answers(*one, second_) && answers(*two, first_));
  std::vector<std::string> nodes;
  for (int persona = 0; persona < kPersonas; ++persona) {
    nodes.push_back(one->ask(persona_body(persona)).route("node"));
    ASSERT_TRUE(knows(*two, persona, index_of(nodes.back()))) << "told, so that nothing waits to be";
  }
  two.reset();
  ASSERT_TRUE(answers(*one, second_, 0));
  std::this_thread::sleep_for(300ms);  // pauses grow
  two = start(second_, {first_});
  for (int persona = 0; persona < kPersonas; ++persona) {
    ASSERT_TRUE(knows(*two, persona, index_of(nodes[static_cast<size_t>(persona)]))) << persona;
    EXPECT_EQ(two->ask(persona_body(persona)).route("node"), nodes[static_cast<size_t>(persona)]);
  }
}

// Placements in all messages that this stand-in for a gateway received so far.
size_t placements_told(const StubWorker& peer) {
  constexpr size_t kRecordBytes = 16 + 16 + 8 + 3 * 4;
  size_t count = 0;
  for (const HttpRequest& request : peer.seen) {
    uint32_t length = 0;
    std::memcpy(&length, request.body.data(), sizeof length);
    count += (length - 4) / kRecordBytes;
  }
  return count;
}

TEST_F(GossipTest, RefusedMessagesAreSentAgain) {
  StubWorker peer(loop_, answer_status(503));
  const auto one = start(first_, {peer.endpoint()});
  one->ask(persona_body(0));
  ASSERT_TRUE(loop_.eventually([&] { return placements_told(peer) >= 1; }));
  loop_.call([&] {
    peer.seen.clear();
    peer.answer = answer_status(200);
  });
  EXPECT_TRUE(loop_.eventually([&] { return placements_told(peer) == 1; }));
  EXPECT_EQ(one->metric("troupe_gateway_gossip_dropped_total"), 0);
}

TEST_F(GossipTest, NewestPlacementsAreKeptForASilentPeer) {
  StubWorker peer(loop_, answer_status(503));
  placements_max_ = 3;
  const auto one = start(first_, {peer.endpoint()});
  for (int persona = 0; persona < kPersonas; ++persona) one->ask(persona_body(persona));
  const auto dropped = [&] { return one->metric("troupe_gateway_gossip_dropped_total"); };
  for (int i = 0; i < 5000 && dropped() < kPersonas - 3; ++i) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(dropped(), kPersonas - 3);
  const auto two = start(second_, {});
  loop_.call([&] {
    peer.seen.clear();
    peer.answer = answer_status(200);
  });
  ASSERT_TRUE(loop_.eventually([&] { return placements_told(peer) == 3; }));
  const auto told = loop_.call([&] { return peer.seen; });
  const auto with_some = std::find_if(told.begin(), told.end(), [](const HttpRequest& request) {
    return request.body.find("TPG1") != std::string::npos && request.body.size() > 200;
  });
  ASSERT_NE(with_some, told.end());
  EXPECT_EQ(two->admin_send("POST", "/admin/gossip", with_some->body,
                            "x-troupe-gateway: " + std::string(32, 'a') + "\r\n")
                .status,
            200);
  for (int persona = 0; persona < kPersonas; ++persona) {
    const Hash128 set = set_of(persona);
    const auto holders =
        loop_.call([&] { return two->gateway->router().known().shadow.holders(set).size(); });
    EXPECT_EQ(holders, persona < kPersonas - 3 ? 0u : 1u) << persona;
  }
}

TEST_F(GossipTest, PlacementsOnADeadNodeAreNotSentLater) {
  StubWorker peer(loop_, answer_status(503));
  const auto one = start(first_, {peer.endpoint()});
  const route::NodeIndex node = index_of(one->ask(persona_body(0)).route("node"));
  ASSERT_TRUE(loop_.eventually([&] { return placements_told(peer) >= 2; }));  // it is known to be down
  (node == 0 ? a_ : b_).stop();
  ASSERT_TRUE(one->becomes(node, "dead"));
  EXPECT_EQ(one->ask(persona_body(1)).route("node"), (node == 0 ? b_ : a_).id());
  loop_.call([&] {
    peer.seen.clear();
    peer.answer = answer_status(200);
  });
  ASSERT_TRUE(loop_.eventually([&] { return placements_told(peer) >= 1; }));
  EXPECT_EQ(loop_.call([&] { return placements_told(peer); }), 1u);
}

// It begins without state, long after all placements were sent, and was asked ever more seldom meanwhile.
TEST_F(GossipTest, ReturningGatewayReceivesMissedPlacements) {
  const auto one = start(first_, {second_});
  auto two = start(second_, {first_});
  ASSERT_TRUE(answers(*one, second_));
  two.reset();
  std::vector<std::string> nodes;
  for (int persona = 0; persona < kPersonas; ++persona)
    nodes.push_back(one->ask(persona_body(persona)).route("node"));
  ASSERT_TRUE(answers(*one, second_, 0));
  two = start(second_, {first_});
  for (int persona = 0; persona < kPersonas; ++persona) {
    ASSERT_TRUE(knows(*two, persona, index_of(nodes[static_cast<size_t>(persona)]))) << persona;
    EXPECT_EQ(two->ask(persona_body(persona)).route("node"), nodes[static_cast<size_t>(persona)]);
  }
}

// The workers' counts make a table at once; a peer's placements take precedence over it at a new gateway.
TEST_F(GossipTest, NewGatewayRoutesByPlacementsNotByTheTable) {
  loop_.call([&] {
    for (StubWorker* stub : {&a_, &b_}) {
      stub->load_status = 200;
      stub->load.epoch = "first";
      stub->load.ready = true;
      for (int persona = 0; persona < kPersonas; ++persona)
        stub->load.sets.push_back({set_of(persona), 1000, 400});
    }
    b_.ready_status = 503;
  });
  const auto one = start(first_, {second_});
  ASSERT_TRUE(one->becomes(0, "ready") && one->becomes(1, "draining"));
  for (int persona = 0; persona < kPersonas; ++persona)
    ASSERT_EQ(one->ask(persona_body(persona)).route("node"), a_.id());
  loop_.call([&] { b_.ready_status = 200; });
  const auto two = start(second_, {first_});
  const auto homes_of = [&](route::NodeIndex node) {
    const auto& sets = two->gateway->router().table()->sets();
    return std::count_if(sets.begin(), sets.end(),
                         [&](const auto& its) { return its.second.contains(node); });
  };
  ASSERT_TRUE(loop_.eventually([&] { return homes_of(0) >= 2 && homes_of(1) >= 2; }));
  for (int persona = 0; persona < kPersonas; ++persona) {
    ASSERT_TRUE(knows(*two, persona, 0)) << persona;
    EXPECT_EQ(two->ask(persona_body(persona)).route("node"), a_.id()) << persona;
  }
}

TEST_F(GossipTest, LedgersOfPeersCountUntilTheyFallSilent) {
  loop_.call([&] { a_.answer = b_.answer = never_answer; });
  auto one = start(first_, {second_}, true);
  const auto two = start(second_, {first_}, true);
  ASSERT_TRUE(answers(*one, second_) && answers(*two, first_));
  RawPeer client = one->connect();
  client.send(http_post("/v1/chat/completions", persona_body(0)));
  const auto in_flight_elsewhere = [&] {
    const auto& loads = two->gateway->router().loads();
    return loads.at(0).peers_requests + loads.at(1).peers_requests;
  };
  ASSERT_TRUE(loop_.eventually([&] { return a_.running + b_.running == 1; }));
  EXPECT_TRUE(loop_.eventually([&] { return in_flight_elsewhere() == 1; }));
  one.reset();
  EXPECT_TRUE(loop_.eventually([&] { return in_flight_elsewhere() == 0; }));
}

TEST_F(GossipTest, OneGatewayPlansForAllAndTheNextTakesOver) {
  loop_.call([&] {
    a_.load_status = b_.load_status = 200;
    a_.load.epoch = b_.load.epoch = "first";
    a_.load.ready = b_.load.ready = true;
  });
  const auto set_up = [&](int work) {
    loop_.call([&] {
      a_.load.sets.clear();
      for (int persona = 0; persona < kPersonas; ++persona) {
        const Hash128 set = set_of(persona);
        a_.load.sets.push_back({set, 1000 * (persona == 0 ? work : 1), 400});
      }
    });
  };
  set_up(1);
  auto one = start(first_, {second_});
  auto two = start(second_, {first_});
  const auto version = [](const TestGateway& gateway) {
    return gateway.gateway->router().planning().version();
  };
  const auto same = [&](uint64_t epoch) {
    const auto agree = [&] {
      return version(*one).epoch >= epoch && version(*one) == version(*two) &&
             one->gateway->router().table()->sets() == two->gateway->router().table()->sets();
    };
    return loop_.eventually(agree, 20s);
  };
  ASSERT_TRUE(same(1));
  EXPECT_EQ(loop_.call([&] { return one->gateway->router().table()->sets().size(); }), size_t{kPersonas});
  const std::string planner = loop_.call([&] { return version(*two).planner.hex(); });
  EXPECT_NE(one->admin("/admin/table").body.find(planner), std::string::npos);
  const auto one_plans = [&] {
    return one->gateway->router().planning().plans() != two->gateway->router().planning().plans();
  };
  EXPECT_TRUE(loop_.eventually(one_plans));
  // The planner restarts under another name, and receives the table again.
  const bool first_planned = loop_.call([&] { return one->gateway->router().planning().plans(); });
  auto& gone = first_planned ? one : two;
  gone.reset();
  gone = start(first_planned ? first_ : second_, {first_planned ? second_ : first_});
  ASSERT_TRUE(same(1));
  const uint64_t before = loop_.call([&] { return version(*one).epoch; });
  set_up(500);
  EXPECT_TRUE(same(before + 1));
  EXPECT_TRUE(loop_.eventually(one_plans));
}

TEST_F(GossipTest, GatewaysExchangeLoadsWhenWorkersReportNone) {
  const auto one = start(first_, {second_}), two = start(second_, {first_});
  ASSERT_TRUE(answers(*one, second_) && answers(*two, first_));
  for (int persona = 0; persona < kPersonas; ++persona)
    (persona % 2 == 0 ? *one : *two).ask(persona_body(persona));
  for (const auto* gateway : {one.get(), two.get()}) {
    EXPECT_TRUE(loop_.eventually(
        [&] { return gateway->gateway->router().table()->sets().size() == size_t{kPersonas}; }));
  }
}

TEST_F(GossipTest, GatewayWithOtherStrictSetsIsShown) {
  const auto one = start(first_, {});
  route::GatewayAnnouncement announcement;
  announcement.strict_sets = 8;
  const std::string sender = std::string(32, 'a');
  EXPECT_EQ(one->metric("troupe_gateway_gossip_other_sets"), 0);
  EXPECT_EQ(one->admin_send("POST", "/admin/gossip",
                            framed({"TPG1", "TPL1", route::encode_announcement(announcement), "", ""}),
                            "x-troupe-gateway: " + sender + "\r\n")
                .status,
            200);
  EXPECT_EQ(one->metric("troupe_gateway_gossip_other_sets"), 1);
  const auto table = parse_json(one->admin("/admin/table").body);
  ASSERT_TRUE(table.ok());
  const bj::array& gateways = table->at("gateways").as_array();
  ASSERT_EQ(gateways.size(), 1u);
  EXPECT_EQ(gateways[0].at("gateway").as_string(), sender);
  EXPECT_EQ(gateways[0].at("strict_sets").to_number<int>(), 8);
}

TEST_F(GossipTest, MalformedMessagesAreRefused) {
  const auto one = start(first_, {});
  const std::string sender = "x-troupe-gateway: " + std::string(32, 'a') + "\r\n";
  const auto send = [&](const std::string& body, const std::string& headers) {
    return one->admin_send("POST", "/admin/gossip", body, headers).status;
  };
  const std::string announcement = route::encode_announcement({});
  const std::string empty_message = framed({"TPG1", "TPL1", announcement, "", ""});
  EXPECT_EQ(send(empty_message, sender), 200);
  EXPECT_EQ(send(empty_message, ""), 400);
  EXPECT_EQ(send(empty_message, "x-troupe-gateway: somebody\r\n"), 400);
  EXPECT_EQ(send("", sender), 400);
  EXPECT_EQ(send(std::string("\xff\xff\xff\xff", 4) + empty_message.substr(4), sender), 400);
  EXPECT_EQ(send(empty_message + "x", sender), 400);
  for (size_t cut = 0; cut < empty_message.size(); cut += 5)
    EXPECT_EQ(send(empty_message.substr(0, cut), sender), 400) << cut;
  EXPECT_EQ(send(framed({"TPG1x", "TPL1", announcement, "", ""}), sender), 400);
  EXPECT_EQ(send(framed({"TPG1", "TPL1x", announcement, "", ""}), sender), 400);
  EXPECT_EQ(send(framed({"TPG1", "TPL1", announcement + "x", "", ""}), sender), 400);
  EXPECT_EQ(send(framed({"TPG1", "TPL1", announcement, "TPT1", ""}), sender), 400);
  EXPECT_EQ(send(framed({"TPG1", "TPL1", announcement, "", "TPT1"}), sender), 400);
  const Answer refused =
      one->admin_send("POST", "/admin/gossip",
                      framed({"TPG1", "TPL1", announcement, "TPT1" + std::string(60, '\0'), ""}), sender);
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.body.find("table.epoch"), std::string::npos) << refused.body;
  EXPECT_EQ(one->admin("/admin/gossip").status, 405);
}

GossipAuth seal_of(const std::string& secret) {
  return GossipAuth([secret](std::string_view bytes) { return keyed_hash(secret, bytes); });
}

TEST_F(GossipTest, OnlySealedMessagesAreAccepted) {
  seal_ = seal_of("the fleet's own");
  const auto one = start(first_, {second_}), two = start(second_, {first_});
  ASSERT_TRUE(answers(*one, second_) && answers(*two, first_));
  const std::string node = one->ask(persona_body(0)).route("node");
  EXPECT_TRUE(knows(*two, 0, index_of(node)));
  EXPECT_EQ(one->metric("troupe_gateway_gossip_refused_total"), 0);

  const std::string name(32, 'a'), sender = "x-troupe-gateway: " + name + "\r\n";
  const std::string message = framed({"TPG1", "TPL1", route::encode_announcement({}), "", ""});
  const auto send = [&](const std::string& stamp, const std::string& seal) {
    const std::string header = seal.empty() ? "" : "x-troupe-gossip-seal: " + seal + "\r\n";
    return one->admin_send("POST", "/admin/gossip", message,
                           sender + "x-troupe-gossip-stamp: " + stamp + "\r\n" + header);
  };
  for (const std::string& seal :
       {std::string(), std::string("guess"), std::string(64, '0'),
        seal_of("another").of_message({name, "/1", message}),
        seal_.of_message({std::string(32, 'b'), "/1", message}), seal_.of_message({name, "/2", message}),
        seal_.of_message({name, "/1", message + "x"})}) {
    const Answer refused = send("/1", seal);
    EXPECT_EQ(refused.status, 403) << seal;
    EXPECT_NE(refused.body.find("gossip.secret"), std::string::npos) << refused.body;
  }
  EXPECT_EQ(one->metric("troupe_gateway_gossip_refused_total"), 7);
  const auto others = [&] { return one->gateway->router().planning().gateways().others().size(); };
  const auto sealed = [&](const std::string& stamp) {
    return send(stamp, seal_.of_message({name, stamp, message}));
  };
  const Answer asked = sealed("/1");
  EXPECT_EQ(asked.status, 409) << "who does not know the challenge is told it";
  EXPECT_EQ(asked.header("x-troupe-gossip-seal"),
            seal_.of_answer(seal_.of_message({name, "/1", message}), asked.body));
  EXPECT_EQ(loop_.call(others), 1u);
  const std::string stamp = asked.body + "/2";
  const Answer taken = sealed(stamp);
  EXPECT_EQ(taken.status, 200);
  EXPECT_EQ(taken.header("x-troupe-gossip-seal"),
            seal_.of_answer(seal_.of_message({name, stamp, message}), taken.body));
  EXPECT_EQ(one->metric("troupe_gateway_gossip_refused_total"), 7);

  // The same bytes again, as somebody who recorded them sends them, also long after their sender has died.
  EXPECT_TRUE(loop_.eventually([&] { return others() == 1; }));
  EXPECT_EQ(sealed(stamp).status, 409);
  EXPECT_EQ(loop_.call(others), 1u);
  EXPECT_EQ(one->metric("troupe_gateway_gossip_refused_total"), 8);
}

// A peer that restarts under the same address has another challenge.
TEST_F(GossipTest, SealedMessagesReachTheNextLifeOfAPeer) {
  seal_ = seal_of("the fleet's own");
  const auto one = start(first_, {second_});
  auto two = start(second_, {first_});
  ASSERT_TRUE(answers(*one, second_));
  two.reset();
  ASSERT_TRUE(answers(*one, second_, 0));
  two = start(second_, {first_});
  EXPECT_TRUE(answers(*one, second_));
  const std::string node = one->ask(persona_body(0)).route("node");
  EXPECT_TRUE(knows(*two, 0, index_of(node)));
}

TEST(GossipFreshness, MessageCountsOnce) {
  GossipFreshness fresh("life");
  const Hash128 peer{1, 2}, other{3, 4};
  const auto stamp = [&](uint64_t count) { return gossip_stamp(fresh.challenge(), count); };
  EXPECT_FALSE(fresh.take(peer, gossip_stamp("", 1))) << "a first message";
  EXPECT_TRUE(fresh.take(peer, stamp(2)));
  EXPECT_FALSE(fresh.take(peer, stamp(2)));
  EXPECT_FALSE(fresh.take(peer, stamp(1)));
  EXPECT_TRUE(fresh.take(peer, stamp(7)));
  EXPECT_TRUE(fresh.take(other, stamp(1))) << "each sender counts for itself";
  EXPECT_FALSE(fresh.take(peer, gossip_stamp(GossipFreshness("another").challenge(), 8))) << "another life's";
  for (const std::string& bad :
       {std::string(), fresh.challenge(), fresh.challenge() + "/", std::string("/"),
        fresh.challenge() + "/-1", fresh.challenge() + "/8x", fresh.challenge() + "/99999999999999999999"})
    EXPECT_FALSE(fresh.take(peer, bad)) << bad;
}

// Many lives: memory is bounded, and what was recorded before stays refused.
TEST(GossipFreshness, ForgottenSendersMustAskAgain) {
  GossipFreshness fresh("life");
  const std::string recorded = gossip_stamp(fresh.challenge(), 1);
  for (uint64_t life = 1; life <= 10'000; ++life) {
    const Hash128 sender{life, 0};
    const bool taken = fresh.take(sender, gossip_stamp(fresh.challenge(), 1));
    EXPECT_TRUE(taken || fresh.take(sender, gossip_stamp(fresh.challenge(), 2)));
    ASSERT_LE(fresh.senders(), 4096u);
  }
  EXPECT_FALSE(fresh.take(Hash128{1, 0}, recorded));
}

Task<void> claim_to_be_a_gateway(Exchange& exchange) {
  const HeaderList headers;
  std::string body = std::string(32, 'c') + route::encode_announcement({});
  co_await exchange.respond(200, headers, std::move(body));
}

TEST_F(GossipTest, UnsealedAnswerIsIgnored) {
  seal_ = seal_of("the fleet's own");
  TestServer liar(loop_, claim_to_be_a_gateway);
  const auto one = start(first_, {liar.endpoint()});
  EXPECT_TRUE(loop_.eventually([&] { return one->gateway->gossip().refused() >= 2; }));
  EXPECT_TRUE(loop_.call([&] { return one->gateway->router().planning().gateways().others().empty(); }));
  EXPECT_TRUE(answers(*one, liar.endpoint(), 0));
}

TEST_F(GossipTest, PeersAreConfigured) {
  GatewaySettings settings;
  settings.worker_urls = {"http://127.0.0.1:1"};
  settings.gossip_peers = {"http://127.0.0.1:2", "http://127.0.0.1:3"};
  auto config = make_config(settings);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->gossip.peers.size(), 2u);
  EXPECT_EQ(config->router.affinity.gateways, 3);
  EXPECT_TRUE(config->router.affinity.peer_ledger && config->gossip.rules.ledger);
  settings.gossip.rules.gateways = 5;
  EXPECT_EQ(make_config(settings)->router.affinity.gateways, 5);
  settings.gossip_peers = {"ftp://127.0.0.1:2"};
  EXPECT_NE(make_config(settings).status().message().find("gossip.peers[0]"), absl::string_view::npos);
}

TEST_F(GossipTest, AdvertisedAddressNeedsEtcdAndAValidUrl) {
  GatewaySettings settings;
  settings.worker_urls = {"http://127.0.0.1:1"};
  EXPECT_FALSE(make_config(settings)->gossip.finds);
  settings.state.advertise_url = "http://127.0.0.1:29000";
  const auto error = [&] { return std::string(make_config(settings).status().message()); };
  EXPECT_THAT(error(), ::testing::HasSubstr(
                           "gossip.advertise_url: http://127.0.0.1:29000: is of use with state: etcd only"));
  settings.state_store = "etcd";
  settings.etcd_endpoints = {"http://127.0.0.1:2379"};
  ASSERT_EQ(error(), "");
  EXPECT_TRUE(make_config(settings)->gossip.finds);
  EXPECT_TRUE(make_config(settings)->router.affinity.peer_ledger);
  EXPECT_EQ(make_config(settings)->state.advertise_url, settings.state.advertise_url);
  settings.state.advertise_url = "https://127.0.0.1:29000";
  EXPECT_THAT(error(), ::testing::HasSubstr("must be http://, for metrics_tls is off"));
  settings.state.advertise_url = "ftp://127.0.0.1:29000";
  EXPECT_THAT(error(), ::testing::HasSubstr("gossip.advertise_url"));
}

}  // namespace
}  // namespace troupe::gateway_test
