// Compares our own small tokenizers (tests/fixtures/make_tokenizers.py), which together use every component,
// with the originals' results for the same texts and ids; and every stream of tokens with the whole decode.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "common/json/json.h"
#include "tests/cpu_time.h"
#include "worker/text/tokenizer/detokenizer.h"
#include "worker/text/tokenizer/token_cache.h"
#include "worker/text/tokenizer/tokenizer.h"

namespace troupe {
namespace tokenizer_golden_test {

const std::string kFolder = TROUPE_SOURCE_DIR "/tests/fixtures/tokenizers/";

bj::value read(const std::string& name) {
  auto value = read_json_file(kFolder + name);
  if (!value.ok()) throw std::runtime_error(value.status().ToString());
  return *std::move(value);
}

std::string read_bytes(const std::string& name) {
  std::ifstream file(kFolder + name, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

// Applies the golden's changes to the base; those of "model" go into the model.
std::string changed(const bj::object& golden) {
  bj::object file = read(std::string(golden.at("base").as_string()) + ".json").as_object();
  for (const auto& [key, value] : golden.at("changes").as_object()) {
    if (key != "model") {
      file[key] = value;
      continue;
    }
    for (const auto& [name, option] : value.as_object()) file["model"].as_object()[name] = option;
  }
  return bj::serialize(file);
}

std::unique_ptr<Tokenizer> load(const bj::object& golden) {
  auto tokenizer = golden.contains("model") && golden.at("model").is_string()
                       ? Tokenizer::from_sentencepiece(
                             read_bytes(std::string(golden.at("model").as_string())), {}, "tokenizer.model")
                       : Tokenizer::from_json(changed(golden), "tokenizer.json");
  if (!tokenizer.ok()) throw std::runtime_error(tokenizer.status().ToString());
  return *std::move(tokenizer);
}

std::vector<int32_t> ids_of(const bj::value& list) {
  std::vector<int32_t> ids;
  for (const bj::value& id : list.as_array()) ids.push_back(static_cast<int32_t>(id.as_int64()));
  return ids;
}

std::string streamed(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  auto stream = tokenizer.stream(/*skip_special=*/false);
  std::string text;
  for (int32_t id : ids) {
    std::string piece = stream->push(id);
    EXPECT_TRUE(is_valid_utf8(piece));
    text += piece;
  }
  return text + stream->finish();
}

// The decoded text without a character that the end cuts off.
std::string answer_of(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  auto stream = tokenizer.stream(/*skip_special=*/true);
  std::string text;
  for (int32_t id : ids) text += stream->push(id);
  return text + stream->finish(/*keeps_cut_character=*/false);
}

std::string detokenized(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  Detokenizer detokenizer(&tokenizer, {"never to be found"});
  std::string text;
  for (int32_t id : ids) text += detokenizer.push(id);
  return text + detokenizer.finish();
}

class Golden : public ::testing::TestWithParam<std::string> {};

TEST_P(Golden, TextsAndIdsEqualTheOriginals) {
  bj::object golden = read(GetParam()).as_object();
  std::unique_ptr<Tokenizer> tokenizer = load(golden);
  for (const bj::value& entry : golden.at("encode").as_array()) {
    std::string text(entry.at("text").as_string());
    auto ids = tokenizer->encode(text, /*add_special=*/true);
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_EQ(*ids, ids_of(entry.at("ids"))) << text;
  }
  for (const bj::value& entry : golden.at("decode").as_array()) {
    std::vector<int32_t> ids = ids_of(entry.at("ids"));
    std::string text(entry.at("text").as_string());
    EXPECT_EQ(tokenizer->decode(ids, /*skip_special=*/false), text) << bj::serialize(entry.at("ids"));
    EXPECT_EQ(streamed(*tokenizer, ids), text) << bj::serialize(entry.at("ids"));
    EXPECT_EQ(detokenized(*tokenizer, ids), answer_of(*tokenizer, ids)) << bj::serialize(entry.at("ids"));
  }
}

TEST_P(Golden, TokenCacheChangesNoIds) {
  bj::object golden = read(GetParam()).as_object();
  std::unique_ptr<Tokenizer> tokenizer = load(golden);
  std::vector<std::string> marks;
  for (int32_t id = 0; id < tokenizer->vocab_size(); ++id) {
    if (tokenizer->is_special(id)) marks.emplace_back(tokenizer->token_text(id));
  }
  ASSERT_FALSE(marks.empty());
  TokenCache::Options options;
  options.text_bytes_min = 1;
  TokenCache cache(options);
  const bj::array& texts = golden.at("encode").as_array();
  for (int round = 0; round < 2; ++round) {
    for (size_t i = 0; i < texts.size(); ++i) {
      const std::string mark = marks[i % marks.size()];
      const std::string body(texts[i].at("text").as_string());
      const std::string next(texts[(i + 1) % texts.size()].at("text").as_string());
      for (const std::string& text : {body + mark + next, mark + body + mark + body + mark, mark + next}) {
        EXPECT_EQ(*tokenizer->encode(text, true, &cache), *tokenizer->encode(text, true)) << text;
      }
    }
  }
  // A bare tokenizer.model treats special strings as plain text, which cuts nothing.
  const bool is_bare_model = golden.contains("model") && golden.at("model").is_string();
  EXPECT_EQ(cache.stats().hits > 0, !is_bare_model);
}

std::vector<std::string> goldens() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    std::string name = entry.path().filename();
    bool is_golden =
        name.find(".golden.json") != std::string::npos || name.find(".spm.json") != std::string::npos;
    if (is_golden) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string test_name(const ::testing::TestParamInfo<std::string>& info) {
  return info.param.substr(0, info.param.find('.'));
}

INSTANTIATE_TEST_SUITE_P(Tokenizer, Golden, ::testing::ValuesIn(goldens()), test_name);

TEST(TokenStream, KeepsTheFirstSpaceOfAContinuedText) {
  for (const char* name : {"llama2.golden.json", "metaspace_always.golden.json", "bpe.spm.json"}) {
    std::unique_ptr<Tokenizer> tokenizer = load(read(name).as_object());
    std::vector<int32_t> ids = *tokenizer->encode("Hello world", /*add_special=*/false);
    auto text = [&](bool at_start) {
      auto stream = tokenizer->stream(true, at_start);
      std::string whole;
      for (int32_t id : ids) whole += stream->push(id);
      return whole + stream->finish();
    };
    EXPECT_EQ(text(true), "Hello world") << name;
    EXPECT_EQ(text(false), " Hello world") << name;
  }
}

TEST(TokenStream, WaitsForTheEndOfARunOfBytes) {
  std::unique_ptr<Tokenizer> tokenizer = load(read("llama2.golden.json").as_object());
  auto byte = [&](const char* name) { return *tokenizer->token_to_id(name); };
  auto stream = tokenizer->stream(true);
  EXPECT_EQ(stream->push(byte("<0xC3>")), "");
  EXPECT_EQ(stream->push(byte("<0xA9>")), "");
  EXPECT_EQ(stream->push(*tokenizer->token_to_id("a")), "éa");
  // With one wrong byte in the run, the original decodes none of it to a character.
  EXPECT_EQ(stream->push(byte("<0xC3>")) + stream->push(byte("<0xA9>")) + stream->push(byte("<0xFF>")), "");
  EXPECT_EQ(stream->finish(), "\uFFFD\uFFFD\uFFFD");
}

// A card of many odd words, and a question.
std::string random_prompt(std::mt19937& rng, const std::string& card) {
  const std::vector<std::string> words{" ",        "  ",     "\n",      " the",   " und", "Grüße",
                                       " \u2581x", "\u2581", " 宋江",   " 👩",     "word", ". Then",
                                       " 12",      "\t",     "e\u0301", " don't", "a",    " \u0378q"};
  std::string text = card;
  for (size_t n = 1 + rng() % 30; n > 0; --n) text += words[rng() % words.size()];
  return text;
}

// For every tokenizer the ids are the same with a cache, which works in parts if the words allow that.
TEST(TokenCache, PartsOfAnOpenCardEncodeToTheSameIds) {
  TokenCache::Options options;
  options.text_bytes_min = 6;
  options.part_bytes_min = 12;
  for (const std::string& name : goldens()) {
    std::unique_ptr<Tokenizer> tokenizer = load(read(name).as_object());
    TokenCache cache(options);
    std::mt19937 rng(7);
    std::string card;
    for (int i = 0; i < 300; ++i) {
      if (i % 20 == 0) card = random_prompt(rng, random_prompt(rng, ""));
      const std::string text = random_prompt(rng, card);
      for (const bool add_special : {false, true}) {
        const auto plain = tokenizer->encode(text, add_special);
        const auto cached = tokenizer->encode(text, add_special, &cache);
        ASSERT_EQ(plain.ok(), cached.ok()) << name;
        if (plain.ok()) {
          ASSERT_EQ(*plain, *cached) << name << ": " << text;
        }
      }
    }
    if (name == "llama2.golden.json" || name == "bpe.spm.json") {
      EXPECT_GT(cache.stats().hits, 300u) << name << ": a card is known after its first user";
    }
  }
}

TEST(Tokenizer, EncodesAMegabyteOfOneCharacterInTime) {
  for (const char* name : {"llama2.golden.json", "metaspace_always.golden.json", "words.golden.json",
                           "bpe.spm.json", "unigram.spm.json"}) {
    std::unique_ptr<Tokenizer> tokenizer = load(read(name).as_object());
    const double started = cpu_seconds();
    for (char c : {'a', ' '}) {
      EXPECT_TRUE(tokenizer->encode(std::string(1 << 20, c), false).ok());
    }
    // Well under a second each in release; quadratic time would be hours.
    EXPECT_LT(cpu_seconds() - started, 120.0) << name;
  }
}

}  // namespace tokenizer_golden_test
}  // namespace troupe
