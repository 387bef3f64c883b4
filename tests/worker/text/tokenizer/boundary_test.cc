// A boundary: what stands behind it gets the tokens that an answer there would have had.

#include <gtest/gtest.h>

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <fstream>
#include <sstream>

#include "common/json/json.h"
#include "worker/text/tokenizer/token_cache.h"
#include "worker/text/tokenizer/tokenizer.h"

namespace troupe::boundary_test {

using Ids = std::vector<int32_t>;

const std::string kFolder = TROUPE_SOURCE_DIR "/tests/fixtures/tokenizers/";

std::unique_ptr<Tokenizer> load(const std::string& name) {
  if (name.ends_with(".model")) {
    std::ifstream file(kFolder + name, std::ios::binary);
    std::ostringstream bytes;
    bytes << file.rdbuf();
    return Tokenizer::from_sentencepiece(bytes.str(), {}, name).value();
  }
  const bj::object golden = read_json_file(kFolder + name)->as_object();
  bj::object file =
      read_json_file(kFolder + std::string(golden.at("base").as_string()) + ".json")->as_object();
  for (const auto& [key, value] : golden.at("changes").as_object()) {
    if (key != "model") file[key] = value;
    if (key != "model") continue;
    for (const auto& [option, setting] : value.as_object()) file["model"].as_object()[option] = setting;
  }
  return Tokenizer::from_json(bj::serialize(file), name).value();
}

Ids encoded(const Tokenizer& tokenizer, const std::string& before, const std::string& behind,
            TokenCache* cache = nullptr) {
  EncodeOptions options;
  options.cache = cache;
  options.boundary = before.size();
  return tokenizer.encode(before + behind, options).value();
}

Ids joined(Ids a, const Ids& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(Boundary, BytesBehindItAreEncodedByThemselves) {
  for (const char* name : {"qwen.golden.json", "llama3.golden.json"}) {
    const auto tokenizer = load(name);
    for (const std::string before : {"", "user:", "assistant:\n", "</s>", "a  "}) {
      for (const std::string behind : {"", "\n\nWell", " Well", "well", "  \n", "'s"}) {
        EXPECT_EQ(encoded(*tokenizer, before, behind),
                  joined(tokenizer->encode(before, false).value(), tokenizer->encode(behind, false).value()))
            << name << " " << before << "|" << behind;
      }
    }
  }
}

// Where a text's beginning gets a space, the text behind a boundary gets none: it goes on.
TEST(Boundary, NoSpaceIsAddedBehindText) {
  for (const char* name :
       {"llama2.golden.json", "metaspace_always.golden.json", "metaspace_first.golden.json",
        "metaspace_legacy.golden.json", "bpe.model", "unigram.model"}) {
    const auto tokenizer = load(name);
    for (const std::string behind : {" character", "character", " the user", "!"}) {
      const std::string before = "the user:";
      const Ids ids = encoded(*tokenizer, before, behind);
      EXPECT_EQ(tokenizer->decode(ids, /*skip_special=*/false), before + behind) << name;
      const Ids template_ids = tokenizer->encode(before, false).value();
      ASSERT_GT(ids.size(), template_ids.size());
      EXPECT_TRUE(std::equal(template_ids.begin(), template_ids.end(), ids.begin())) << name << behind;
    }
    // An answer's first token has its space, or the tokenizer put one there.
    EXPECT_EQ(
        encoded(*tokenizer, "the user:", " character"),
        joined(tokenizer->encode("the user:", false).value(), tokenizer->encode("character", false).value()))
        << name;
  }
}

// An added token separates by itself: with the boundary behind it nothing changes.
TEST(Boundary, BehindAnAddedTokenIsWhereTextIsCutAnyway) {
  for (const char* name : {"gpt2.golden.json", "llama2.golden.json", "metaspace_always.golden.json",
                           "metaspace_first.golden.json", "bpe.model"}) {
    const auto tokenizer = load(name);
    for (const std::string behind : {"character", " character", "\n\nuser"}) {
      const std::string before = "user </s>";
      EXPECT_EQ(encoded(*tokenizer, before, behind), tokenizer->encode(before + behind, false).value())
          << name << behind;
    }
  }
}

TEST(Boundary, NoAddedTokenSpansIt) {
  const auto tokenizer = load("qwen.golden.json");
  EXPECT_EQ(tokenizer->encode("a</s>b", false).value().size(), 3u);
  EXPECT_EQ(encoded(*tokenizer, "a</", "s>b"),
            joined(tokenizer->encode("a</", false).value(), tokenizer->encode("s>b", false).value()));
}

TEST(Boundary, CutsAndBosAreThoseOfTheWholeText) {
  const auto tokenizer = load("llama3.golden.json");
  const std::string before = "a</s>b", behind = "c</s>d";
  const std::vector<size_t> cuts{before.size() + 2};
  EncodeOptions options{true, nullptr, cuts, before.size()};
  const Ids ids = tokenizer->encode(before + behind, options).value();
  const int32_t end = tokenizer->token_to_id("</s>").value();
  EXPECT_EQ(ids.front(), tokenizer->token_to_id("<s>").value());
  EXPECT_EQ(ids.back(), end);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), end), 2) << "the one before the boundary, and the last";
  EXPECT_EQ(tokenizer->decode(ids, /*skip_special=*/true), "ab" + behind);
}

// A text that goes on and one that begins anew have the same bytes and other ids.
TEST(Boundary, CacheKeepsThemApart) {
  for (const char* name :
       {"llama2.golden.json", "metaspace_first.golden.json", "bpe.model", "qwen.golden.json"}) {
    const auto tokenizer = load(name);
    TokenCache cache;
    std::string text;
    while (text.size() < 2000) text += "the character of the user ";
    text += "</s>";
    for (int round = 0; round < 2; ++round) {
      EXPECT_EQ(encoded(*tokenizer, "user:", text + "end", &cache),
                encoded(*tokenizer, "user:", text + "end"));
      EXPECT_EQ(encoded(*tokenizer, "", text + "end", &cache),
                tokenizer->encode(text + "end", false).value());
      EXPECT_EQ(encoded(*tokenizer, "</s>", text, &cache), tokenizer->encode("</s>" + text, false).value());
    }
  }
}

}  // namespace troupe::boundary_test
