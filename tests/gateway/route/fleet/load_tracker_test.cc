#include "gateway/route/fleet/load_tracker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "common/core/random.h"
#include "tests/gateway/route/cluster.h"

namespace troupe::route {
namespace loads_test {

using testing_cluster::at_ms;
using testing_cluster::cluster;

NodeReport report_of(int64_t running, int64_t pending, int64_t work = 0) {
  NodeReport report;
  report.running = running;
  report.pending_prefill_tokens = pending;
  report.work_tokens_total = work;
  return report;
}

LoadTracker book_over(size_t nodes, AffinityOptions options = {}) {
  LoadTracker book(options);
  book.update_cluster(*cluster(nodes));
  return book;
}

TEST(Loads, LoadIsTheLastReportLessOwnThenPlusOwnNow) {
  LoadTracker book = book_over(2);
  auto a = book.open(0, {500, 600}, at_ms(0));
  book.report(0, report_of(10, 2000), at_ms(1));
  EXPECT_EQ(book.requests(0), 10);
  EXPECT_EQ(book.pending_tokens(0), 2000);
  auto b = book.open(0, {300, 400}, at_ms(2));
  EXPECT_EQ(book.requests(0), 11);
  EXPECT_EQ(book.pending_tokens(0), 2300);
  book.first_byte(a);
  EXPECT_EQ(book.pending_tokens(0), 1800);
  book.close(a);
  book.close(b);
  EXPECT_EQ(book.requests(0), 9);
  EXPECT_EQ(book.in_flight_total(), 0);
}

// The tokens of a finished prefill are taken from those in the report, which had counted down its chunks:
// never from later requests' tokens.
TEST(Loads, RequestThatEndsAfterAReportLeavesLaterOnesPending) {
  LoadTracker book = book_over(1);
  auto old = book.open(0, {3000, 3000}, at_ms(0));
  book.report(0, report_of(1, 400), at_ms(100));  // all but 400 of the 3,000 are computed
  EXPECT_EQ(book.pending_tokens(0), 400);
  auto fresh = book.open(0, {900, 900}, at_ms(101));
  EXPECT_EQ(book.pending_tokens(0), 1300);
  book.first_byte(old);
  EXPECT_EQ(book.pending_tokens(0), 900);
  book.first_byte(fresh);
  EXPECT_EQ(book.pending_tokens(0), 0);
  book.close(old);
  book.close(fresh);
  EXPECT_EQ(book.pending_tokens_total(), 0);
}

TEST(Loads, LoadNeverFallsBelowZero) {
  LoadTracker book = book_over(1);
  auto a = book.open(0, {500, 600}, at_ms(0));
  book.report(0, report_of(0, 0), at_ms(1));
  EXPECT_EQ(book.requests(0), 0);
  book.close(a);
  EXPECT_EQ(book.requests(0), 0);
  EXPECT_EQ(book.pending_tokens(0), 0);
}

TEST(Loads, DeathVoidsAllLoadsAndOldTickets) {
  LoadTracker book = book_over(2);
  auto old = book.open(0, {500, 600}, at_ms(0));
  book.report(0, report_of(10, 2000), at_ms(1));
  book.forget_node(0);
  EXPECT_EQ(book.requests(0), 0);
  EXPECT_EQ(book.work_rate(0), 0);
  EXPECT_EQ(book.in_flight_total(), 0);
  auto fresh = book.open(0, {100, 100}, at_ms(2));
  book.first_byte(old);
  book.close(old);
  EXPECT_EQ(book.requests(0), 1);
  EXPECT_EQ(book.pending_tokens(0), 100);
  book.close(fresh);
}

TEST(Loads, WorkIsARateOfTheReportsCounter) {
  LoadTracker book = book_over(2);
  for (int i = 0; i <= 2000; ++i) book.report(0, report_of(0, 0, 70 * i), at_ms(100 * i));
  EXPECT_NEAR(book.work_rate(0), 700, 1);
  for (int i = 1; i <= 200; ++i) book.report(0, report_of(0, 0, 140'000), at_ms(200'000 + 100 * i));
  EXPECT_NEAR(book.work_rate(0), 700 * std::exp(-1.0), 5) << "20 s later a third is left";
  book.report(0, report_of(0, 0, 5), at_ms(230'000));  // its counter restarted
  EXPECT_GE(book.work_rate(0), 0);
}

TEST(Loads, WorkWithoutReportsIsTheWorkSent) {
  LoadTracker book = book_over(2);
  for (int i = 0; i < 6000; ++i) {
    auto ticket = book.open(0, {50, 50}, at_ms(20 * i));
    book.close(ticket);
  }
  EXPECT_NEAR(book.work_rate(0), 2500, 60);
  book.advance(at_ms(120'000 + 20'000));
  EXPECT_NEAR(book.work_rate(0), 2500 * std::exp(-1.0), 40);
}

TEST(Loads, LedgersOfPeersCountAtOnceAndOnlyOnce) {
  AffinityOptions options;
  options.peer_ledger = true;
  LoadTracker book = book_over(2, options);
  auto own = book.open(0, {100, 100}, at_ms(0));
  const PeerLoad first[] = {{0, 3, 700}};
  book.peer_loads(1, first);
  book.peer_loads(2, first);
  EXPECT_EQ(book.requests(0), 7);
  EXPECT_EQ(book.pending_tokens(0), 1500);
  book.report(0, report_of(7, 900), at_ms(1));
  EXPECT_EQ(book.requests(0), 7);
  EXPECT_EQ(book.pending_tokens(0), 900) << "of theirs, some chunks are computed";
  const PeerLoad second[] = {{0, 5, 1000}, {99, 5, 5}};
  book.peer_loads(1, second);
  EXPECT_EQ(book.requests(0), 9);
  EXPECT_EQ(book.pending_tokens(0), 1200);
  book.forget_peer(2);
  EXPECT_EQ(book.requests(0), 6);
  std::vector<PeerLoad> told;
  book.take_changes(told, false);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].in_flight, 1);
  told.clear();
  book.take_changes(told, false);
  EXPECT_TRUE(told.empty());
  book.peer_loads(1, first);
  book.report(0, report_of(3, 100), at_ms(2));
  book.forget_peer(1);
  book.take_changes(told, false);
  EXPECT_TRUE(told.empty())
      << "nothing of its own has changed: else two gateways would answer each other for ever";
  book.take_changes(told, true);
  EXPECT_EQ(told.size(), 2u) << "those with nothing, too: what was lost heals";
  book.close(own);
}

TEST(Loads, LoadOutsideAllLedgersIsLearnedFromReports) {
  AffinityOptions options;
  options.peer_ledger = true;
  LoadTracker book = book_over(2, options);
  book.report(0, report_of(0, 0), at_ms(0));
  const PeerLoad told[] = {{0, 3, 700}};
  book.peer_loads(1, told);
  int ms = 0;
  const auto report_for = [&](int how_long, int64_t running) {
    for (const int until = ms + how_long; ms < until;)
      book.report(0, report_of(running, 0), at_ms(ms += 100));
  };
  report_for(5000, 23);  // from a gateway outside the ledgers
  EXPECT_NEAR(book.requests(0), 23, 0.5);
  report_for(100, 17);
  EXPECT_GT(book.requests(0), 21) << "the moment's difference is the ledgers' being late";
  report_for(5000, 3);
  EXPECT_NEAR(book.requests(0), 3, 0.5);
  report_for(5000, 0);
  EXPECT_EQ(book.requests(0), 3) << "what is told by a ledger is there";
  book.forget_peer(1);
  report_for(5000, 3);
  EXPECT_NEAR(book.requests(0), 3, 0.5) << "a peer that fell silent and lives";
}

// Sums are kept up incrementally; here they are added up anew after every step.
TEST(Loads, SumsAgreeWithAPlainCountUnderRandomUse) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    Random random(seed);
    const size_t nodes = 1 + random.below(50);
    LoadTracker book = book_over(nodes);
    std::vector<LoadTracker::Ticket> open;
    for (int step = 0; step < 3000; ++step) {
      const auto node = random.below(static_cast<uint32_t>(nodes));
      const TimePoint now = at_ms(step * 500);
      switch (random.below(8)) {
        case 0:
          book.report(node, report_of(random.below(40), random.below(9000), step * 100), now);
          break;
        case 1:
          if (random.below(20) == 0) book.forget_node(node);
          break;
        case 2:
        case 3:
        case 4:
          open.push_back(book.open(node, {random.below(3000), random.below(4000)}, now));
          break;
        case 5:
          if (!open.empty()) book.first_byte(open[random.below(static_cast<uint32_t>(open.size()))]);
          break;
        default:
          if (open.empty()) break;
          std::swap(open[random.below(static_cast<uint32_t>(open.size()))], open.back());
          book.close(open.back());
          open.pop_back();
      }
      double requests = 0;
      for (NodeIndex n = 0; n < nodes; ++n) requests += book.requests(n);
      ASSERT_NEAR(book.means(*book.group("demo")).requests, requests / static_cast<double>(nodes), 1e-6)
          << seed;
    }
    for (auto& ticket : open) book.close(ticket);
    EXPECT_EQ(book.in_flight_total(), 0);
    EXPECT_EQ(book.pending_tokens_total(), 0);
  }
}

// Among prompts of 300 tokens a node twice as busy as the others costs a fifth of a prompt, not more than
// one.
TEST(Loads, LoadWeighsAtMostAShareOfAUsualPrompt) {
  LoadTracker book = book_over(4);
  const auto cost = [&](NodeIndex node) { return book.cost(book.means(*book.group("demo")), node).relative; };
  for (NodeIndex n = 0; n < 4; ++n) book.report(n, report_of(10, 0), at_ms(0));
  EXPECT_NEAR(cost(0), 333, 1) << "as busy as the mean, while nothing is known of prompts";
  for (int i = 0; i < 5000; ++i) {
    auto ticket = book.open(0, {10, 20, 300}, at_ms(1));
    book.close(ticket);
  }
  EXPECT_NEAR(book.scale(), 60.0 / 333, 0.01);
  EXPECT_NEAR(cost(1), 60, 1);
  for (int i = 0; i < 5000; ++i) {
    auto ticket = book.open(0, {10, 20, 8000}, at_ms(2));
    book.close(ticket);
  }
  EXPECT_EQ(book.scale(), 1) << "long prompts do not make it weigh more: measured with them";
}

TEST(Loads, LeastLoadedIsFoundAmongMany) {
  LoadTracker book = book_over(1000);
  std::vector<LoadTracker::Ticket> open;
  for (NodeIndex n = 0; n < 1000; ++n) {
    if (n == 517) continue;
    for (uint32_t i = 0; i < 3 + n % 5; ++i) open.push_back(book.open(n, {100, 100}, at_ms(n)));
  }
  Random random(1);
  std::array<uint32_t, 4> found{};
  ASSERT_EQ(book.group("demo")->least.find(found, random), 4u);
  EXPECT_EQ(found[0], 517u);
}

TEST(LeastLoaded, AgreesWithAScanAndSpreadsTies) {
  Random random(3);
  LeastLoaded least;
  least.resize(200);
  std::vector<float> keys(200, LeastLoaded::kAbsent);
  for (int step = 0; step < 20'000; ++step) {
    const auto slot = random.below(200);
    keys[slot] = random.below(10) == 0 ? LeastLoaded::kAbsent : static_cast<float>(random.below(1000));
    least.set(slot, keys[slot]);
    std::array<uint32_t, 6> found{};
    const size_t count = least.find(found, random);
    const float smallest = *std::min_element(keys.begin(), keys.end());
    ASSERT_EQ(count > 0, smallest != LeastLoaded::kAbsent);
    if (count > 0) {
      ASSERT_EQ(keys[found[0]], smallest);
    }
    for (size_t i = 0; i < count; ++i) {
      for (size_t j = 0; j < i; ++j) ASSERT_NE(found[i], found[j]);
    }
  }
  for (uint32_t i = 0; i < 200; ++i) least.set(i, 1);
  std::vector<int> first(200, 0);
  std::array<uint32_t, 1> found{};
  for (int i = 0; i < 40'000; ++i) {
    least.find(found, random);
    first[found[0]] += 1;
  }
  EXPECT_GT(*std::min_element(first.begin(), first.end()), 50) << "an index rule";
}

}  // namespace loads_test
}  // namespace troupe::route
