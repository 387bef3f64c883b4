#include "gateway/persona/lore_matcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/cpu_time.h"

namespace troupe {
namespace {

std::vector<bool> found(std::vector<LoreMatcher::Key> keys, std::string_view text) {
  std::vector<bool> out(keys.size());
  LoreMatcher(std::move(keys)).find(text, out);
  return out;
}

bool finds(LoreMatcher::Key key, std::string_view text) {
  return found({std::move(key)}, text).front();
}

TEST(LoreMatcher, LettersMatchInEitherCaseUnlessTheKeySaysOtherwise) {
  EXPECT_TRUE(finds({"Harbour"}, "down at the HARBOUR."));
  EXPECT_TRUE(finds({"ÉCOLE"}, "à l'école"));
  EXPECT_TRUE(finds({"москва"}, "МОСКВА!"));
  EXPECT_TRUE(finds({"Ωμέγα"}, "ωμέγα"));
  EXPECT_FALSE(finds({"Rose", true}, "a rose"));
  EXPECT_TRUE(finds({"Rose", true}, "dear Rose"));
}

TEST(LoreMatcher, WordsAreWholeWhereTheirScriptHasWords) {
  EXPECT_FALSE(finds({"cat"}, "concatenate"));
  EXPECT_FALSE(finds({"cat"}, "cats"));
  EXPECT_TRUE(finds({"cat"}, "the cat's"));
  EXPECT_TRUE(finds({"cat", false, false}, "concatenate"));
  EXPECT_FALSE(finds({"кот"}, "который"));
  EXPECT_TRUE(finds({"кот"}, "«кот»"));
  EXPECT_TRUE(finds({"明海城"}, "我从明海城来"));
  EXPECT_TRUE(finds({"..."}, "well...yes"));
}

TEST(LoreMatcher, AKeyWithinAnotherIsFoundToo) {
  EXPECT_EQ(found({{"old king"}, {"king"}, {"kin"}, {"old"}, {"an old king's"}}, "An OLD KING's road"),
            (std::vector<bool>{true, true, false, true, true}));
  EXPECT_EQ(found({{"abcd", false, false}, {"bc", false, false}, {"c", false, false}}, "abce"),
            (std::vector<bool>{false, true, true}));
}

// Against the plain search, over few letters so that keys overlap.
TEST(LoreMatcher, FindsWhatAPlainSearchFinds) {
  std::mt19937 random(7);
  const auto text_of = [&random](size_t bytes) {
    std::string out;
    while (out.size() < bytes) out += "abA "[random() % 4];
    return out;
  };
  int hits = 0;
  for (int round = 0; round < 500; ++round) {
    std::vector<LoreMatcher::Key> keys;
    for (int i = 0; i < 8; ++i) keys.push_back({text_of(1 + random() % 5), false, false});
    const std::string text = text_of(random() % 60);
    const std::vector<bool> all = found(keys, text);
    for (size_t i = 0; i < keys.size(); ++i) {
      const bool there = fold_case(text).find(fold_case(keys[i].text)) != std::string::npos;
      hits += there ? 1 : 0;
      ASSERT_EQ(all[i], there) << "'" << keys[i].text << "' in '" << text << "'";
    }
  }
  EXPECT_GT(hits, 500);
}

// Time does not grow with the number of keys that are spelt alike.
TEST(LoreMatcher, ManySpellingsOfOneKeyAreNotTriedOneByOne) {
  constexpr size_t kLetters = 15;
  std::vector<LoreMatcher::Key> keys;
  for (size_t spelling = 1; spelling < 1u << 14; ++spelling) {
    std::string text(kLetters, 'a');
    for (size_t i = 0; i < kLetters; ++i)
      if ((spelling >> i & 1) != 0) text[i] = 'A';
    keys.push_back({text, true, false});
  }
  const LoreMatcher matcher(keys);
  std::vector<bool> out(keys.size());
  const double begin = cpu_seconds();
  matcher.find(std::string(64u << 10, 'a') + " Aaaaaaaaaaaaaaa", out);
  EXPECT_LT(cpu_seconds() - begin, 0.5);
  EXPECT_EQ(std::count(out.begin(), out.end(), true), 1);
  EXPECT_TRUE(out[0]) << "the one with a great letter at its begin";
}

TEST(LoreMatcher, FoldingKeepsEveryBytesPlace) {
  const std::string text = "ÀÞ×ß ΑΩ ЯЁ 明 😀 Īı";
  EXPECT_EQ(fold_case(text).size(), text.size());
  EXPECT_EQ(fold_case("ÀÞ×ß ΑΩ ЯЁ 明"), "àþ×ß αω яё 明");
}

}  // namespace
}  // namespace troupe
