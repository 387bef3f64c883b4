// Eviction on traces: how much of personas' prefixes survives a flood of one-shot prompts, and what that
// costs without a flood. Every trace is played through the real cache, an LRU and Belady's rule; the hit
// rates (of blocks) are printed.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

#include "tests/worker/schedule/eviction_policies.h"

namespace troupe {
namespace eviction_test {

using testing::hit_rates;
using testing::HitRates;
using testing::Trace;
using testing::Visit;

#if defined(__SANITIZE_ADDRESS__)
constexpr int kVisits = 3'000;
#else
constexpr int kVisits = 20'000;
#endif

// Draws ranks 0, 1, … with probability ∝ 1 / (rank + 1)^exponent.
class Zipf {
 public:
  Zipf(size_t count, double exponent) {
    double sum = 0;
    for (size_t i = 0; i < count; ++i) {
      cumulative_.push_back(sum += 1 / std::pow(static_cast<double>(i + 1), exponent));
    }
  }
  size_t operator()(std::mt19937_64& random) const {
    const double at = std::uniform_real_distribution<double>(0, cumulative_.back())(random);
    return static_cast<size_t>(std::lower_bound(cumulative_.begin(), cumulative_.end(), at) -
                               cumulative_.begin());
  }

 private:
  std::vector<double> cumulative_;
};

// Role-play chat in small: sessions of several turns over personas of Zipf popularity, and one-shot prompts
// between them.
struct Chat {
  size_t persona_count = 200;
  size_t persona_blocks = 32;
  double exponent = 1.0;
  double one_shot_share = 0;
  size_t one_shot_blocks = 40;
  int turns_max = 1;  // uniform in [1, turns_max]
  size_t turn_blocks = 4;
  size_t pause = 100;  // visits until the next turn, on average
  int drift = 0;       // popularity moves on by one persona every so many visits; 0: never

  Trace trace(uint64_t seed, int visits = kVisits) const {
    struct Session {
      Visit visit;
      int turns_left;
    };
    std::mt19937_64 random(seed);
    const Zipf popularity(persona_count, exponent);
    std::multimap<size_t, Session> due;
    Trace trace;
    uint64_t next_name = 1'000'000'000, next_user = 1;
    const auto extend = [&](Visit& visit, size_t blocks) {
      for (size_t i = 0; i < blocks; ++i) visit.blocks.push_back(next_name++);
    };
    for (size_t now = 0; static_cast<int>(trace.size()) < visits; ++now) {
      Session session{{}, 0};
      if (std::uniform_real_distribution<double>(0, 1)(random) < one_shot_share) {
        session.visit.user = next_user++;
        extend(session.visit, one_shot_blocks);
      } else if (!due.empty() && due.begin()->first <= now) {
        session = std::move(due.begin()->second);
        due.erase(due.begin());
        extend(session.visit, turn_blocks);
        --session.turns_left;
      } else {
        const size_t moved = drift == 0 ? 0 : now / static_cast<size_t>(drift);
        const size_t persona = (popularity(random) + moved) % persona_count;
        session.visit.user = next_user++;
        for (size_t i = 0; i < persona_blocks; ++i) {
          session.visit.blocks.push_back(persona * persona_blocks + i + 1);
        }
        extend(session.visit, turn_blocks);
        session.turns_left = std::uniform_int_distribution<int>(0, turns_max - 1)(random);
      }
      trace.push_back(session.visit);
      if (session.turns_left > 0) {
        const double wait = std::exponential_distribution<double>(1.0 / static_cast<double>(pause))(random);
        due.emplace(now + 1 + static_cast<size_t>(wait), std::move(session));
      }
    }
    return trace;
  }
};

HitRates measured(const char* what, const Trace& trace, size_t capacity) {
  const HitRates rates = hit_rates(trace, capacity);
  std::printf("%-44s %6zu blocks   LRU %.4f   ours %.4f   Belady %.4f   gap closed %4.0f %%\n", what,
              capacity, rates.lru, rates.ours, rates.belady,
              100 * (rates.ours - rates.lru) / std::max(1e-9, rates.belady - rates.lru));
  return rates;
}

TEST(Eviction, KeepsPersonasThroughFloodOfOneShots) {
  Chat chat;
  for (const double share : {0.2, 0.5, 0.8}) {
    chat.one_shot_share = share;
    const Trace trace = chat.trace(1);
    const std::string name =
        "Zipf personas, one-shots " + std::to_string(static_cast<int>(share * 100)) + " %";
    const HitRates rates = measured(name.c_str(), trace, 1600);
    EXPECT_GT(rates.ours, rates.lru + 0.5 * (rates.belady - rates.lru));
    EXPECT_GT(rates.ours, 1.2 * rates.lru);
  }
}

TEST(Eviction, KeepsConversationsThroughFloodOfOneShots) {
  Chat chat;
  chat.one_shot_share = 0.3;
  chat.turns_max = 8;
  const HitRates rates = measured("Conversations over personas, one-shots 30 %", chat.trace(2), 2400);
  EXPECT_GT(rates.ours, rates.lru + 0.4 * (rates.belady - rates.lru));
}

TEST(Eviction, IsNoWorseThanLruOnPlainZipf) {
  const HitRates rates = measured("Plain Zipf personas", Chat().trace(3), 1600);
  EXPECT_GE(rates.ours, rates.lru);
}

TEST(Eviction, IsNoWorseThanLruOnConversationsOnly) {
  Chat chat;
  chat.persona_count = 1'000'000;  // nobody shares
  chat.exponent = 0;
  chat.persona_blocks = 6;
  chat.turns_max = 12;
  constexpr uint64_t kSeeds = 3;  // one may lose half a percent by chance
  for (const size_t capacity : {600u, 2000u, 5000u}) {
    double gained = 0;
    for (uint64_t seed = 4; seed < 4 + kSeeds; ++seed) {
      const HitRates rates = measured("Conversations only", chat.trace(seed), capacity);
      gained += (rates.ours - rates.lru) / double{kSeeds};
    }
    EXPECT_GE(gained, -0.003);
  }
}

TEST(Eviction, FollowsDriftingPopularity) {
  Chat chat;
  chat.exponent = 1.2;
  for (const int drift : {20, 200}) {
    chat.drift = drift;
    const HitRates rates = measured(("Popularity moves every " + std::to_string(drift) + " visits").c_str(),
                                    chat.trace(5), 1600);
    EXPECT_GE(rates.ours, rates.lru - 0.003);
  }
}

TEST(Eviction, HoldsPartOfLoopLargerThanCache) {
  // Sixty documents, more than fit, are read in turn again and again, with blocks that are read once between.
  Trace trace;
  uint64_t next_name = 1'000'000'000;
  for (int i = 0; i < kVisits; ++i) {
    Visit visit;
    visit.user = static_cast<uint64_t>(i) + 1;
    const bool loops = i % 3 != 2;
    const uint64_t document = static_cast<uint64_t>(i / 3 * 2 + i % 3) % 60;
    for (uint64_t b = 0; b < 20; ++b) visit.blocks.push_back(loops ? document * 20 + b + 1 : next_name++);
    trace.push_back(visit);
  }
  const HitRates rates = measured("Loop of 1200 blocks, scans between", trace, 800);
  EXPECT_GT(rates.ours, 0.8 * rates.belady);
}

// A production chat service's half hour, by the published hashes of its prompts' blocks (512 tokens each).
// It names no sessions: every request is a user of its own.
TEST(Eviction, IsNoWorseThanLruOnRealTrace) {
  const char* data = std::getenv("TROUPE_DATA");
  const std::string folder = data != nullptr ? data : TROUPE_SOURCE_DIR "/../shared/data";
  const std::string file = folder + "/mooncake/conversation_first30min.jsonl.gz";
  if (FILE* found = std::fopen(file.c_str(), "rb"); found != nullptr) {
    std::fclose(found);
  } else {
    GTEST_SKIP() << "NOT RUN: " << file << " is not there (TROUPE_DATA names the folder of published data)";
  }
  Trace trace;
  FILE* lines = popen(("gzip -dc '" + file + "'").c_str(), "r");
  ASSERT_NE(lines, nullptr);
  char* line = nullptr;
  size_t size = 0;
  while (getline(&line, &size, lines) > 0) {
    const std::string text(line);
    size_t at = text.find("\"hash_ids\": [");
    ASSERT_NE(at, std::string::npos);
    Visit visit;
    visit.user = trace.size() + 1;
    at += 13;
    for (char* end = line + at; *end != ']';) {
      visit.blocks.push_back(std::strtoull(end, &end, 10) + 1);
      if (*end == ',') ++end;
    }
    trace.push_back(std::move(visit));
  }
  std::free(line);
  ASSERT_EQ(pclose(lines), 0);
  ASSERT_GT(trace.size(), 5000u);
  for (const size_t capacity : {1'000u, 5'000u, 10'000u, 20'000u, 50'000u}) {
    const HitRates rates = measured("Mooncake conversations", trace, capacity);
    EXPECT_GE(rates.ours, rates.lru - 0.002) << capacity;
  }
}

}  // namespace eviction_test
}  // namespace troupe
