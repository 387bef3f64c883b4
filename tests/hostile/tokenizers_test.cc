// Whole tokenizers and what streams their tokens as text take time in proportion to the text.

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <fstream>
#include <sstream>

#include "common/json/json.h"
#include "tests/hostile/cpu_growth.h"
#include "worker/text/tokenizer/decoder.h"
#include "worker/text/tokenizer/detokenizer.h"
#include "worker/text/tokenizer/stop_matcher.h"
#include "worker/text/tokenizer/token_cache.h"
#include "worker/text/tokenizer/tokenizer.h"

namespace troupe {
namespace hostile_tokenizers_test {

const std::string kFolder = TROUPE_SOURCE_DIR "/tests/fixtures/tokenizers/";

bj::object read(const std::string& name) {
  auto value = read_json_file(kFolder + name);
  if (!value.ok()) throw std::runtime_error(value.status().ToString());
  return value->as_object();
}

// A fixture's tokenizer: its base with its changes, or a SentencePiece model.
std::unique_ptr<Tokenizer> load(const std::string& name) {
  if (name.ends_with(".model")) {
    std::ifstream file(kFolder + name, std::ios::binary);
    std::ostringstream bytes;
    bytes << file.rdbuf();
    auto tokenizer = Tokenizer::from_sentencepiece(bytes.str(), {}, name);
    if (!tokenizer.ok()) throw std::runtime_error(tokenizer.status().ToString());
    return *std::move(tokenizer);
  }
  const bj::object golden = read(name);
  bj::object file = read(std::string(golden.at("base").as_string()) + ".json");
  for (const auto& [key, value] : golden.at("changes").as_object()) {
    if (key != "model") file[key] = value;
    if (key != "model") continue;
    for (const auto& [option, setting] : value.as_object()) file["model"].as_object()[option] = setting;
  }
  auto tokenizer = Tokenizer::from_json(bj::serialize(file), name);
  if (!tokenizer.ok()) throw std::runtime_error(tokenizer.status().ToString());
  return *std::move(tokenizer);
}

constexpr const char* kTokenizers[] = {"added.golden.json",
                                       "gemma.golden.json",
                                       "gpt2.golden.json",
                                       "llama2.golden.json",
                                       "llama3.golden.json",
                                       "qwen.golden.json",
                                       "metaspace_first.golden.json",
                                       "normalized_special.golden.json",
                                       "plain_words.golden.json",
                                       "split_contiguous.golden.json",
                                       "words.golden.json",
                                       "bpe.model",
                                       "unigram.model"};

TEST(HostileTexts, WholeTokenizers) {
  for (const char* name : kTokenizers) {
    const auto tokenizer = load(name);
    expect_linear(name, hostile_texts(), [&](const std::string& text) {
      TokenCache cache;
      const std::vector<size_t> cuts = tokenizer->cuts_of_special(text);
      EXPECT_TRUE(tokenizer->encode(text, EncodeOptions{true, &cache, {}}).ok());
      EXPECT_TRUE(tokenizer->encode(text, EncodeOptions{false, &cache, cuts}).ok());
    });
  }
}

// One token a character or, of a text that is none, a byte.
std::vector<std::string> tokens_of(const std::string& text) {
  std::vector<std::string> tokens;
  for (const char c : text) {
    if ((static_cast<unsigned char>(c) & 0xC0) != 0x80 || tokens.empty()) tokens.emplace_back();
    tokens.back() += c;
  }
  return tokens;
}

TEST(HostileTexts, Decoders) {
  constexpr const char* kDecoders[] = {
      R"({"type": "ByteLevel"})",
      R"({"type": "ByteFallback"})",
      R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true})",
      R"({"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
          {"type": "ByteFallback"}, {"type": "Fuse"},
          {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})",
      R"({"type": "Sequence", "decoders": [{"type": "ByteLevel"},
          {"type": "Strip", "content": " ", "start": 1000, "stop": 1000},
          {"type": "Replace", "pattern": {"String": "o"}, "content": "0"}]})",
      R"({"type": "Sequence", "decoders": [
          {"type": "Replace", "pattern": {"Regex": "[aeiou]+"}, "content": "*"}, {"type": "Fuse"}]})",
      "null"};
  for (const char* source : kDecoders) {
    const auto decoder = Decoder::load(*parse_json(source), "decoder");
    ASSERT_TRUE(decoder.ok()) << source << decoder.status();
    expect_linear(source, hostile_texts(), [&](const std::string& text) {
      Decoder::Stream stream(&*decoder, /*at_start=*/true);
      std::string out;
      for (const std::string& token : tokens_of(text)) stream.push(token, out);
      stream.finish(/*keeps_cut_character=*/true, out);
    });
    // Runs of bytes, each a token.
    expect_linear(source, hostile_bytes(), [&](const std::string& text) {
      Decoder::Stream stream(&*decoder, /*at_start=*/true);
      std::string out;
      for (const char c : text) {
        char token[8];
        std::snprintf(token, sizeof token, "<0x%02X>", static_cast<unsigned>(static_cast<unsigned char>(c)));
        stream.push(token, out);
      }
      stream.finish(/*keeps_cut_character=*/false, out);
    });
  }
}

// A stop string of 16 KB is the longest that a request may have.
std::vector<std::vector<std::string>> stop_lists() {
  std::vector<std::string> many;
  for (int i = 0; i < 1000; ++i) many.push_back("\nname " + std::to_string(i) + ":");
  return {{std::string(16'000, 'a') + "b"},
          {std::string(8'000, ' ') + "x", std::string(4'000, ' ') + "y"},
          {"<|im_end|>", "<|im_end|", "\n\n", "\r\n\r\nx", "ababababac", fibonacci_word(2000) + "!"},
          many};
}

TEST(HostileTexts, StopStrings) {
  for (const auto& stops : stop_lists()) {
    expect_linear("stops like " + stops.front().substr(0, 20), hostile_texts(), [&](const std::string& text) {
      StopMatcher matcher(stops);
      for (const char c : text) matcher.push(c);
    });
  }
}

// Answers whose tokens are characters or parts of ones, with offsets as log-probabilities need them.
TEST(HostileTexts, Detokenizer) {
  const auto tokenizer = Tokenizer::load(TROUPE_SOURCE_DIR "/configs/demo-model");
  ASSERT_TRUE(tokenizer.ok());
  std::vector<int32_t> id_of(256, 0);
  for (int32_t id = 0; id < (*tokenizer)->vocab_size(); ++id) {
    const std::string_view bytes = (*tokenizer)->token_bytes(id, /*skip_special=*/true);
    if (bytes.size() == 1) id_of[static_cast<unsigned char>(bytes[0])] = id;
  }
  const auto stream = [&](const std::string& text, const std::vector<std::string>& stops,
                          bool keeps_offsets) {
    Detokenizer detokenizer(&**tokenizer, stops, {.keeps_offsets = keeps_offsets});
    for (const char c : text) {
      detokenizer.push(id_of[static_cast<unsigned char>(c)]);
      if (keeps_offsets) detokenizer.take_offsets();
    }
    detokenizer.finish();
  };
  for (const bool keeps_offsets : {false, true}) {
    for (const auto& stops : stop_lists()) {
      expect_linear("detokenizer, stops like " + stops.front().substr(0, 20), hostile_texts(),
                    [&](const std::string& text) { stream(text, stops, keeps_offsets); });
    }
    expect_linear("detokenizer", hostile_bytes(),
                  [&](const std::string& text) { stream(text, {"\xF0\x9F"}, keeps_offsets); });
  }
}

}  // namespace hostile_tokenizers_test
}  // namespace troupe
