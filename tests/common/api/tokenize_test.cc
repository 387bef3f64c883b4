#include "common/api/tokenize.h"

#include <gtest/gtest.h>

#include <string>

#include "common/api/prefix.h"
#include "common/json/json.h"

namespace troupe::api_tokenize_test {

std::string refusal(const std::string& body) {
  const auto request = parse_tokenize_request(body);
  return request.ok() ? "accepted" : request.error().param + ": " + request.error().message;
}

TEST(ApiTokenize, CountsAPrefilledAnswerAsTheChatHasIt) {
  const auto parsed =
      parse_tokenize_request(R"({"messages":[{"role":"user","content":"Hi"}],"assistant_prefill":"Sure,"})");
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_TRUE(parsed.value().source.continue_final_message);
  EXPECT_EQ(parsed.value().source.messages.back().content, "Sure,");
  auto settled = parse_tokenize_request(
      R"({"messages":[{"role":"assistant","content":"Hi"}],"continue_final_message":"auto"})");
  EXPECT_TRUE(settled.ok() && settled->source.continue_final_message);
  const auto both = parse_tokenize_request(
      R"({"messages":[{"role":"assistant","content":"Hi"}],"continue_final_message":true,"add_generation_prompt":true})");
  ASSERT_FALSE(both.ok());
  EXPECT_EQ(both.error().param, "add_generation_prompt");
}

TEST(ApiTokenize, ReadsTextAndItsDefaults) {
  auto request = parse_tokenize_request(R"({"prompt":"Hi é","model":"m","temperature":"ignored here"})");
  ASSERT_TRUE(request.ok()) << request.error().message;
  EXPECT_EQ(request->source.kind, GenerateRequest::Kind::kCompletion);
  EXPECT_EQ(request->source.model, "m");
  EXPECT_EQ(std::get<std::string>(request->source.prompt), "Hi é");
  EXPECT_TRUE(request->add_special_tokens);
  EXPECT_FALSE(request->return_token_strs);
  auto other = parse_tokenize_request(
      R"({"prompt":"","add_special_tokens":false,"return_token_strs":true,"messages":null})");
  ASSERT_TRUE(other.ok()) << other.error().message;
  EXPECT_EQ(other->source.model, "");
  EXPECT_FALSE(other->add_special_tokens);
  EXPECT_TRUE(other->return_token_strs);
}

TEST(ApiTokenize, ReadsATextInLlamaCppsForm) {
  auto request = parse_tokenize_request(R"({"model":"undefined","content":"Hi"})");
  ASSERT_TRUE(request.ok()) << request.error().message;
  EXPECT_EQ(std::get<std::string>(request->source.prompt), "Hi");
  EXPECT_EQ(request->source.model, "");
  EXPECT_FALSE(request->add_special_tokens);
  EXPECT_TRUE(parse_tokenize_request(R"({"content":"","add_special":true})")->add_special_tokens);
  // vLLM's fields win, as gateways send both to workers of other kinds.
  auto both =
      parse_tokenize_request(R"({"model":"undefined","prompt":"a","content":"b","add_special":false})");
  ASSERT_TRUE(both.ok()) << both.error().message;
  EXPECT_EQ(std::get<std::string>(both->source.prompt), "a");
  EXPECT_EQ(both->source.model, "undefined");
  EXPECT_TRUE(both->add_special_tokens);
  EXPECT_EQ(refusal(R"({"content":3})").substr(0, 9), "content: ");
}

TEST(ApiTokenize, ReadsChatAndItsDefaults) {
  auto request = parse_tokenize_request(
      R"({"messages":[{"role":"user","content":"a","name":"n"}],"tools":[{"type":"function"}],)"
      R"("documents":[{"text":"d"}],"chat_template_kwargs":{"k":1},"add_generation_prompt":false})");
  ASSERT_TRUE(request.ok()) << request.error().message;
  EXPECT_EQ(request->source.kind, GenerateRequest::Kind::kChat);
  ASSERT_EQ(request->source.messages.size(), 1u);
  EXPECT_EQ(request->source.messages[0].extra_json, R"({"name":"n"})");
  EXPECT_EQ(request->source.tools_json, R"([{"type":"function"}])");
  EXPECT_EQ(request->source.documents_json, R"([{"text":"d"}])");
  EXPECT_EQ(request->source.chat_template_kwargs_json, R"({"k":1})");
  EXPECT_FALSE(request->add_special_tokens);
  EXPECT_FALSE(request->add_generation_prompt);
}

TEST(ApiTokenize, APersonaIsRefusedAndNotLeftOutOfTheCount) {
  const auto fault =
      parse_tokenize_request(R"({"messages":[{"role":"user","content":"Hi"}],"persona":"mira"})");
  ASSERT_FALSE(fault.ok());
  EXPECT_EQ(fault.error().param, "persona");
  EXPECT_EQ(fault.error().code, "unsupported_parameter");
  const auto prefix = parse_prefix_request(
      R"({"model":"m","messages":[{"role":"system","content":"Hi"}],"persona":{"name":"mira"}})");
  ASSERT_FALSE(prefix.ok());
  EXPECT_EQ(prefix.error().param, "persona");
  EXPECT_EQ(prefix.error().code, "unsupported_parameter");
}

TEST(ApiTokenize, ErrorsNameTheField) {
  EXPECT_EQ(refusal("{}"), "prompt: 'prompt' (a string) or 'messages' (an array) is required.");
  EXPECT_EQ(refusal(R"({"prompt":"a","messages":[{"role":"user","content":"a"}]})"),
            "prompt: 'prompt' and 'messages' exclude each other; send one of them.");
  EXPECT_EQ(refusal(R"({"prompt":[1,2]})"), "prompt: 'prompt' must be a string, not an array.");
  EXPECT_EQ(refusal(R"({"prompt":"a","model":""})"),
            "model: 'model' must be the name of a model that GET /v1/models lists, not \"\".");
  EXPECT_EQ(refusal(R"({"prompt":"a","add_special_tokens":1})"),
            "add_special_tokens: 'add_special_tokens' must be true or false, not 1.");
  EXPECT_EQ(refusal(R"({"messages":[{"role":"user","content":7}]})").substr(0, 19), "messages[0].content");
  EXPECT_EQ(refusal(R"({"prompt":"a","chat_template":"x"})").substr(0, 14), "chat_template:");
  EXPECT_EQ(refusal(R"({"prompt":"a","continue_final_message":true})").substr(0, 23),
            "continue_final_message:");
  EXPECT_EQ(
      refusal(R"({"messages":[{"role":"user","content":"a"}],"continue_final_message":true})").substr(0, 23),
      "continue_final_message:");
  EXPECT_EQ(refusal(R"([1])"), ": The body must be a JSON object, not an array.");
  EXPECT_NE(refusal(R"({"prompt":"a","prompt":"b"})"), "accepted");
  ApiLimits small;
  small.body_bytes_max = 8;
  EXPECT_EQ(parse_tokenize_request(R"({"prompt":"a"})", small).error().http_status, 413);
  EXPECT_EQ(parse_detokenize_request(R"({"tokens":[]})", small).error().http_status, 413);
}

TEST(ApiTokenize, ReadsTokensOfDetokenize) {
  auto request = parse_detokenize_request(R"({"tokens":[0,7,2147483647],"model":"m"})");
  ASSERT_TRUE(request.ok()) << request.error().message;
  EXPECT_EQ(request->model, "m");
  EXPECT_EQ(request->tokens, (std::vector<int32_t>{0, 7, 2147483647}));
  EXPECT_TRUE(parse_detokenize_request(R"({"tokens":[]})").ok());
  EXPECT_EQ(parse_detokenize_request("{}").error().message,
            "'tokens' is required and must be a list of token ids.");
  EXPECT_EQ(parse_detokenize_request(R"({"tokens":[1,-1]})").error().param, "tokens[1]");
  EXPECT_EQ(parse_detokenize_request(R"({"tokens":"1"})").error().param, "tokens");
  EXPECT_EQ(parse_detokenize_request(R"({"tokens":[1],"model":3})").error().param, "model");
}

TEST(ApiTokenize, WritesVllmsAnswers) {
  TokenizeAnswer answer;
  answer.tokens = {1, 22};
  answer.max_model_len = 64;
  EXPECT_EQ(tokenize_json(answer), R"({"count":2,"max_model_len":64,"tokens":[1,22],"token_strs":null})");
  answer.has_token_strs = true;
  answer.token_strs = {"a\"", "Ġb"};
  EXPECT_EQ(tokenize_json(answer),
            R"({"count":2,"max_model_len":64,"tokens":[1,22],"token_strs":["a\"","Ġb"]})");
  answer = TokenizeAnswer();
  answer.has_token_strs = true;
  EXPECT_EQ(tokenize_json(answer), R"({"count":0,"max_model_len":0,"tokens":[],"token_strs":[]})");
  EXPECT_EQ(detokenize_json("a\n"), R"({"prompt":"a\n"})");
}

}  // namespace troupe::api_tokenize_test
