// Pins of two gateways in one etcd: each writes on the revision that it knows, and neither undoes what the
// other did while it could not hear of it.

#include "gateway/cluster/pin_store.h"

#include "common/api/prefix.h"
#include "tests/gateway/cluster/scripted_etcd.h"
#include "tests/gateway/gateway_fixture.h"

namespace troupe::gateway_test {
namespace {

// A gateway's pins, without the gateway.
struct Side {
  Side(Loop& event_loop, const std::vector<Endpoint>& members, const std::string& name)
      : loop(event_loop), router(route::RouterOptions{}, 1) {
    loop.call([&] {
      const Fleet::Parts fleet_parts{loop.executor(), router, metrics, clock, log};
      fleet = std::make_unique<Fleet>(FleetOptions{}, fleet_parts);
      const PinReconciler::Parts reconciler{loop.executor(), *fleet, router, metrics, clock, log};
      pins = std::make_unique<PinReconciler>(route::PinOptions{}, reconciler);
      const PinStore::Parts parts{loop.executor(), *pins, metrics, clock, log, name};
      EtcdOptions etcd;
      etcd.members = members;
      store = std::make_unique<PinStore>(etcd, "/troupe/v1", parts);
      tasks = std::make_unique<TaskGroup>(loop.executor());
      store->start(*tasks);
    });
  }
  ~Side() {
    stop();
    loop.call([this] {
      tasks.reset();
      store.reset();
      pins.reset();
      fleet.reset();
    });
  }
  void stop() {
    loop.call([this] {
      tasks->close();
      tasks->cancel();
    });
    loop.run(tasks->join());
  }

  Loop& loop;
  Metrics metrics;
  SteadyClock clock;
  Logger log{LogLevel::kError, -1};
  route::Router router;
  std::unique_ptr<Fleet> fleet;
  std::unique_ptr<PinReconciler> pins;
  std::unique_ptr<PinStore> store;
  std::unique_ptr<TaskGroup> tasks;
};

route::Pin pin_of(const std::string& name, int64_t tokens, Duration ttl = 1h) {
  route::Pin pin;
  pin.prefix = hash_bytes(name);
  pin.id = route::Pin::id_of(pin.prefix, "");
  pin.model = "demo";
  pin.tokens = tokens;
  pin.answer = R"({"id":"prefix-1"})";
  pin.body = R"({"model":"demo","prompt":"x","ttl_s":)";
  pin.shared = true;
  pin.expires = true;
  pin.until = now() + ttl;
  return pin;
}

class PinStoreTest : public ::testing::Test {
 protected:
  PinStoreTest() {
    // (Before either reads what the store has, a removal may be of anything.)
    EXPECT_TRUE(holds(a_, 0) && holds(b_, 0));
    put(a_, pin_of("first", 1));
    EXPECT_TRUE(holds(a_, 1) && holds(b_, 1));
  }
  static constexpr int64_t kNone = -1;
  static Hash128 id() { return pin_of("one", 0).id; }
  static std::string key() { return "/troupe/v1/pins/" + prefix_id(id()); }
  void put(Side& side, route::Pin pin) {
    loop_.call([&] { side.pins->registry().put(std::move(pin)); });
  }
  void erase(Side& side) {
    loop_.call([&] { side.pins->registry().erase(id()); });
  }
  bool holds(Side& side, size_t pins) {
    return loop_.eventually([&] { return side.pins->registry().size() == pins; });
  }
  int64_t tokens(Side& side) {
    const route::Pin* pin = side.pins->registry().find(id());
    return pin == nullptr ? kNone : pin->tokens;
  }
  int64_t stored() {
    const auto found = etcd_.keys.find(key());
    return found == etcd_.keys.end() ? kNone : parse_pin_record(found->second.value)->pin.tokens;
  }
  // All three, within five seconds and still a moment later.
  bool agree_on(int64_t count) {
    const auto agree = [&] { return tokens(a_) == count && tokens(b_) == count && stored() == count; };
    if (!loop_.eventually(agree)) return false;
    std::this_thread::sleep_for(50ms);
    return loop_.call(agree);
  }
  bool has_lease_of(int64_t seconds) {
    return loop_.call([&] {
      const auto found = etcd_.leases.find(etcd_.keys.at(key()).lease);
      return found != etcd_.leases.end() && std::abs(found->second - seconds) <= 2;
    });
  }
  template <typename F>
  void with_etcd(F change) {
    loop_.call([&] { change(etcd_); });
  }

  Loop loop_;
  ScriptedEtcd etcd_{loop_};
  Side a_{loop_, {etcd_.endpoint()}, "a"}, b_{loop_, {etcd_.endpoint()}, "b"};
};

TEST_F(PinStoreTest, WhatIsMadeAndRemovedAtOneIsSoAtTheOther) {
  put(a_, pin_of("one", 7, 1h));
  EXPECT_TRUE(agree_on(7));
  EXPECT_TRUE(has_lease_of(3600));
  put(b_, pin_of("one", 8, 2h));
  EXPECT_TRUE(agree_on(8));
  EXPECT_TRUE(has_lease_of(7200));
  EXPECT_EQ(loop_.call([&] { return etcd_.leases.size(); }), 2u) << "of each pin one";
  erase(a_);
  EXPECT_TRUE(agree_on(kNone));
  EXPECT_EQ(loop_.call([&] { return etcd_.leases.size(); }), 1u);
}

// Where it is held changes at a gateway that has not heard of the removal.
TEST_F(PinStoreTest, APlaceDoesNotBringBackWhatTheOtherRemoved) {
  put(a_, pin_of("one", 7));
  ASSERT_TRUE(agree_on(7));
  with_etcd([](ScriptedEtcd& etcd) { etcd.watch_lags = true; });
  erase(b_);
  ASSERT_TRUE(loop_.eventually([&] { return stored() == kNone; }));
  loop_.call([&] { a_.pins->registry().unplace(hash_bytes("one")); });
  EXPECT_TRUE(loop_.eventually([&] { return tokens(a_) == kNone; })) << "the store told it";
  with_etcd([](ScriptedEtcd& etcd) { etcd.watch_lags = false; });
  EXPECT_TRUE(agree_on(kNone));
  EXPECT_EQ(loop_.call([&] { return etcd_.leases.size(); }), 1u) << "none for what was not written";
}

TEST_F(PinStoreTest, OneThatEndsHereIsNotRemovedWhereTheOtherRenewedIt) {
  put(a_, pin_of("one", 7, 200ms));
  ASSERT_TRUE(agree_on(7));
  // A cannot write, and cannot hear.
  with_etcd([](ScriptedEtcd& etcd) {
    etcd.watch_lags = true;
    etcd.away = true;
  });
  loop_.call([&] { a_.pins->registry().unplace(hash_bytes("one")); });
  std::this_thread::sleep_for(200ms);
  loop_.call([&] { a_.pins->registry().expire(now()); });
  EXPECT_EQ(loop_.call([&] { return tokens(a_); }), kNone);
  with_etcd([](ScriptedEtcd& etcd) { etcd.away = false; });
  put(b_, pin_of("one", 8, 1h));
  EXPECT_TRUE(loop_.eventually([&] { return stored() == 8; }));
  std::this_thread::sleep_for(700ms);  // A tries again within it
  EXPECT_EQ(loop_.call([&] { return stored(); }), 8);
  with_etcd([](ScriptedEtcd& etcd) { etcd.watch_lags = false; });
  EXPECT_TRUE(agree_on(8));
}

TEST_F(PinStoreTest, AnAnswerThatIsLostIsNoOtherGatewaysWrite) {
  with_etcd([](ScriptedEtcd& etcd) { etcd.answers_lost = 1; });
  put(a_, pin_of("one", 7));
  EXPECT_TRUE(agree_on(7));
  with_etcd([](ScriptedEtcd& etcd) { etcd.answers_lost = 1; });
  erase(a_);
  EXPECT_TRUE(agree_on(kNone));
  EXPECT_EQ(loop_.call([&] { return etcd_.leases.size(); }), 1u);
}

TEST_F(PinStoreTest, AnotherStoreIsGivenWhatIsKnown) {
  put(a_, pin_of("one", 7));
  ASSERT_TRUE(agree_on(7));
  with_etcd([](ScriptedEtcd& etcd) { etcd.replace("77"); });
  EXPECT_TRUE(loop_.eventually([&] { return stored() == 7; }));
  EXPECT_TRUE(agree_on(7));
  EXPECT_TRUE(has_lease_of(3600)) << "a new one: the other store had the last";
  EXPECT_EQ(loop_.call([&] { return etcd_.keys.size(); }), 2u);
}

TEST_F(PinStoreTest, TheLastChangesAreWrittenOnTheWayOut) {
  a_.stop();
  put(a_, pin_of("one", 7));
  put(a_, pin_of("two", 8));
  loop_.run(a_.store->flush(now() + 2s));
  EXPECT_TRUE(holds(b_, 3));
  put(a_, pin_of("three", 9));
  with_etcd([](ScriptedEtcd& etcd) { etcd.away = true; });
  const TimePoint begin = now();
  loop_.run(a_.store->flush(now() + 2s));
  EXPECT_LT(now() - begin, 4s) << "a store that is away keeps nobody";
}

}  // namespace
}  // namespace troupe::gateway_test
