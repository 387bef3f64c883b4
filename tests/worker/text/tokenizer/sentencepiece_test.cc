// tokenizer.model with and without the files beside it, and invalid models.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json/object.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "common/json/json.h"
#include "worker/text/tokenizer/detokenizer.h"
#include "worker/text/tokenizer/spm_model.h"
#include "worker/text/tokenizer/tokenizer.h"

namespace troupe {
namespace sentencepiece_test {

using ::testing::HasSubstr;

std::string fixture(const std::string& name) {
  std::ifstream file(TROUPE_SOURCE_DIR "/tests/fixtures/tokenizers/" + name, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

std::unique_ptr<Tokenizer> load(const std::string& model, const char* config) {
  auto tokenizer = Tokenizer::from_sentencepiece(model, parse_json(config)->as_object(), "tokenizer.model");
  if (!tokenizer.ok()) throw std::runtime_error(tokenizer.status().ToString());
  return *std::move(tokenizer);
}

std::string error_of(const std::string& model, const char* config = "{}") {
  auto tokenizer = Tokenizer::from_sentencepiece(model, parse_json(config)->as_object(), "tokenizer.model");
  return tokenizer.ok() ? "no error" : std::string(tokenizer.status().message());
}

std::string tokens_of(const Tokenizer& tokenizer, std::string_view text, bool add_special = false) {
  auto ids = tokenizer.encode(text, add_special);
  if (!ids.ok()) return ids.status().ToString();
  std::string joined;
  for (int32_t id : *ids) {
    if (!joined.empty()) joined += "|";
    joined +=
        tokenizer.is_special(id) ? "#" + std::to_string(id) : std::string(tokenizer.token_bytes(id, false));
  }
  return joined;
}

constexpr const char* kLlama =
    R"({"tokenizer_class": "LlamaTokenizer", "legacy": true, "bos_token": "<s>", "unk_token": "<unk>",
    "eos_token": {"content": "</s>", "lstrip": false}, "pad_token": "<nobody knows it>"})";

TEST(SentencePiece, TreatsSpecialStringsAsTextWithoutAConfig) {
  auto tokenizer = load(fixture("bpe.model"), "{}");
  auto ids = tokenizer->encode("<s>a</s>", /*add_special=*/true);
  ASSERT_TRUE(ids.ok());
  EXPECT_THAT(*ids, ::testing::Not(::testing::Contains(::testing::AnyOf(1, 2))));
  EXPECT_EQ(tokenizer->decode(*ids, false), "<s>a</s>");
  EXPECT_TRUE(tokenizer->is_special(1));
  EXPECT_EQ(tokenizer->decode({1, 2}, false), "");
}

TEST(SentencePiece, SplitsSpecialStringsNamedInTheConfig) {
  auto tokenizer = load(fixture("bpe.model"), kLlama);
  EXPECT_EQ(tokens_of(*tokenizer, "<s>a</s> b"), "#1| a|#2| b");
  EXPECT_EQ(tokens_of(*tokenizer, "a", /*add_special=*/true), "#1| a");
  // Only the beginning of the text loses its space, as in Transformers.
  EXPECT_EQ(tokenizer->decode({1, *tokenizer->token_to_id("▁a"), 2}, false), "<s> a</s>");
  EXPECT_EQ(tokenizer->decode({1, *tokenizer->token_to_id("▁a"), 2}, true), "a");
}

TEST(SentencePiece, AddsSpaceOnlyAtTheBeginningIfNotLegacy) {
  auto tokenizer = load(fixture("bpe.model"), R"({"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>",
      "add_bos_token": false, "eos_token": "</s>", "legacy": false})");
  EXPECT_EQ(tokens_of(*tokenizer, "a</s>a</s> a"), " a|#2|a|#2| a");
  EXPECT_EQ(tokens_of(*tokenizer, "<s>a"), "#1|a");
  EXPECT_EQ(tokens_of(*tokenizer, "a", /*add_special=*/true), " a");
}

TEST(SentencePiece, ReadsTokensBeyondTheModel) {
  auto tokenizer = load(fixture("bpe.model"), R"({"add_eos_token": true, "eos_token": "<|end|>",
      "added_tokens_decoder": {"2000": {"content": "<|end|>", "special": true, "rstrip": true},
                               "2001": {"content": "<tool>", "special": false}}})");
  EXPECT_EQ(tokenizer->vocab_size(), 2002);
  EXPECT_EQ(tokens_of(*tokenizer, "a<|end|>  b<tool>", true), " a|#2000| b|<tool>|#2000");
  EXPECT_EQ(tokenizer->decode({2001, 2000}, true), "<tool>");
  EXPECT_EQ(tokenizer->decode({1999, 5000, -1}, false), "");
}

TEST(SentencePiece, ReadsDirectoryAndPrefersTokenizerJson) {
  std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / "spm_directory";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  auto write = [&](const char* name, const std::string& content) {
    std::ofstream(folder / name, std::ios::binary) << content;
  };
  write("tokenizer.model", fixture("bpe.model"));
  write("tokenizer_config.json", kLlama);
  write("added_tokens.json", R"({"<nobody knows it>": 3000})");
  auto tokenizer = Tokenizer::load(folder);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ(tokens_of(**tokenizer, "<s><nobody knows it>"), "#1|#3000");
  write("added_tokens.json", R"({"<x>": -1})");
  EXPECT_THAT(std::string(Tokenizer::load(folder).status().message()),
              HasSubstr("added_tokens.json: <x>: expected a token id"));
  write("added_tokens.json", "{}");
  write("tokenizer.json", fixture("bytes.json"));
  tokenizer = Tokenizer::load(folder);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_NE((*tokenizer)->token_to_id("Ġ"), std::nullopt);
  std::filesystem::remove_all(folder);
}

TEST(SentencePiece, NamesFaultsOfTheConfig) {
  std::string model = fixture("bpe.model");
  EXPECT_THAT(error_of(model, R"({"added_tokens_decoder": {"x": {"content": "a"}}})"),
              HasSubstr("tokenizer_config.json: added_tokens_decoder.x: expected a token id"));
  EXPECT_THAT(error_of(model, R"({"bos_token": 1})"),
              HasSubstr("tokenizer_config.json: bos_token: expected a string or an object with \"content\", "
                        "found a number"));
  EXPECT_THAT(error_of(model, R"({"legacy": "no"})"), HasSubstr("legacy: expected true or false"));
  EXPECT_THAT(
      error_of(model, R"({"added_tokens_decoder": {"5": {"content": "<a>"}, "05": {"content": "<b>"}}})"),
      HasSubstr("added token \"<b>\": id 5 is that of \"<a>\" already"));
}

// Serialises a field of a protocol buffer, and a piece.
std::string bytes_field(char number, const std::string& content) {
  return std::string(1, static_cast<char>(number << 3 | 2)) + static_cast<char>(content.size()) + content;
}

std::string piece(const std::string& text, char type = 1, float score = -1) {
  std::string score_bytes(sizeof score, '\0');
  std::memcpy(score_bytes.data(), &score, sizeof score);
  return bytes_field(1, bytes_field(1, text) + "\x15" + score_bytes + "\x18" + type);
}

TEST(SentencePiece, NamesInvalidPartsOfTheModel) {
  std::string model = fixture("bpe.model");
  EXPECT_THAT(error_of("not a model at all"), HasSubstr("not a SentencePiece model"));
  EXPECT_THAT(error_of(model.substr(0, model.size() / 2 + 1)),
              HasSubstr("tokenizer.model: not a SentencePiece model"));
  EXPECT_THAT(error_of(std::string()), HasSubstr("it has no pieces"));
  std::string unknown = piece("<unk>", 2);
  EXPECT_THAT(error_of(unknown + piece("a") + piece("a")), HasSubstr("piece 2: \"a\" is piece 1 already"));
  EXPECT_THAT(error_of(unknown + piece("")), HasSubstr("piece 1: empty"));
  EXPECT_THAT(error_of(unknown + piece("\xFF")), HasSubstr("piece 1: expected UTF-8"));
  EXPECT_THAT(error_of(unknown + piece(std::string("a\0b", 3))), HasSubstr("piece 1: expected UTF-8"));
  EXPECT_THAT(error_of(unknown + piece("a", 9)), HasSubstr("piece 1: type 9 is unknown"));
  EXPECT_THAT(error_of(unknown + piece("a", 6)), HasSubstr("\"a\" is a byte, but not"));
  EXPECT_THAT(error_of(unknown + piece("a", 1, std::numeric_limits<float>::quiet_NaN())),
              HasSubstr("piece 1: its score"));
  EXPECT_THAT(error_of(piece("a")), HasSubstr("SentencePiece refuses the model"));
  EXPECT_THAT(error_of(model, R"({"bos_token": "<nothing>", "add_bos_token": true})"),
              HasSubstr("no file gives it an id"));
  std::string nested = unknown;
  for (int i = 1; i <= 70; ++i) nested += piece(std::string(static_cast<size_t>(i), 'a'), 4);
  EXPECT_THAT(error_of(nested), HasSubstr("user-defined symbols: more than 64"));
}

// Serialises a charsmap: the trie's size, the trie, the texts.
std::string charsmap(const std::vector<uint32_t>& units, const std::string& texts) {
  auto size = static_cast<uint32_t>(units.size() * sizeof(uint32_t));
  std::string bytes(sizeof size + size, '\0');
  std::memcpy(bytes.data(), &size, sizeof size);
  std::memcpy(bytes.data() + sizeof size, units.data(), size);
  return bytes + texts;
}

TEST(Charsmap, IsCheckedToItsEndsBeforeTheLibraryWalksIt) {
  auto real = SpmModel::parse(fixture("unigram_plain.model"));
  ASSERT_TRUE(real.ok()) << real.status();
  ASSERT_FALSE(real->charsmap.empty());
  auto message = [](const std::string& map) { return std::string(check_charsmap(map).message()); };
  EXPECT_EQ(message(real->charsmap), "");
  const std::string text("x\0", 2);
  EXPECT_THAT(message("ab"), HasSubstr("its size does not fit"));
  EXPECT_THAT(message(charsmap(std::vector<uint32_t>(256), "no NUL")), HasSubstr("ends with a NUL"));
  // The root's children would lie beyond the end.
  EXPECT_THAT(message(charsmap(std::vector<uint32_t>(256, 300u << 10), text)), HasSubstr("points outside"));
  std::vector<uint32_t> loop(512, ~0u);                      // ~0: a unit that no byte leads to
  loop[0] = 256u << 10;                                      // the root's children: 256 and on
  loop[256 + 'a'] = 'a' | static_cast<uint32_t>('a') << 10;  // "a" leads back to them
  EXPECT_THAT(message(charsmap(loop, text)), HasSubstr("a path without an end"));
  std::vector<uint32_t> far_value(768, ~0u);
  far_value[0] = 256u << 10;
  far_value[256 + 'a'] = 'a' | 1u << 8 | (static_cast<uint32_t>(256 + 'a') ^ 512u) << 10;
  far_value[512] = 1u << 31 | 99;  // a text that does not exist
  EXPECT_THAT(message(charsmap(far_value, text)), HasSubstr("outside of the texts"));
  far_value[512] = 1u << 31 | 0;
  EXPECT_EQ(message(charsmap(far_value, text)), "");
}

TEST(SentencePiece, SurvivesModelsWithFlippedBytes) {
  std::mt19937_64 rng(7);
  for (const char* name : {"bpe.model", "unigram.model", "unigram_plain.model"}) {
    const std::string model = fixture(name);
    int loaded = 0;
    for (int round = 0; round < 60; ++round) {
      std::string broken = model;
      for (size_t i = 0; i < 1 + rng() % 3; ++i) broken[rng() % broken.size()] = static_cast<char>(rng());
      auto tokenizer = Tokenizer::from_sentencepiece(broken, {}, name);
      if (!tokenizer.ok()) continue;
      ++loaded;
      auto ids = (*tokenizer)->encode("Hello, 宋江 ＡＢ fi e\u0301 <|im_start|>", false);
      if (ids.ok()) (*tokenizer)->decode(*ids, false);
    }
    EXPECT_GT(loaded, 0) << name;
  }
}

}  // namespace sentencepiece_test
}  // namespace troupe
