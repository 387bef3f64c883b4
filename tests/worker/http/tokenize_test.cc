#include "worker/http/tokenize.h"

#include <gtest/gtest.h>

#include <string>

#include "common/json/json.h"
#include "tests/worker/fixture.h"
#include "tests/worker/raw_http.h"

namespace troupe::tokenize_test {

class Tokenize : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { worker = std::make_unique<worker_fixture::Worker>(); }
  static void TearDownTestSuite() { worker.reset(); }
  static raw_http::Reply post(const std::string& path, const std::string& body) {
    return raw_http::ask(worker->port(), "POST", path, body);
  }
  static bj::object answer(const std::string& path, const std::string& body) {
    const auto reply = post(path, body);
    EXPECT_EQ(reply.status, 200) << reply.body;
    return parse_json(reply.body)->get_object();
  }
  static std::string detokenized(const bj::value& tokens) {
    return std::string(
        answer("/detokenize", R"({"tokens":)" + to_json(tokens) + "}").at("prompt").as_string());
  }
  static std::unique_ptr<worker_fixture::Worker> worker;
};
std::unique_ptr<worker_fixture::Worker> Tokenize::worker;

TEST_F(Tokenize, TextRoundTrips) {
  const std::string text = "<|im_start|>Grüße, 宋江!  \\n👩";
  const auto counted = answer("/tokenize", R"({"prompt":")" + text + R"("})");
  const auto& tokens = counted.at("tokens").as_array();
  EXPECT_EQ(counted.at("count").as_int64(), static_cast<int64_t>(tokens.size()));
  EXPECT_EQ(counted.at("max_model_len").as_int64(), worker->model().total_count_max);
  EXPECT_TRUE(counted.at("token_strs").is_null());
  EXPECT_EQ(detokenized(tokens), "<|im_start|>Grüße, 宋江!  \n👩");
  EXPECT_EQ(detokenized(bj::array()), "");
}

TEST_F(Tokenize, CountsAChatLikeItsRequest) {
  const std::string chat = R"({"model":"demo-model","messages":[{"role":"system","content":"Be brief."},)"
                           R"({"role":"user","content":"Hello there"}])";
  const auto counted = answer("/tokenize", chat + "}");
  EXPECT_EQ(detokenized(counted.at("tokens")),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello there<|im_end|>\n"
            "<|im_start|>assistant\n");
  const auto open = answer("/tokenize", chat + R"(,"add_generation_prompt":false})");
  EXPECT_TRUE(detokenized(open.at("tokens")).ends_with("there<|im_end|>\n"));
  const auto generated = answer("/v1/chat/completions", chat + R"(,"max_tokens":1})");
  EXPECT_EQ(generated.at("usage").at("prompt_tokens").as_int64(), counted.at("count").as_int64());
}

TEST_F(Tokenize, ReturnsTokenStrings) {
  const auto counted = answer("/tokenize", R"({"prompt":"a <|im_end|>","return_token_strs":true})");
  const auto& strings = counted.at("token_strs").as_array();
  ASSERT_EQ(strings.size(), counted.at("tokens").as_array().size());
  EXPECT_EQ(strings.front().as_string(), "a");
  EXPECT_EQ(strings[1].as_string(), "Ġ");
  EXPECT_EQ(strings.back().as_string(), "<|im_end|>");
}

TEST_F(Tokenize, ErrorsNameTheFieldAndCostNothing) {
  const auto param = [](const raw_http::Reply& reply) {
    return std::string(parse_json(reply.body)->at("error").at("param").as_string());
  };
  const auto vocab = std::to_string(worker->model().tokenizer->vocab_size());
  auto reply = post("/detokenize", R"({"tokens":[0,)" + vocab + "]}");
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(param(reply), "tokens[1]");
  reply = post("/tokenize", R"({"prompt":7})");
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(param(reply), "prompt");
  EXPECT_EQ(post("/tokenize", R"({"prompt":"a","model":"other"})").status, 404);
  EXPECT_EQ(post("/detokenize", R"({"tokens":[],"model":"other"})").status, 404);
  EXPECT_EQ(raw_http::ask(worker->port(), "GET", "/tokenize").status, 405);
  const std::string huge(static_cast<size_t>(worker->model().prompt_bytes_max) + 1, 'x');
  EXPECT_EQ(post("/tokenize", R"({"prompt":")" + huge + R"("})").status, 400)
      << "cannot fit, so is not encoded";
  ServedModel small = worker->model();
  small.api.body_bytes_max = 100;
  const auto refused = answer_detokenize(small, R"({"tokens":[1,1,1,1,1,1,1,1,1,1,1,1]})");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().param, "tokens");
}

}  // namespace troupe::tokenize_test
