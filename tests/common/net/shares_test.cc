// How bodies' memory and connections are shared by clients where there are not enough of them.

#include <gtest/gtest.h>

#include <deque>

#include "common/net/body_shares.h"
#include "common/net/connection_shares.h"

namespace troupe::net_test {
namespace {

using namespace std::chrono_literals;
using Use = ConnectionShares::Use;

constexpr uint64_t kMiB = 1u << 20;
const TimePoint kBegin = TimePoint{} + 1h;

struct Bodies {
  BodyShares::Share& add(const std::string& address, uint64_t bytes, TimePoint at = kBegin) {
    BodyShares::Share& share = list.emplace_back();
    share.address = address;
    shares.hold(share, bytes, at);
    return share;
  }
  BodyShares shares;
  std::deque<BodyShares::Share> list;
};

TEST(ClientShare, IsOfAnIPv4AddressOrAnIPv6Network) {
  const auto share = [](const char* text) { return share_of(boost::asio::ip::make_address(text)); };
  EXPECT_EQ(share("192.0.2.7"), "192.0.2.7");
  EXPECT_EQ(share("::ffff:192.0.2.7"), "192.0.2.7");
  EXPECT_NE(share("192.0.2.7"), share("192.0.2.8"));
  EXPECT_NE(share("::ffff:192.0.2.7"), share("::ffff:192.0.2.8"));
  EXPECT_EQ(share("2001:db8:0:1::1"), "2001:db8:0:1::/64");
  EXPECT_EQ(share("2001:db8:0:1:ffff:ffff:ffff:ffff"), share("2001:db8:0:1::1"));
  EXPECT_NE(share("2001:db8:0:2::1"), share("2001:db8:0:1::1"));
  EXPECT_EQ(share("fe80::1%1"), share("fe80::2")) << "a zone is no part of it";
  EXPECT_EQ(share("::1"), "::1");
}

TEST(BodyShares, CountsWhatIsHeld) {
  Bodies bodies;
  BodyShares::Share& a = bodies.add("a", 3 * kMiB);
  BodyShares::Share& b = bodies.add("b", kMiB);
  EXPECT_EQ(bodies.shares.bytes(), 4 * kMiB);
  EXPECT_EQ(bodies.shares.too_much(b, 4 * kMiB, kBegin), nullptr);
  bodies.shares.release(a);
  bodies.shares.hold(b, 2 * kMiB, kBegin);
  EXPECT_EQ(bodies.shares.bytes(), 2 * kMiB);
  bodies.shares.release(b);
  EXPECT_EQ(bodies.shares.bytes(), 0u);
}

TEST(BodyShares, AddressWithMostGivesUpItsLargest) {
  Bodies bodies;
  bodies.add("a", 4 * kMiB);
  BodyShares::Share& largest = bodies.add("a", 5 * kMiB);
  BodyShares::Share& other = bodies.add("b", 6 * kMiB);
  EXPECT_EQ(bodies.shares.too_much(other, 10 * kMiB, kBegin), &largest);
  largest.on_its_way = false;  // it is being answered
  EXPECT_EQ(bodies.shares.too_much(other, 10 * kMiB, kBegin), &other);
}

TEST(BodyShares, OfOneAddressTheNewestIsRefusedUnlessAnotherStalls) {
  Bodies bodies;
  BodyShares::Share& first = bodies.add("a", 4 * kMiB);
  BodyShares::Share& newest = bodies.add("a", 2 * kMiB, kBegin + 900ms);
  EXPECT_EQ(bodies.shares.too_much(newest, 5 * kMiB, kBegin + 900ms), &newest);
  // A byte now and then is no progress.
  bodies.shares.hold(first, 4 * kMiB + 1, kBegin + 950ms);
  EXPECT_EQ(bodies.shares.too_much(newest, 5 * kMiB, kBegin + 1s), &first);
  bodies.shares.hold(first, 4 * kMiB + kSmallBodyBytes, kBegin + 1s);
  EXPECT_EQ(bodies.shares.too_much(newest, 5 * kMiB, kBegin + 1s), &newest);
}

TEST(BodyShares, SmallBodiesAlwaysPass) {
  Bodies bodies;
  bodies.add("a", 9 * kMiB);
  BodyShares::Share& small = bodies.add("a", kSmallBodyBytes);
  EXPECT_EQ(bodies.shares.too_much(small, kMiB, kBegin), nullptr);
  bodies.shares.hold(small, kSmallBodyBytes + 1, kBegin);
  EXPECT_EQ(bodies.shares.too_much(small, kMiB, kBegin), &small);
}

struct Connections {
  ConnectionShares::Seat& add(const std::string& address, Use use) {
    ConnectionShares::Seat& seat = list.emplace_back();
    shares.take(seat, address);
    shares.use(seat, use);
    return seat;
  }
  ConnectionShares shares;
  std::deque<ConnectionShares::Seat> list;
};

TEST(ConnectionShares, OldestIdleOneOfTheAddressWithMostIsClosed) {
  Connections connections;
  ConnectionShares::Seat& lone = connections.add("a", Use::kIdle);
  ConnectionShares::Seat& first = connections.add("b", Use::kIdle);
  ConnectionShares::Seat& second = connections.add("b", Use::kIdle);
  EXPECT_EQ(connections.shares.to_close("c"), &first);
  connections.shares.use(first, Use::kAnswering);
  EXPECT_EQ(connections.shares.to_close("c"), &second);
  connections.shares.use(first, Use::kIdle);  // now the one that was used last
  EXPECT_EQ(connections.shares.to_close("c"), &second);
  connections.shares.leave(first);
  connections.shares.leave(first);
  EXPECT_EQ(connections.shares.to_close("b"), &lone) << "one each: the oldest";
  EXPECT_EQ(connections.shares.size(), 2u);
}

TEST(ConnectionShares, RequestsOnTheirWayGiveWayToFewerOfAnotherAddress) {
  Connections connections;
  ConnectionShares::Seat& slow = connections.add("a", Use::kReceiving);
  connections.add("a", Use::kReceiving);
  connections.add("a", Use::kAnswering);
  EXPECT_EQ(connections.shares.to_close("b"), &slow);
  EXPECT_EQ(connections.shares.to_close("a"), nullptr);
  connections.add("b", Use::kAnswering);
  connections.add("b", Use::kAnswering);
  EXPECT_EQ(connections.shares.to_close("b"), nullptr) << "it has as many";
}

}  // namespace
}  // namespace troupe::net_test
