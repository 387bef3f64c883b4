// Names whose resolver gives a few of many addresses with each answer.

#include <gtest/gtest.h>

#include <boost/asio/ip/address.hpp>

#include "common/net/client_pool.h"

namespace troupe::net_test {
namespace {

std::vector<Tcp::endpoint> at(const std::vector<int>& hosts) {
  std::vector<Tcp::endpoint> addresses;
  for (const int host : hosts)
    addresses.emplace_back(boost::asio::ip::make_address("10.0.0." + std::to_string(host)), 80);
  return addresses;
}
Tcp::endpoint one(int host) {
  return at({host}).front();
}

TEST(KnownAddresses, ThoseThatAnAnswerLeavesOutStay) {
  KnownAddresses known;
  for (int round = 0; round < 20; ++round) {
    known.learn(at({1 + round % 3}));  // three addresses, one at a time
    if (round < 2) continue;
    for (const int host : {1, 2, 3}) EXPECT_TRUE(known.has(one(host))) << round << " " << host;
  }
}

TEST(KnownAddresses, ThoseThatAllOfTheLastAnswersLeaveOutAreGone) {
  KnownAddresses known;
  EXPECT_TRUE(known.empty());
  known.learn(at({1, 2}));
  for (int i = 1; i < KnownAddresses::kAnswersWithout; ++i) known.learn(at({2}));
  EXPECT_TRUE(known.has(one(1)));
  known.learn({});
  EXPECT_TRUE(known.has(one(1))) << "a failed lookup says nothing";
  known.learn(at({2}));
  EXPECT_FALSE(known.has(one(1)));
  EXPECT_TRUE(known.has(one(2)));
  EXPECT_FALSE(known.has(Tcp::endpoint(one(2).address(), 81))) << "another port";
  known.add(at({3}));
  EXPECT_TRUE(known.has(one(2)) && known.has(one(3)));
}

TEST(KnownAddresses, AreBounded) {
  KnownAddresses known;
  std::vector<Tcp::endpoint> many;
  for (size_t i = 0; i < 2 * KnownAddresses::kMax; ++i)
    many.emplace_back(boost::asio::ip::make_address("10.0.0.1"), static_cast<uint16_t>(i + 1));
  known.learn(many);
  EXPECT_TRUE(known.has(many[KnownAddresses::kMax - 1]));
  EXPECT_FALSE(known.has(many[KnownAddresses::kMax]));
}

}  // namespace
}  // namespace troupe::net_test
