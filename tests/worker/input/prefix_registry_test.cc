#include "worker/input/prefix_registry.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

namespace troupe::prefix_book_test {

using namespace std::chrono_literals;

PrefixRegistry::Ask ask_for(uint64_t name, int64_t tokens, bool pin, std::optional<Duration> ttl = {}) {
  return {.hash = {name, 1}, .set = {}, .tokens = tokens, .pin = pin, .ttl = ttl};
}

struct Book : ::testing::Test {
  bool make(const PrefixRegistry::Ask& ask, TimePoint now = TimePoint{}) {
    if (!book.begin(ask).ok()) return false;
    book.finish(ask, 0, now);
    return true;
  }
  PrefixRegistry book{{.pinned_tokens_max = 160, .block_size = 16, .prefixes_max = 4, .making_max = 3}};
};

TEST_F(Book, PinReservesWholeBlocksFromBeginToErase) {
  const auto ask = ask_for(1, 100, true);
  ASSERT_TRUE(book.begin(ask).ok());
  EXPECT_EQ(book.pinned_tokens(), 112);
  EXPECT_EQ(book.find(ask.hash), nullptr) << "it is not computed yet";
  EXPECT_FALSE(book.finish(ask, 0, {}));
  const Status refused = book.begin(ask_for(2, 49, true));
  EXPECT_TRUE(absl::IsFailedPrecondition(refused));
  for (const char* number : {"160", "112", "64"}) {
    EXPECT_NE(to_std(refused.message()).find(number), std::string::npos) << refused;
  }
  EXPECT_TRUE(make(ask_for(2, 49, false))) << "what is not pinned takes nothing";
  EXPECT_TRUE(make(ask_for(3, 48, true)));
  EXPECT_EQ(book.erase(ask.hash), PrefixRegistry::Erased::kUnpin);
  EXPECT_EQ(book.erase(ask.hash), PrefixRegistry::Erased::kUnknown);
  EXPECT_EQ(book.erase({2, 1}), PrefixRegistry::Erased::kNothingPinned);
  EXPECT_EQ(book.pinned_tokens(), 48);
}

TEST_F(Book, SamePrefixIsPaidOnceAndLastRequestWins) {
  ASSERT_TRUE(make(ask_for(1, 160, true, 10s), TimePoint{} + 1s));
  ASSERT_TRUE(make(ask_for(1, 160, true, 30s), TimePoint{} + 2s));
  EXPECT_EQ(book.pinned_tokens(), 160);
  EXPECT_EQ(book.next_expiry(), TimePoint{} + 32s);
  ASSERT_TRUE(book.begin(ask_for(1, 160, false)).ok());
  EXPECT_TRUE(book.finish(ask_for(1, 160, false), 160, {})) << "no longer pinned";
  EXPECT_EQ(book.pinned_tokens(), 0);
  EXPECT_EQ(book.next_expiry(), std::nullopt);
  EXPECT_EQ(book.all().size(), 1u);
}

TEST_F(Book, AbortedRequestLeavesNothing) {
  const auto ask = ask_for(1, 100, true);
  ASSERT_TRUE(book.begin(ask).ok());
  EXPECT_TRUE(book.abort(ask)) << "the engine may have been faster than the client's going away";
  EXPECT_EQ(book.pinned_tokens(), 0);
  EXPECT_TRUE(book.all().empty());
}

TEST_F(Book, OneOfTwoRequestsForTheSamePrefixMayAbort) {
  const auto ask = ask_for(1, 100, true);
  ASSERT_TRUE(book.begin(ask).ok());
  ASSERT_TRUE(book.begin(ask).ok());
  EXPECT_FALSE(book.abort(ask)) << "the other one's pin stays";
  EXPECT_EQ(book.pinned_tokens(), 112);
  EXPECT_FALSE(book.finish(ask, 0, {}));
  EXPECT_NE(book.find(ask.hash), nullptr);
}

TEST_F(Book, ErasesExpiredEntriesAndUnpinsOnlyPins) {
  make(ask_for(1, 16, true, 5s));
  make(ask_for(2, 16, false, 4s));
  make(ask_for(3, 16, true));
  EXPECT_EQ(book.next_expiry(), TimePoint{} + 4s);
  EXPECT_TRUE(book.take_expired(TimePoint{} + 3s).empty());
  EXPECT_EQ(book.take_expired(TimePoint{} + 5s), (std::vector<Hash128>{{1, 1}}));
  EXPECT_EQ(book.all().size(), 1u);
  EXPECT_EQ(book.next_expiry(), std::nullopt);
}

TEST_F(Book, OldestUnpinnedEntryMakesRoomUnlessAllArePinned) {
  for (uint64_t name = 1; name <= 3; ++name) make(ask_for(name, 16, name == 1), TimePoint{} + name * 1s);
  make(ask_for(4, 16, true), TimePoint{} + 4s);
  make(ask_for(5, 16, true), TimePoint{} + 5s);
  EXPECT_EQ(book.find({2, 1}), nullptr);
  make(ask_for(6, 16, true), TimePoint{} + 6s);
  EXPECT_EQ(book.find({3, 1}), nullptr);
  EXPECT_TRUE(absl::IsFailedPrecondition(book.begin(ask_for(7, 16, false))));
  EXPECT_EQ(book.all().size(), 4u);
}

TEST_F(Book, LimitsConcurrentComputations) {
  for (uint64_t name = 1; name <= 3; ++name) ASSERT_TRUE(book.begin(ask_for(name, 16, false)).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(book.begin(ask_for(4, 16, false))));
  book.abort(ask_for(1, 16, false));
  EXPECT_TRUE(book.begin(ask_for(4, 16, false)).ok());
}

// The engine's pins follow the registry's results, in the order of the calls.
TEST_F(Book, EnginePinsMatchTheRegistryInAnyOrderOfEvents) {
  std::mt19937 random(3);
  const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  std::vector<PrefixRegistry::Ask> making;
  std::set<Hash128> engine;  // pins
  TimePoint now{};
  int budget_refusals = 0;
  for (int i = 0; i < 50'000; ++i) {
    now += 1s;
    switch (pick(5)) {
      case 0:
      case 1: {
        const auto name = static_cast<uint64_t>(1 + pick(6));
        const auto ttl = pick(2) == 0 ? std::optional<Duration>(1s * (1 + pick(20))) : std::nullopt;
        const auto ask = ask_for(name, 20 * static_cast<int64_t>(name), pick(2) == 0, ttl);
        const Status status = book.begin(ask);
        budget_refusals += absl::IsFailedPrecondition(status);
        if (status.ok()) making.push_back(ask);
        break;
      }
      case 2:
        if (!making.empty()) {
          const auto at = making.begin() + pick(static_cast<int>(making.size()));
          const auto ask = *at;
          making.erase(at);
          const bool computed = pick(3) > 0;
          if (computed && ask.pin) engine.insert(ask.hash);
          const bool unpins = computed && pick(4) > 0 ? book.finish(ask, 0, now) : book.abort(ask);
          if (unpins) engine.erase(ask.hash);
        }
        break;
      case 3:
        for (const Hash128& hash : book.take_expired(now)) engine.erase(hash);
        break;
      default: {
        const Hash128 hash{static_cast<uint64_t>(1 + pick(6)), 1};
        const int event = pick(12);
        if (event < 3 && book.erase(hash) == PrefixRegistry::Erased::kUnpin) engine.erase(hash);
        if (event == 3 && book.unpin(hash)) engine.erase(hash);
      }
    }
    ASSERT_LE(book.pinned_tokens(), 160);
    ASSERT_LE(book.all().size(), 4u);
    for (const auto* entry : book.all()) {
      if (entry->is_pinned()) {
        ASSERT_TRUE(engine.contains(entry->ask.hash)) << "at " << i;
      }
    }
    if (!making.empty()) continue;
    size_t pinned = 0;
    for (const auto* entry : book.all()) pinned += entry->is_pinned();
    ASSERT_EQ(engine.size(), pinned) << "at " << i << ": something is pinned that nobody knows of";
  }
  EXPECT_GT(budget_refusals, 1000);
}

}  // namespace troupe::prefix_book_test
