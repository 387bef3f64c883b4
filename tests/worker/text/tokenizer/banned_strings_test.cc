// Every verdict is compared with what the whole text says, for random strings and tokens.

#include "worker/text/tokenizer/banned_strings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>

#include "tests/common/sanitized.h"
#include "worker/text/unicode.h"

namespace troupe::banned_strings_test {

std::unique_ptr<Tokenizer> load_tokenizer() {
  auto loaded = Tokenizer::load(TROUPE_SOURCE_DIR "/configs/demo-model");
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  return *std::move(loaded);
}

std::string lowercase(std::string_view text) {
  std::string lower;
  for (size_t at = 0; at < text.size();) {
    const Utf8Part part = first_utf8_part(text.substr(at));
    if (part.valid) {
      append_lowercase(lower, next_code_point(text, at));
    } else {
      lower += "\xEF\xBF\xBD";
      at += part.size;
    }
  }
  return lower;
}

class BannedStringsTest : public ::testing::Test {
 protected:
  std::vector<int32_t> ids_of(std::string_view text) const {
    auto ids = tokenizer_->encode(text, /*add_special=*/false);
    EXPECT_TRUE(ids.ok());
    return *ids;
  }

  std::unique_ptr<Tokenizer> tokenizer_ = load_tokenizer();
};

TEST_F(BannedStringsTest, TokenThatMayBeginNoneIsReleased) {
  BannedStrings banned(tokenizer_.get(), {"zebra"});
  for (const int32_t id : ids_of("a quiet horse")) {
    EXPECT_EQ(banned.push(id).released, 1u);
    EXPECT_TRUE(banned.banned().empty());
  }
}

TEST_F(BannedStringsTest, AnswerGoesBackToWhereTheStringBegins) {
  const std::vector<int32_t> ids = ids_of("her voice was barely above a whisper");
  const size_t before = ids_of("her voice was barely").size();
  ASSERT_LT(before + 1, ids.size());
  BannedStrings banned(tokenizer_.get(), {"Above A Whisper"});
  size_t released = 0;
  for (size_t i = 0; i + 1 < ids.size(); ++i) {
    const BannedStrings::Verdict verdict = banned.push(ids[i]);
    ASSERT_FALSE(verdict.rewinds);
    released += verdict.released;
  }
  EXPECT_EQ(released, before);
  const BannedStrings::Verdict verdict = banned.push(ids.back());
  EXPECT_TRUE(verdict.rewinds);
  EXPECT_EQ(verdict.kept, 0u);
  ASSERT_EQ(banned.banned().size(), 1u);
  EXPECT_EQ(banned.banned()[0], ids[before]);
}

TEST_F(BannedStringsTest, EachTokenOfThePlaceThatComesToTheStringIsBanned) {
  BannedStrings banned(tokenizer_.get(), {"x", "y"});
  const std::vector<int32_t> x = ids_of("x"), y = ids_of("y"), z = ids_of("z");
  ASSERT_EQ(x.size() + y.size() + z.size(), 3u);
  EXPECT_TRUE(banned.push(x[0]).rewinds);
  EXPECT_TRUE(banned.push(y[0]).rewinds);
  EXPECT_EQ(std::vector<int32_t>(banned.banned().begin(), banned.banned().end()),
            (std::vector<int32_t>{x[0], y[0]}));
  EXPECT_EQ(banned.push(z[0]).released, 1u);
  EXPECT_TRUE(banned.banned().empty()) << "only there";
}

// A string that begins in what was sent is kept from being completed.
TEST_F(BannedStringsTest, StringThatBeginsInSentTextIsNotCompleted) {
  const std::vector<int32_t> a = ids_of("a"), b = ids_of("b");
  ASSERT_EQ(a.size() + b.size(), 2u);
  BannedStrings banned(tokenizer_.get(), {"ab"});
  banned.append_sent(a[0]);
  const BannedStrings::Verdict verdict = banned.push(b[0]);
  EXPECT_TRUE(verdict.rewinds);
  EXPECT_EQ(verdict.kept, 0u);
  ASSERT_EQ(banned.banned().size(), 1u);
  EXPECT_EQ(banned.banned()[0], b[0]);
}

// The text of an answer, as a naive reader keeps it.
struct Answer {
  const Tokenizer* tokenizer;
  std::vector<std::string> strings;
  std::vector<int32_t> ids;
  size_t settled = 0;  // leading ids

  std::string text(size_t count) const {
    std::string bytes;
    for (size_t i = 0; i < count; ++i) bytes += tokenizer->token_bytes(ids[i], true);
    return bytes;
  }
  std::string whole_lowercase(size_t count) const { return lowercase(without_cut_character(text(count))); }
  bool has_string() const {
    const std::string lower = whole_lowercase(ids.size());
    return std::any_of(strings.begin(), strings.end(),
                       [&](const std::string& s) { return lower.find(lowercase(s)) != std::string::npos; });
  }
  // Whether a string may begin in the text of the id at `index`, or before it.
  bool may_begin(size_t index) const {
    if (without_cut_character(text(ids.size())).size() < text(index + 1).size()) return true;
    const std::string lower = whole_lowercase(ids.size());
    const std::string until = text(index + 1);
    const bool is_cut = without_cut_character(until).size() < until.size();  // it has a part of the next one
    const size_t end = whole_lowercase(index + 1).size() + is_cut;
    for (const std::string& s : strings) {
      const std::string string = lowercase(s);
      for (size_t at = 0; at < std::min(end, lower.size()); ++at) {
        const std::string tail = lower.substr(at);
        if (tail.size() < string.size() && string.starts_with(tail)) return true;
      }
    }
    return false;
  }
};

TEST_F(BannedStringsTest, VerdictsAreThoseOfTheWholeText) {
  std::mt19937_64 rng(11);
  std::vector<int32_t> alphabet;
  for (const char* text : {"a", "b", "A", "ab", " a", "Ba", "é", "É", "日", "本"}) {
    for (const int32_t id : ids_of(text)) alphabet.push_back(id);
  }
  const char* const pieces[] = {"a", "b", "A", "é", "É", "日", "本", " "};
  int rewinds = 0, releases_of_many = 0, into_sent = 0;
  for (int round = 0; round < eighth_if_sanitized(3000); ++round) {
    Answer answer{tokenizer_.get(), {}, {}};
    for (size_t i = 0; i < 1 + rng() % 3; ++i) {
      std::string& string = answer.strings.emplace_back();
      for (size_t j = 0; j < 2 + rng() % 4; ++j) string += pieces[rng() % std::size(pieces)];
    }
    BannedStrings banned(tokenizer_.get(), answer.strings);
    for (int step = 0; step < 40; ++step) {
      const int32_t token = alphabet[rng() % alphabet.size()];
      const auto barred = banned.banned();
      if (std::find(barred.begin(), barred.end(), token) != barred.end()) continue;
      const std::vector<int32_t> barred_before(barred.begin(), barred.end());
      answer.ids.push_back(token);
      const BannedStrings::Verdict verdict = banned.push(token);
      ASSERT_EQ(verdict.rewinds, answer.has_string()) << answer.text(answer.ids.size());
      if (verdict.rewinds) {
        ++rewinds;
        into_sent += verdict.kept == 0 && answer.settled > 0;
        const size_t kept = answer.settled + verdict.kept;
        ASSERT_LT(kept, answer.ids.size());
        ASSERT_EQ(banned.banned().back(), answer.ids[kept]);
        if (kept + 1 == answer.ids.size()) {
          ASSERT_EQ(banned.banned().size(), barred_before.size() + 1);
        }
        answer.ids.resize(kept);
        ASSERT_FALSE(answer.has_string());
        continue;
      }
      answer.settled += verdict.released;
      releases_of_many += verdict.released > 1;
      ASSERT_LE(answer.settled, answer.ids.size());
      // (What was settled earlier may have come to begin one, by what was drawn after a rewind.)
      for (size_t i = answer.settled - verdict.released; i < answer.settled; ++i) {
        ASSERT_FALSE(answer.may_begin(i)) << answer.text(answer.ids.size());
      }
      if (answer.settled < answer.ids.size()) {
        ASSERT_TRUE(answer.may_begin(answer.settled));
      }
    }
  }
  EXPECT_GT(rewinds, least_of_eighth(500));
  EXPECT_GT(releases_of_many, least_of_eighth(1000));
  EXPECT_GT(into_sent, least_of_eighth(10));
}

}  // namespace troupe::banned_strings_test
