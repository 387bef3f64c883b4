// A model whose vocabulary is padded beyond its tokenizer's: the further ids are taken and may be drawn, and
// have no text.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "common/json/json.h"
#include "tests/common/temp_dir.h"
#include "tests/worker/fixture.h"
#include "tests/worker/raw_http.h"

namespace troupe::padded_vocabulary_test {

constexpr int kModelSize = 4352, kTokenizerSize = 4096;

// The demo model with made-up weights and 256 ids more.
struct PaddedVocabulary : ::testing::Test {
  static WorkerSettings settings(const TempDir& dir) {
    const std::string demo = TROUPE_SOURCE_DIR "/configs/demo-model/";
    for (const char* file : {"tokenizer.json", "tokenizer_config.json"})
      std::filesystem::copy(demo + file, dir.path() + "/" + file);
    std::ifstream in(demo + "config.json");
    bj::object config = parse_json(std::string(std::istreambuf_iterator<char>(in), {}))->get_object();
    EXPECT_EQ(config["vocab_size"].as_int64(), kTokenizerSize);
    config["vocab_size"] = kModelSize;
    dir.write("config.json", to_json(config));
    WorkerSettings settings = worker_fixture::demo_settings();
    settings.runner.model_dir = dir.path();
    settings.runner.load_format = LoadFormat::kDummy;
    settings.served_model_name = "padded";
    return settings;
  }
  raw_http::Reply post(const std::string& path, const std::string& body) const {
    return raw_http::ask(worker.port(), "POST", path, body);
  }
  bj::object answer(const std::string& path, const std::string& body) const {
    const auto reply = post(path, body);
    EXPECT_EQ(reply.status, 200) << reply.body;
    auto value = parse_json(reply.body);
    return value.ok() && value->is_object() ? value->get_object() : bj::object();
  }
  bj::object choice(const std::string& fields) const {
    const bj::object whole =
        answer("/v1/completions", R"({"model":"padded","temperature":0,)" + fields + "}");
    EXPECT_EQ(whole.at("usage").at("completion_tokens").as_int64(), 3);
    return whole.at("choices").as_array().at(0).as_object();
  }

  TempDir dir;
  worker_fixture::Worker worker{settings(dir)};
};

TEST_F(PaddedVocabulary, IdsWithoutTextDetokenizeToNothing) {
  EXPECT_EQ(worker.model().tokenizer->vocab_size(), kTokenizerSize);
  const std::string word = to_json(answer("/tokenize", R"({"prompt":"Hello"})").at("tokens"));
  const std::string ids = word.substr(0, word.size() - 1) + ",4096,4351," + word.substr(1);
  EXPECT_EQ(answer("/detokenize", R"({"tokens":)" + ids + "}").at("prompt").as_string(), "HelloHello");
  EXPECT_EQ(answer("/detokenize", R"({"tokens":[4096]})").at("prompt").as_string(), "");
  const auto beyond = post("/detokenize", R"({"tokens":[4352]})");
  EXPECT_EQ(beyond.status, 400);
  EXPECT_NE(beyond.body.find("[0, 4352)"), std::string::npos) << beyond.body;
}

TEST_F(PaddedVocabulary, PromptsMayHaveThemAndAnswersShowNothingOfThem) {
  const std::string drawn = R"("max_tokens":3,"logit_bias":{"4300":100})";
  const bj::object plain = choice(R"("prompt":"Hello",)" + drawn);
  EXPECT_EQ(plain.at("text").as_string(), "");
  EXPECT_EQ(plain.at("finish_reason").as_string(), "length");
  EXPECT_EQ(choice(R"("prompt":[5,4096,4351],)" + drawn).at("text").as_string(), "");
  const bj::object shown = choice(R"("prompt":[4096,4351],"echo":true,"logprobs":1,)" + drawn);
  EXPECT_EQ(shown.at("text").as_string(), "");
  const bj::array& tokens = shown.at("logprobs").at("tokens").as_array();
  EXPECT_EQ(tokens.size(), 5u);
  for (const bj::value& token : tokens) EXPECT_EQ(token.as_string(), "");
  EXPECT_EQ(post("/v1/completions", R"({"model":"padded","prompt":[4352]})").status, 400);
}

TEST_F(PaddedVocabulary, StreamsOfThemEndAsAnyOther) {
  const auto reply = post("/v1/chat/completions",
                          R"({"model":"padded","stream":true,"max_tokens":3,"logit_bias":{"4300":100},)"
                          R"("stream_options":{"include_usage":true},)"
                          R"("messages":[{"role":"user","content":"Hi"}]})");
  EXPECT_EQ(reply.status, 200);
  EXPECT_NE(reply.body.find(R"("finish_reason":"length")"), std::string::npos) << reply.body;
  EXPECT_NE(reply.body.find(R"("completion_tokens":3)"), std::string::npos) << reply.body;
  EXPECT_NE(reply.body.find("data: [DONE]"), std::string::npos) << reply.body;
}

}  // namespace troupe::padded_vocabulary_test
