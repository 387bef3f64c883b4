// Forced tokens are those that every longer text has, whatever follows, and the same from within a run.

#include "worker/engine/forced_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <fstream>
#include <random>
#include <sstream>

#include "common/json/json.h"
#include "tests/common/sanitized.h"
#include "worker/input/grammar_cache.h"

namespace troupe::forced_tokens_test {

using Ids = std::vector<TokenId>;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;

std::unique_ptr<Tokenizer> load(const std::string& name) {
  const std::string folder = TROUPE_SOURCE_DIR "/tests/fixtures/tokenizers/";
  if (name == "demo") return Tokenizer::load(TROUPE_SOURCE_DIR "/configs/demo-model").value();
  if (name.ends_with(".model")) {
    std::ifstream file(folder + name, std::ios::binary);
    std::ostringstream bytes;
    bytes << file.rdbuf();
    return Tokenizer::from_sentencepiece(bytes.str(), {}, name).value();
  }
  const bj::object golden = read_json_file(folder + name)->as_object();
  bj::object file =
      read_json_file(folder + std::string(golden.at("base").as_string()) + ".json")->as_object();
  for (const auto& [key, value] : golden.at("changes").as_object()) {
    if (key != "model") file[key] = value;
    if (key != "model") continue;
    for (const auto& [option, setting] : value.as_object()) file["model"].as_object()[option] = setting;
  }
  return Tokenizer::from_json(bj::serialize(file), name).value();
}

struct Model {
  explicit Model(const std::string& name)
      : tokenizer(load(name)),
        vocabulary(grammar_vocabulary(*tokenizer, tokenizer->vocab_size(), {}).value()),
        forced(tokenizer.get(), vocabulary.get()) {}

  // As an answer has the text.
  Ids encode(const std::string& text) const {
    EncodeOptions options;
    options.boundary = 1;
    const Ids ids = tokenizer->encode("x" + text, options).value();
    const size_t before = tokenizer->encode("x", false)->size();
    return {ids.begin() + static_cast<ptrdiff_t>(before), ids.end()};
  }
  Ids find(const Ids& answer, const std::string& text, bool completes = false) const {
    return forced.find(answer, {text, completes});
  }
  std::string text(const Ids& ids) const {
    std::string text;
    for (const TokenId id : ids) text += tokenizer->token_bytes(id, false);
    return text;
  }

  std::unique_ptr<Tokenizer> tokenizer;
  std::shared_ptr<const grammar::Vocabulary> vocabulary;
  ForcedTokens forced;
};

Ids first(const Ids& ids, size_t count) {
  return {ids.begin(), ids.begin() + static_cast<ptrdiff_t>(std::min(count, ids.size()))};
}

Ids joined(Ids a, const Ids& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

const char* const kPieces[] = {"{\"name\": \"",
                               "\", \"mood\": \"",
                               "calm",
                               "angry",
                               "ing",
                               " the",
                               " fox",
                               ": ",
                               "\n    ",
                               "宋江",
                               "é",
                               "\"}",
                               ", \"level\": ",
                               "12",
                               "7",
                               "'s",
                               "  ",
                               "don't",
                               "_id",
                               "...",
                               "\"",
                               " \"",
                               "{\"notes\": [",
                               "true, \"done\": [",
                               " and",
                               "e",
                               "\t",
                               "An",
                               "happened",
                               "====",
                               "</",
                               "#"};

class ForcedTokensOf : public ::testing::TestWithParam<const char*> {
 protected:
  std::string pieces(int count) {
    std::string text;
    for (; count > 0; --count) text += kPieces[random_() % std::size(kPieces)];
    return text;
  }
  std::mt19937_64 random_{7};
};
INSTANTIATE_TEST_SUITE_P(Tokenizer, ForcedTokensOf,
                         ::testing::Values("demo", "bpe.model", "unigram.model", "qwen.golden.json",
                                           "llama3.golden.json", "gpt2.golden.json"));

TEST_P(ForcedTokensOf, AreThoseOfEveryLongerText) {
  const Model model(GetParam());
  int64_t texts = 0, tokens = 0;
  for (int round = 0; round < eighth_if_sanitized(240) && !HasFailure(); ++round) {
    const std::string known = pieces(6 + round % 9);
    const Ids ids = model.encode(known);
    if (ids.size() < 3 || model.text(ids) != known) continue;
    const Ids answer = first(ids, 1 + random_() % (ids.size() - 2));
    const std::string text = known.substr(model.text(answer).size());
    const Ids run = model.find(answer, text);
    texts += !run.empty();
    tokens += static_cast<int64_t>(run.size());
    for (int i = 0; i < 12 && !run.empty(); ++i) {
      const std::string more = pieces(1 + i % 2);
      const Ids all = joined(answer, run);
      EXPECT_EQ(first(model.encode(known + more), all.size()), all) << known << "|" << more;
      // From within the run, with more or less of the text in sight.
      const Ids so_far = joined(answer, first(run, 1 + random_() % run.size()));
      const std::string rest = (known + more).substr(model.text(so_far).size());
      EXPECT_EQ(first(joined(so_far, model.find(so_far, rest)), all.size()), all) << known << "|" << more;
    }
  }
  EXPECT_GT(texts, least_of_eighth(80));
  EXPECT_GT(tokens, least_of_eighth(700));
}

TEST(ForcedTokens, EndBeforeWhatATokenMayGoOnFrom) {
  const Model model("demo");
  const Ids answer = model.encode("{\"mood\": \"angry");
  const Ids run = model.find(answer, "\", \"level\": ");
  EXPECT_EQ(model.text(run), "\", \"level\":") << "a space begins the next word";
  EXPECT_THAT(run, ElementsAreArray(first(model.encode("\", \"level\": 1"), run.size())));
}

TEST(ForcedTokens, AllOfItIfTheAnswerEndsWithIt) {
  const Model model("demo");
  const Ids answer = model.encode("{\"mood\": \"angry");
  EXPECT_EQ(model.text(model.find(answer, "\"}", /*completes=*/true)), "\"}");
  EXPECT_EQ(model.text(model.find(answer, "}", /*completes=*/true)), "}");
  EXPECT_EQ(model.text(model.find(answer, "\"}")), "\"");
  EXPECT_THAT(model.find(answer, "}"), IsEmpty());
}

TEST(ForcedTokens, NoneBehindATokenThatIsNotTheTokenizers) {
  const Model model("demo");
  const std::string text = "\", \"level\": ";
  Ids answer = model.encode("{\"mood\": \"of the");
  ASSERT_FALSE(model.find(answer, text).empty());
  answer.pop_back();
  ASSERT_EQ(model.text(answer), "{\"mood\": \"of");
  for (const char* letter : {"Ġ", "t", "h", "e"}) answer.push_back(*model.tokenizer->token_to_id(letter));
  ASSERT_EQ(model.text(answer), "{\"mood\": \"of the");
  EXPECT_THAT(model.find(answer, text), IsEmpty());
  EXPECT_THAT(model.find({}, text), IsEmpty()) << "the first token is drawn in any case";
}

TEST(ForcedTokens, StopAtACharacterThatIsCutOff) {
  const Model model("demo");
  const Ids answer = model.encode("{\"mood\":");
  const std::string text = " \"宋江怒\", \"level\": ";
  const Ids whole = model.find(answer, text);
  for (size_t size = 0; size < text.size(); ++size) {
    const Ids run = model.find(answer, text.substr(0, size));
    EXPECT_THAT(run, ElementsAreArray(first(whole, run.size()))) << size;
  }
}

}  // namespace troupe::forced_tokens_test
