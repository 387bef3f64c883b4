// Residency: the deepest resident token of each set and session, through growth, eviction and branches.

#include "worker/kv/residency.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "tests/worker/schedule/single_blocks.h"

namespace troupe {
namespace residency_test {

constexpr Hash128 kPersona{0, 1}, kChat{0, 2};

using testing::SingleBlocks;

std::vector<Resident> changes_of(Residency& residency) {
  std::vector<Resident> out;
  residency.take_changes(out);
  return out;
}

// Blocks 0,1 of the persona, 2,3 of the conversation.
SingleBlocks four_blocks() {
  SingleBlocks r(16, 32);
  for (BlockId b = 0; b < 2; ++b) r.cached(b, b, HolderKind::kSet, kPersona);
  for (BlockId b = 2; b < 4; ++b) r.cached(b, b, HolderKind::kSession, kChat);
  return r;
}

TEST(Residency, PublishesSetAndSessionOnceEach) {
  SingleBlocks r = four_blocks();
  const auto changes = changes_of(r);
  ASSERT_EQ(changes.size(), 2u);
  EXPECT_EQ(changes[0].kind, HolderKind::kSet);
  EXPECT_EQ(changes[0].name, kPersona);
  EXPECT_EQ(changes[0].tokens, 32);
  EXPECT_TRUE(changes[0].grew);
  EXPECT_EQ(changes[1].kind, HolderKind::kSession);
  EXPECT_EQ(changes[1].tokens, 64) << "the whole prefix, the persona's tokens included";
  EXPECT_FALSE(r.has_changes());
  EXPECT_EQ(r.set_count(), 1);
  EXPECT_EQ(r.session_count(), 1);
}

TEST(Residency, ShrinksFromTheLastBlockToZero) {
  SingleBlocks r = four_blocks();
  changes_of(r);
  r.evicted(3);
  EXPECT_EQ(r.tokens(HolderKind::kSession, kChat), 48);
  r.evicted(2);
  r.evicted(1);
  const auto changes = changes_of(r);
  ASSERT_EQ(changes.size(), 2u);
  EXPECT_EQ(changes[0].tokens, 0) << "48 in between was never told";
  EXPECT_FALSE(changes[0].grew);
  EXPECT_EQ(changes[1].tokens, 16);
  EXPECT_EQ(r.session_count(), 0);
  r.evicted(0);
  EXPECT_EQ(changes_of(r).front().tokens, 0);
  EXPECT_EQ(r.set_count(), 0);
}

TEST(Residency, BlocksCachedAndEvictedBetweenLooksAreNotPublished) {
  SingleBlocks r(16, 32);
  r.cached(5, 0, HolderKind::kSet, kPersona);
  r.evicted(5);
  EXPECT_TRUE(changes_of(r).empty());
  EXPECT_EQ(r.set_count(), 0);
}

TEST(Residency, EvictedOldBranchDoesNotShortenNewBranch) {
  SingleBlocks r = four_blocks();
  r.cached(4, 3, HolderKind::kSession, kChat);  // another fourth block: the answer was asked for again
  r.cached(5, 4, HolderKind::kSession, kChat);
  EXPECT_EQ(r.tokens(HolderKind::kSession, kChat), 80);
  r.evicted(3);
  EXPECT_EQ(r.tokens(HolderKind::kSession, kChat), 80);
  r.evicted(5);
  r.evicted(4);
  EXPECT_EQ(r.tokens(HolderKind::kSession, kChat), 48);
  r.evicted(2);
  EXPECT_EQ(r.tokens(HolderKind::kSession, kChat), 0);
}

TEST(Residency, BlocksWithoutNameAreNotPublished) {
  SingleBlocks r(16, 32);
  r.cached(0, 0, HolderKind::kSession, Hash128{});
  EXPECT_FALSE(r.has_changes());
  r.evicted(0);
  EXPECT_FALSE(r.has_changes());
}

TEST(Residency, RowEqualsItsBlocksOneByOne) {
  std::mt19937 random(5);
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  for (int round = 0; round < 200; ++round) {
    SingleBlocks single(16, 64);
    Residency rows(16, 64);
    struct Row {
      std::vector<BlockId> blocks;
      int index;
      Residency::Extent extent;
    };
    std::vector<Row> branches;  // of one conversation, in order
    for (BlockId next = 0; next < 50;) {
      if (pick(0, 2) > 0 || branches.empty()) {
        Row& row = branches.emplace_back(Row{{}, pick(0, 6), {}});
        for (int count = pick(1, 9); count > 0; --count) row.blocks.push_back(next++);
        const auto count = static_cast<int32_t>(row.blocks.size());
        row.extent = rows.cached({row.index, count}, HolderKind::kSession, kChat);
        for (int32_t i = 0; i < count; ++i)
          single.cached(row.blocks[static_cast<size_t>(i)], row.index + i, HolderKind::kSession, kChat);
      } else {
        const size_t which = static_cast<size_t>(pick(0, static_cast<int>(branches.size()) - 1));
        Row& row = branches[which];
        const auto count = static_cast<size_t>(pick(1, static_cast<int>(row.blocks.size())));
        const auto kept = row.blocks.size() - count;
        rows.evicted({row.extent, row.index + static_cast<int>(kept), std::span(row.blocks).last(count), {}});
        while (row.blocks.size() > kept) {
          single.evicted(row.blocks.back());
          row.blocks.pop_back();
        }
        if (kept == 0) branches.erase(branches.begin() + static_cast<std::ptrdiff_t>(which));
      }
      ASSERT_EQ(rows.tokens(HolderKind::kSession, kChat), single.tokens(HolderKind::kSession, kChat));
      if (pick(0, 1) == 0) {
        const auto a = changes_of(rows), b = changes_of(single);
        ASSERT_EQ(a.size(), b.size());
        for (size_t i = 0; i < a.size(); ++i) ASSERT_EQ(a[i].tokens, b[i].tokens);
      }
    }
  }
}

TEST(Residency, CachedEachMakesEveryBlockASession) {
  Residency r(16, 32);
  const std::vector<Hash128> names{{9, 1}, {9, 2}, {9, 3}};
  const std::vector<BlockId> blocks{4, 5, 6};
  const auto extent = r.cached_each(2, names);
  EXPECT_EQ(r.session_count(), 3);
  EXPECT_EQ(r.tokens(HolderKind::kSession, names[1]), 64);
  changes_of(r);
  r.evicted({extent, 3, std::span(blocks).last(2), std::span(names).last(2)});
  EXPECT_EQ(r.tokens(HolderKind::kSession, names[1]), 0);
  EXPECT_EQ(r.tokens(HolderKind::kSession, names[0]), 48);
  EXPECT_EQ(changes_of(r).size(), 2u);
  EXPECT_EQ(r.session_count(), 1);
}

// Random linear conversations over shared personas, evicted leaf first: the told state, replayed from
// changes, is always the true one.
TEST(Residency, ReplayedChangesEqualSnapshot) {
  std::mt19937 random(11);
  constexpr int kBlocks = 64;
  SingleBlocks r(16, kBlocks);
  struct Line {
    Hash128 set, session;
    std::vector<BlockId> blocks;  // resident, from index `base`
    int base;
  };
  std::vector<Line> personas, chats;
  std::vector<BlockId> free;
  for (BlockId b = 0; b < kBlocks; ++b) free.push_back(b);
  for (uint64_t p = 0; p < 3; ++p) personas.push_back({{1, p + 1}, {}, {}, 0});
  for (uint64_t c = 0; c < 6; ++c) chats.push_back({{1, c % 3 + 1}, {2, c + 1}, {}, 4});
  std::map<std::pair<int, Hash128>, int64_t> told;
  for (int step = 0; step < 5000; ++step) {
    const size_t c = random() % chats.size();
    Line& chat = chats[c];
    Line& persona = personas[c % 3];
    const auto grow = [&](Line& line, HolderKind kind, Hash128 name) {
      r.cached(free.back(), line.base + static_cast<int>(line.blocks.size()), kind, name);
      line.blocks.push_back(free.back());
      free.pop_back();
    };
    const auto shrink = [&](Line& line) {
      r.evicted(line.blocks.back());
      free.push_back(line.blocks.back());
      line.blocks.pop_back();
    };
    if (random() % 2 == 0 && !free.empty()) {
      if (persona.blocks.size() < 4) {
        grow(persona, HolderKind::kSet, persona.set);
      } else {
        grow(chat, HolderKind::kSession, chat.session);
      }
    } else if (!chat.blocks.empty()) {
      shrink(chat);
    } else if (!persona.blocks.empty() && chats[c % 3].blocks.empty() && chats[c % 3 + 3].blocks.empty()) {
      shrink(persona);
    }
    if (random() % 3 != 0) continue;
    for (const Resident& change : changes_of(r)) {
      auto& tokens = told[{static_cast<int>(change.kind), change.name}];
      EXPECT_EQ(change.grew, change.tokens > tokens);
      tokens = change.tokens;
      if (tokens == 0) told.erase({static_cast<int>(change.kind), change.name});
    }
    std::vector<Resident> all;
    r.snapshot(all);
    ASSERT_EQ(all.size(), told.size());
    for (const Resident& now : all) ASSERT_EQ(told.at({static_cast<int>(now.kind), now.name}), now.tokens);
    for (const Line& line : chats) {
      const int64_t expected =
          line.blocks.empty() ? 0 : 16 * (line.base + static_cast<int64_t>(line.blocks.size()));
      ASSERT_EQ(r.tokens(HolderKind::kSession, line.session), expected);
    }
  }
}

constexpr Hash128 kOther{0, 3}, kThird{0, 4};

TEST(Residency, SetThatFindsForeignPrefixIsPublished) {
  SingleBlocks r = four_blocks();
  changes_of(r);
  r.found(2, 2, kOther);  // its prefix is the persona and the first block of the conversation
  r.found(2, 2, kThird);
  r.found(1, 1, kPersona);  // known to be there
  auto changes = changes_of(r);
  ASSERT_EQ(changes.size(), 2u);
  EXPECT_EQ(changes[0].name, kOther);
  EXPECT_EQ(changes[0].tokens, 48);
  EXPECT_TRUE(changes[0].grew);
  EXPECT_EQ(r.set_count(), 3);
  r.evicted(3);
  EXPECT_EQ(changes_of(r).size(), 1u) << "the conversation alone";
  r.evicted(2);
  changes = changes_of(r);
  ASSERT_EQ(changes.size(), 3u);
  EXPECT_EQ(r.tokens(HolderKind::kSet, kOther), 0);
  EXPECT_EQ(r.tokens(HolderKind::kSet, kPersona), 32);
  EXPECT_EQ(r.set_count(), 1);
}

TEST(Residency, FoundPrefixAndOwnBlocksCountTheDeeper) {
  SingleBlocks r = four_blocks();
  r.found(1, 1, kOther);
  r.cached(4, 2, HolderKind::kSet, kOther);
  EXPECT_EQ(r.tokens(HolderKind::kSet, kOther), 48);
  r.evicted(4);
  EXPECT_EQ(r.tokens(HolderKind::kSet, kOther), 32);
  r.found(2, 2, kOther);  // found deeper: the other place is forgotten
  r.evicted(1);
  EXPECT_EQ(r.tokens(HolderKind::kSet, kOther), 48);
  r.evicted(2);
  EXPECT_EQ(r.tokens(HolderKind::kSet, kOther), 0);
}

TEST(Residency, FindersAreAtMostAsManyAsBlocks) {
  SingleBlocks r(16, 4);
  r.cached(0, 0, HolderKind::kSet, kPersona);
  for (uint64_t name = 100; name < 200; ++name) r.found(0, 0, Hash128{0, name});
  EXPECT_EQ(r.set_count(), 5);
  r.evicted(0);
  changes_of(r);
  EXPECT_EQ(r.set_count(), 0);
}

}  // namespace residency_test
}  // namespace troupe
