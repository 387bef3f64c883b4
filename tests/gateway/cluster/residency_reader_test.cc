// The gateway learns its workers' residency from their own events.

#include "gateway/cluster/residency_reader.h"

#include <gtest/gtest.h>

#include <thread>

#include "common/api/api.h"
#include "common/json/json.h"
#include "gateway/route/key/prefix_key.h"
#include "tests/gateway/gateway_fixture.h"

namespace troupe::gateway_test {
namespace {

using Kind = ResidencyEvent::Kind;

const std::string kHeldCard(1600, 'p');

Hash128 set_of(const std::string& body) {
  return route::make_prefix_key(parse_chat_request(body).value(), "").set;
}

ResidencyItem holds(Hash128 set, int64_t tokens) {
  return {HolderKind::kSet, set, tokens};
}

std::string event(Kind kind, const std::string& epoch, uint64_t seq,
                  const std::vector<ResidencyItem>& items) {
  std::string bytes;
  append_residency_event(bytes, kind, epoch, seq, items);
  return bytes;
}

class ResidencyReaderTest : public ::testing::Test {
 protected:
  void start(const std::function<void(GatewayConfig&)>& change = {}) {
    GatewayConfig config = TestGateway::quick_config();
    config.router.affinity.hot_factor = 0;  // else so few requests make the persona hot
    config.residency.retry_min = 5ms;
    config.residency.retry_max = 20ms;
    if (change) change(config);
    gateway_ =
        std::make_unique<TestGateway>(loop_, std::vector<Upstream>{a_.endpoint(), b_.endpoint()}, config);
  }
  void TearDown() override { gateway_.reset(); }

  void tell(StubWorker& stub, const std::string& bytes) {
    loop_.call([&] { stub.told += bytes; });
  }
  void begin(StubWorker& stub, const std::string& snapshot) {
    loop_.call([&] {
      stub.tells_residency = true;
      stub.told = snapshot;
      stub.hang_ups += 1;
    });
  }
  // Waits until the node is reported to hold that many of the set's tokens; -1: until it is out of step.
  bool knows(route::NodeIndex node, int64_t tokens) {
    const Hash128 set = set_of(body_);
    return loop_.eventually([&] {
      const auto& exact = *gateway_->gateway->router().known().exact;
      return tokens < 0 ? !exact.feeds.in_step(node)
                        : exact.feeds.in_step(node) && exact.index.tokens(set, node) == tokens;
    });
  }
  // The worker that answers one request.
  std::string node() { return gateway_->ask(body_).route("node"); }

  const std::string body_ = chat_body(kHeldCard, "Who are you?");
  Loop loop_;
  StubWorker a_{loop_, answer_whole}, b_{loop_, answer_whole};
  std::unique_ptr<TestGateway> gateway_;
};

TEST_F(ResidencyReaderTest, RequestsGoToWorkersThatReportTheirPersona) {
  const Hash128 set = set_of(body_);
  begin(a_, event(Kind::kSnapshot, "a1", 0, {}));
  begin(b_, event(Kind::kSnapshot, "b1", 7, {holds(set, 400)}));
  start();
  ASSERT_TRUE(knows(0, 0) && knows(1, 400));
  for (int i = 0; i < 5; ++i) EXPECT_EQ(node(), b_.id());
  tell(b_, event(Kind::kEvicted, "b1", 8, {holds(set, 0)}));
  tell(a_, event(Kind::kAdmitted, "a1", 1, {holds(set, 400)}));
  ASSERT_TRUE(knows(0, 400) && knows(1, 0));
  for (int i = 0; i < 5; ++i) EXPECT_EQ(node(), a_.id());
  EXPECT_EQ(gateway_->metric("troupe_gateway_residency_in_step{worker=\"" + a_.id() + "\"}"), 1);
  EXPECT_EQ(gateway_->metric("troupe_gateway_residency_gaps_total"), 0);
}

TEST_F(ResidencyReaderTest, SnapshotMendsAGap) {
  const Hash128 set = set_of(body_);
  begin(a_, event(Kind::kSnapshot, "a1", 3, {}));
  start();
  ASSERT_TRUE(knows(0, 0));
  const int asked = loop_.call([&] { return a_.residency_asked; });
  tell(a_, event(Kind::kAdmitted, "a1", 5, {holds(set, 32)}));  // 4 is missing
  ASSERT_TRUE(loop_.eventually([&] { return a_.residency_asked > asked; }));
  begin(a_, event(Kind::kSnapshot, "a1", 6, {holds(set, 64)}));
  EXPECT_TRUE(knows(0, 64));
  EXPECT_GE(gateway_->metric("troupe_gateway_residency_gaps_total"), 1);
}

TEST_F(ResidencyReaderTest, NewEpochRevealsARestart) {
  const Hash128 set = set_of(body_);
  begin(a_, event(Kind::kSnapshot, "a1", 3, {holds(set, 400)}));
  start();
  ASSERT_TRUE(knows(0, 400));
  begin(a_, event(Kind::kSnapshot, "a2", 0, {}));
  ASSERT_TRUE(knows(0, 0));
  tell(a_, event(Kind::kAdmitted, "a2", 1, {holds(set, 48)}));
  EXPECT_TRUE(knows(0, 48));
}

TEST_F(ResidencyReaderTest, NewEpochInALoadReportReopensTheStream) {
  const Hash128 set = set_of(body_);
  loop_.call([&] {
    a_.load_status = 200;
    a_.load.epoch = "a1";
    a_.load.ready = true;
  });
  begin(a_, event(Kind::kSnapshot, "a1", 3, {holds(set, 400)}));
  start();
  ASSERT_TRUE(knows(0, 400));
  loop_.call([&] {
    a_.load.epoch = "a2";
    a_.told = event(Kind::kSnapshot, "a2", 0, {holds(set, 16)});
  });
  EXPECT_TRUE(knows(0, 16));
}

TEST_F(ResidencyReaderTest, PinsAreShownWithTheirNodes) {
  const Hash128 set = set_of(body_), other = hash_bytes("another set");
  const auto pinned = [](const Hash128& name) {
    ResidencyItem item = holds(name, 400);
    item.pinned = true;
    return item;
  };
  const auto shown = [this](const Hash128& name) {
    std::string nodes;
    const auto table = parse_json(gateway_->admin("/admin/table").body);
    for (const bj::value& entry : table->at("pinned").as_array()) {
      if (entry.at("set").as_string() != name.hex()) continue;
      for (const bj::value& node : entry.at("nodes").as_array()) nodes += std::string(node.as_string()) + " ";
    }
    return nodes;
  };
  const auto becomes = [&](const Hash128& name, const std::string& nodes) {
    for (int i = 0; i < 5000 && shown(name) != nodes; ++i) std::this_thread::sleep_for(1ms);
    return shown(name) == nodes;
  };
  const std::string a = a_.id() + " ", b = b_.id() + " ";
  begin(a_, event(Kind::kSnapshot, "a1", 0, {pinned(set), holds(other, 64)}));
  begin(b_, event(Kind::kSnapshot, "b1", 0, {}));
  start();
  ASSERT_TRUE(becomes(set, a));
  EXPECT_EQ(shown(other), "");
  tell(b_, event(Kind::kAdmitted, "b1", 1, {pinned(set)}));
  tell(a_, event(Kind::kAdmitted, "a1", 1, {pinned(other)}));
  EXPECT_TRUE(becomes(set, a + b) && becomes(other, a));
  tell(a_, event(Kind::kAdmitted, "a1", 2, {holds(set, 400)}));  // its time was over
  EXPECT_TRUE(becomes(set, b));
  begin(b_, event(Kind::kSnapshot, "b2", 0, {}));  // restarted
  EXPECT_TRUE(becomes(set, ""));
  EXPECT_EQ(shown(other), a);
}

TEST_F(ResidencyReaderTest, BrokenStreamIsDiscardedUntilTheNextSnapshot) {
  const Hash128 set = set_of(body_);
  begin(a_, event(Kind::kSnapshot, "a1", 1, {holds(set, 400)}));
  start();
  ASSERT_TRUE(knows(0, 400));
  loop_.call([&] {
    a_.told.clear();
    a_.hang_ups += 1;
  });
  EXPECT_TRUE(knows(0, -1));
  begin(a_, event(Kind::kSnapshot, "a1", 2, {holds(set, 416)}));
  EXPECT_TRUE(knows(0, 416));
}

TEST_F(ResidencyReaderTest, MalformedEventEndsTheStreamAndIsCounted) {
  begin(a_, event(Kind::kSnapshot, "a1", 1, {}));
  start();
  ASSERT_TRUE(knows(0, 0));
  tell(a_, "event: admitted\ndata: {\"epoch\":\"a1\",\"seq\":2}\n\n");
  EXPECT_TRUE(loop_.eventually([&] { return a_.residency_asked >= 3; }));
  EXPECT_GE(gateway_->metric("troupe_gateway_residency_malformed_total"), 1);
}

TEST_F(ResidencyReaderTest, SilentStreamIsClosed) {
  begin(a_, event(Kind::kSnapshot, "a1", 1, {}));
  start([](GatewayConfig& config) { config.residency.silence_max = 50ms; });
  EXPECT_TRUE(loop_.eventually([&] { return a_.residency_asked >= 3; }));
}

TEST_F(ResidencyReaderTest, WorkerWithoutAFeedIsAskedOncePerLifeAndRoutedByPlacements) {
  start();
  ASSERT_TRUE(loop_.eventually([&] { return a_.residency_asked == 1 && b_.residency_asked == 1; }));
  const std::string first = node();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(node(), first);
  EXPECT_EQ(loop_.call([&] { return a_.residency_asked; }), 1);
  // A worker that returns after a death may be another program.
  loop_.call([&] { a_.ready_status = 500; });
  ASSERT_TRUE(gateway_->becomes(0, "dead"));
  begin(a_, event(Kind::kSnapshot, "a1", 1, {holds(set_of(body_), 80)}));
  loop_.call([&] { a_.ready_status = 200; });
  EXPECT_TRUE(knows(0, 80));
}

TEST_F(ResidencyReaderTest, StreamOfADeadWorkerIsClosed) {
  begin(a_, event(Kind::kSnapshot, "a1", 1, {holds(set_of(body_), 80)}));
  start();
  ASSERT_TRUE(knows(0, 80));
  loop_.call([&] { a_.ready_status = 500; });
  ASSERT_TRUE(gateway_->becomes(0, "dead"));
  EXPECT_TRUE(knows(0, -1));
  EXPECT_EQ(loop_.call([&] { return gateway_->gateway->router().known().exact->index.items_of(0); }), 0u);
}

TEST_F(ResidencyReaderTest, NoStreamIsOpenedInModesThatDoNotUseIt) {
  GatewaySettings settings;
  settings.worker_urls = {"http://127.0.0.1:1"};
  for (const auto& [mode, asks] : {std::pair(route::Mode::kExact, true),
                                   {route::Mode::kStrict, true},
                                   {route::Mode::kGossip, false},
                                   {route::Mode::kPlan, false}}) {
    settings.router.affinity.mode = mode;
    const auto config = make_config(settings);
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(config->residency.enabled, asks) << route::mode_name(mode);
  }
  begin(a_, event(Kind::kSnapshot, "a1", 1, {}));
  start([](GatewayConfig& config) { config.residency.enabled = false; });
  node();
  EXPECT_EQ(loop_.call([&] { return a_.residency_asked; }), 0);
}

TEST_F(ResidencyReaderTest, TableIsPlannedFromTheWorkersCounts) {
  const Hash128 elsewhere = hash_bytes("a set that other gateways send");
  loop_.call([&] {
    for (StubWorker* stub : {&a_, &b_}) {
      stub->load_status = 200;
      stub->load.epoch = stub->id();
      stub->load.ready = true;
      stub->load.kv_blocks_total = 1000;
    }
    b_.load.sets = {{elsewhere, 5000, 640}};
  });
  start([](GatewayConfig& config) { config.router.planner.tick = 50ms; });
  EXPECT_TRUE(loop_.eventually([&] {
    const auto& table = *gateway_->gateway->router().table();
    return table.find(elsewhere, "demo") != nullptr;
  }));
}

}  // namespace
}  // namespace troupe::gateway_test
