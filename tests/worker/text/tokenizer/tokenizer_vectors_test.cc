// The published vectors of TROUPE_DATA/tokenizer_vectors: llama.cpp's 47 texts for every vocabulary present,
// and SentencePiece's own results for both Mistral models.

#include <gtest/gtest.h>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "common/json/json.h"
#include "worker/text/tokenizer/tokenizer.h"

namespace troupe {
namespace tokenizer_vectors_test {

std::string folder() {
  const char* data = std::getenv("TROUPE_DATA");
  std::string base = data != nullptr ? data : TROUPE_SOURCE_DIR "/../shared/data";
  return base + "/tokenizer_vectors";
}

#define SKIP_WITHOUT_DATA() \
  if (!std::filesystem::exists(folder())) GTEST_SKIP() << "no published vectors at " << folder()

std::string read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

bj::value parse(const std::string& text, const std::string& path) {
  auto value = parse_json(text);
  if (!value.ok()) throw std::runtime_error(path + ": " + value.status().ToString());
  return *std::move(value);
}

bj::object vocabulary(const std::string& name) {
  std::string path = folder() + "/vocab/" + name + ".vocab.json.gz";
  FILE* pipe = popen(("gzip -dc '" + path + "'").c_str(), "r");
  std::string text;
  char buffer[1 << 16];
  for (size_t count; (count = fread(buffer, 1, sizeof buffer, pipe)) > 0;) text.append(buffer, count);
  if (pclose(pipe) != 0) throw std::runtime_error(path + ": gzip failed");
  return parse(text, path).as_object();
}

bj::value part(const char* json) {
  return parse(json, "test");
}

bj::object added_token(const bj::value& content, int64_t id, bool special) {
  return {{"id", id}, {"content", content}, {"special", special}, {"normalized", !special}};
}

// The tokenizer.json of a byte-level vocabulary, with its model's published pre-tokenizer.
std::string byte_json(const bj::object& source) {
  const bj::array& tokens = source.at("tokens").as_array();
  bj::object vocab;
  bj::array added;
  for (size_t id = 0; id < tokens.size(); ++id) {
    int64_t kind = source.at("token_type").as_array()[id].as_int64();
    auto number = static_cast<int64_t>(id);
    if (kind != 4) vocab[tokens[id].as_string()] = number;
    if (kind == 3 || kind == 4) added.push_back(added_token(tokens[id], number, kind == 3));
  }
  bj::object file{{"added_tokens", added},
                  {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", source.at("merges")}}}};
  file["decoder"] = part(R"({"type": "ByteLevel"})");
  file["pre_tokenizer"] = part(R"({"type": "ByteLevel", "add_prefix_space": false})");
  if (source.at("pre") == "mpt") file["normalizer"] = part(R"({"type": "NFC"})");
  if (source.at("pre") == "deepseek-llm") {
    file["pre_tokenizer"] = part(R"({"type": "Sequence", "pretokenizers": [
      {"type": "Split", "pattern": {"Regex": "[\r\n]"}, "behavior": "Isolated"},
      {"type": "Split", "pattern": {"Regex": "\\s?[\\p{Lu}\\p{Ll}\\p{Lt}]+"}, "behavior": "Isolated"},
      {"type": "Split", "pattern": {"Regex": "\\s?[!-/:-~！-／：-～‘-‟　-。]+"}, "behavior": "Isolated"},
      {"type": "Split", "pattern": {"Regex": "\\s+$"}, "behavior": "Isolated"},
      {"type": "Split", "pattern": {"Regex": "[一-龥ࠀ-一가-퟿]+"}, "behavior": "Isolated"},
      {"type": "Digits", "individual_digits": true},
      {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]})");
  }
  return bj::serialize(file);
}

// Serialises a protocol buffer by hand: the content of tokenizer.model.
std::string varint(uint64_t value) {
  std::string out;
  for (; value > 0x7F; value >>= 7) out.push_back(static_cast<char>((value & 0x7F) | 0x80));
  out.push_back(static_cast<char>(value));
  return out;
}

std::string message(uint32_t field, const std::string& content) {
  return varint(field << 3 | 2) + varint(content.size()) + content;
}

std::string number(uint32_t field, uint64_t value) {
  return varint(field << 3) + varint(value);
}

std::string piece_model(const bj::object& source) {
  std::string model;
  const bj::array& tokens = source.at("tokens").as_array();
  for (size_t id = 0; id < tokens.size(); ++id) {
    std::string token(tokens[id].as_string());
    auto kind = static_cast<uint64_t>(source.at("token_type").as_array()[id].as_int64());
    // One piece is the unknown one; further ones of a vocabulary are padding.
    if (kind == 2 || token == "<unk>") kind = token == "<unk>" ? 2 : 5;
    auto score = static_cast<float>(source.at("scores").as_array()[id].to_number<double>());
    std::string score_bytes(sizeof score, '\0');
    std::memcpy(score_bytes.data(), &score, sizeof score);
    model += message(1, message(1, token) + varint(2 << 3 | 5) + score_bytes + number(3, kind));
  }
  model += message(2, number(3, 2) + number(35, 1));       // BPE with byte_fallback
  return model + message(3, number(3, 1) + number(4, 0));  // add_dummy_prefix, not remove_extra_whitespaces
}

void expect_ids(const Tokenizer& tokenizer, const bj::value& entry) {
  std::string text(entry.at("text").as_string());
  auto ids = tokenizer.encode(text, /*add_special=*/false);
  ASSERT_TRUE(ids.ok()) << ids.status();
  bj::array list(ids->begin(), ids->end());
  EXPECT_EQ(bj::serialize(list), bj::serialize(entry.at("ids"))) << text;
}

class Published : public ::testing::TestWithParam<const char*> {};

TEST_P(Published, EncodesAllFortySevenTexts) {
  SKIP_WITHOUT_DATA();
  std::string name = GetParam();
  bj::object source = vocabulary(name);
  auto tokenizer = source.at("model") == "gpt2"
                       ? Tokenizer::from_json(byte_json(source), name)
                       : Tokenizer::from_sentencepiece(piece_model(source), {}, name);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  std::string path = folder() + "/llama_cpp/" + name + ".json";
  bj::value vectors = parse(read_bytes(path), path);
  EXPECT_EQ(vectors.as_array().size(), 47u);
  for (const bj::value& entry : vectors.as_array()) expect_ids(**tokenizer, entry);
}

INSTANTIATE_TEST_SUITE_P(Tokenizer, Published,
                         ::testing::Values("gpt-2", "mpt", "deepseek-llm", "llama-spm", "phi-3"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

class Mistral : public ::testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(Mistral, EncodesAndDecodesLikeSentencePiece) {
  SKIP_WITHOUT_DATA();
  std::string base = folder() + "/mistral/";
  auto tokenizer = Tokenizer::from_sentencepiece(read_bytes(base + GetParam().first), {}, GetParam().first);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  std::ifstream lines(base + GetParam().second);
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    bj::value entry = parse(line, GetParam().second);
    expect_ids(**tokenizer, entry);
    std::vector<int32_t> ids;
    for (const bj::value& id : entry.at("ids").as_array()) ids.push_back(static_cast<int32_t>(id.as_int64()));
    EXPECT_EQ((*tokenizer)->decode(ids, false), std::string(entry.at("decoded").as_string()));
  }
  EXPECT_EQ(count, 493);
}

INSTANTIATE_TEST_SUITE_P(Tokenizer, Mistral,
                         ::testing::Values(std::pair("tokenizer.model.v1", "spm_v1_vectors.jsonl"),
                                           std::pair("mistral_instruct_tokenizer_240323.model.v3",
                                                     "spm_v3_vectors.jsonl")),
                         [](const auto& test) { return test.index == 0 ? "v1" : "v3"; });

}  // namespace tokenizer_vectors_test
}  // namespace troupe
