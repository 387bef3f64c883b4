#include "worker/text/tokenizer/cut_text.h"

#include <gtest/gtest.h>

#include <string>

#include "common/json/json.h"
#include "worker/text/tokenizer/token_cache.h"
#include "worker/text/tokenizer/tokenizer.h"

namespace troupe::cut_text_test {

using Ids = std::vector<int32_t>;

constexpr std::string_view kMark = "\xEF\xB7\x90";

TEST(CutText, MarksStandForCutsAndTextKeepsItsOwn) {
  const std::string own = std::string("a") + std::string(kMark) + "b", escape = "\uFDD1",
                    of_template(kOwnMark);
  for (const std::string& text : {std::string(), std::string("abc"), own, own + own, std::string(kMark),
                                  escape, escape + own, own + escape + escape, std::string(kMark) + escape,
                                  of_template, own + of_template + escape + of_template}) {
    for (const std::vector<size_t>& cuts : {std::vector<size_t>(), {0}, {text.size()}}) {
      const CutText again = without_marks(with_marks(text, cuts));
      EXPECT_EQ(again.text, text);
      EXPECT_EQ(again.cuts, cuts);
      EXPECT_TRUE(again.own.empty());
    }
  }
  EXPECT_EQ(without_marks(with_marks("abcd", std::vector<size_t>{1, 3})).cuts, (std::vector<size_t>{1, 3}));
}

TEST(CutText, OwnMarksStandForPlacesOfTheTemplates) {
  const std::string text = with_marks(std::string(kOwnMark) + "a\uFDD1", std::vector<size_t>{0});
  const CutText cut = without_marks(with_own_marks("<e>b<e>", std::vector<size_t>{0, 4}) + text +
                                    with_own_marks("<e>", std::vector<size_t>{0}));
  EXPECT_EQ(cut.text, "<e>b<e>" + std::string(kOwnMark) + "a\uFDD1<e>");
  EXPECT_EQ(cut.own, (std::vector<size_t>{0, 4, 14}));
  EXPECT_EQ(cut.cuts, (std::vector<size_t>{7}));
}

// Tokens: letters and signs by themselves; <e> and <ee> special, <t> not; <n> is special and normalised.
std::unique_ptr<Tokenizer> make(const std::string& normalizer) {
  std::string vocab = R"("<unk>":0)";
  const std::string letters = "<>abemnt|/";
  for (size_t i = 0; i < letters.size(); ++i)
    vocab += ",\"" + letters.substr(i, 1) + "\":" + std::to_string(i + 1);
  const auto added = [](int id, const std::string& content, bool special, bool normalized) {
    return R"({"id":)" + std::to_string(id) + R"(,"content":")" + content + R"(","special":)" +
           (special ? "true" : "false") + R"(,"normalized":)" + (normalized ? "true}" : "false}");
  };
  const std::string json =
      R"({"added_tokens":[)" + added(20, "<e>", true, false) + "," + added(21, "<e><m>", true, false) + "," +
      added(22, "<t>", false, false) + "," + added(23, "<n>", true, true) + R"(],"normalizer":)" +
      normalizer + R"(,"model":{"type":"BPE","unk_token":"<unk>","vocab":{)" + vocab + R"(},"merges":[]}})";
  auto tokenizer = Tokenizer::from_json(json, "made.json");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

Ids quoted(const Tokenizer& tokenizer, std::string_view text, TokenCache* cache = nullptr) {
  const std::vector<size_t> cuts = tokenizer.cuts_of_special(text);
  return tokenizer.encode(text, EncodeOptions{false, cache, cuts}).value();
}

std::string spelled(const Tokenizer& tokenizer, const Ids& ids) {
  std::string text;
  for (const int32_t id : ids) text += std::string(tokenizer.token_text(id)) + " ";
  return text;
}

constexpr const char* kNone = "null";
constexpr const char* kLower = R"({"type":"Lowercase"})";

TEST(CutText, SpecialTokensOfTheTextStayText) {
  for (const char* normalizer : {kNone, kLower}) {
    const auto tokenizer = make(normalizer);
    EXPECT_EQ(spelled(*tokenizer, quoted(*tokenizer, "a<e>b")), "a < e > b ");
    EXPECT_EQ(spelled(*tokenizer, quoted(*tokenizer, "<e><m>")), "< e > < m > ");
    EXPECT_EQ(spelled(*tokenizer, quoted(*tokenizer, "<e><e><m>")), "< e > < e > < m > ");
    EXPECT_EQ(spelled(*tokenizer, quoted(*tokenizer, "a<n>b<e>")), "a < n > b < e > ");
    EXPECT_EQ(spelled(*tokenizer, quoted(*tokenizer, "a<t>b")), "a <t> b ")
        << "an added token, but no special one";
  }
}

// Two fields of a message may come one after the other.
TEST(CutText, TheBeginningOfASpecialTokenIsCutFromWhatFollows) {
  const auto tokenizer = make(kNone);
  for (const std::string begin : {"<", "<e", "<e><", "<e><m"}) {
    const std::vector<size_t> cuts = tokenizer->cuts_of_special("a" + begin);
    ASSERT_FALSE(cuts.empty()) << begin;
    EXPECT_EQ(cuts.back(), begin.size() + 1);
  }
  EXPECT_TRUE(tokenizer->cuts_of_special("a<x").empty());
  EXPECT_TRUE(tokenizer->cuts_of_special("").empty());
  const std::string marked = with_marks("a<e", tokenizer->cuts_of_special("a<e")) + ">";
  const CutText cut = without_marks(marked);
  EXPECT_EQ(spelled(*tokenizer, tokenizer->encode(cut.text, EncodeOptions{false, nullptr, cut.cuts}).value()),
            "a < e > ");
}

TEST(CutText, OnlyWhatIsCutStaysText) {
  for (const char* normalizer : {kNone, kLower}) {
    const auto tokenizer = make(normalizer);
    for (const std::string token : {"<e>", "<n>"}) {
      const std::string text = token + "a" + token + "b" + token;
      const std::vector<size_t> cuts{token.size() + 2};
      const Ids ids = tokenizer->encode(text, EncodeOptions{false, nullptr, cuts}).value();
      const std::string letter = token.substr(1, 1);
      EXPECT_EQ(spelled(*tokenizer, ids), token + " a < " + letter + " > b " + token + " ");
    }
  }
}

// The ids of a text with cuts are no answer for the same text without.
TEST(CutText, CacheKeepsThemApart) {
  for (const char* normalizer : {kNone, kLower}) {
    const auto tokenizer = make(normalizer);
    TokenCache cache;
    for (const std::string token : {"<e>", "<n>"}) {
      const std::string text = std::string(600, 'a') + token + std::string(600, 'b');
      const Ids as_text = quoted(*tokenizer, text), as_token = tokenizer->encode(text, false).value();
      ASSERT_NE(as_text, as_token);
      for (int round = 0; round < 3; ++round) {
        EXPECT_EQ(quoted(*tokenizer, text, &cache), as_text);
        EXPECT_EQ(tokenizer->encode(text, false, &cache).value(), as_token);
      }
    }
  }
}

}  // namespace troupe::cut_text_test
