#include <gtest/gtest.h>

#include "common/api/api.h"

namespace troupe::truncation_test {

ApiResult<GenerateRequest> chat(const std::string& truncation) {
  return parse_chat_request(R"({"messages":[{"role":"user","content":"Hi"}],"truncation":)" + truncation +
                            "}");
}

TEST(Truncation, IsReadInItsThreeForms) {
  for (const char* off : {"null", "\"disabled\"", R"({"strategy":"disabled","drop":0.3})"}) {
    auto request = chat(off);
    ASSERT_TRUE(request.ok()) << off << request.error().message;
    EXPECT_FALSE(request->truncation.has_value()) << off;
  }
  EXPECT_EQ(chat("\"auto\"")->truncation->drop, 0.5);
  auto request = chat(R"({"strategy":"auto","max_prompt_tokens":900,"drop":0.25,"keep_messages":3})");
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->truncation->max_prompt_tokens, 900);
  EXPECT_EQ(request->truncation->drop, 0.25);
  EXPECT_EQ(request->truncation->keep_messages, 3);
}

TEST(Truncation, ErrorsNameTheField) {
  const std::pair<const char*, const char*> kFaults[] = {
      {"true", "truncation"},
      {"\"middle\"", "truncation"},
      {"{}", "truncation"},
      {R"({"strategy":1})", "truncation.strategy"},
      {R"({"strategy":"auto","drop":0})", "truncation.drop"},
      {R"({"strategy":"auto","drop":1.5})", "truncation.drop"},
      {R"({"strategy":"auto","keep_messages":-1})", "truncation.keep_messages"},
      {R"({"strategy":"auto","max_prompt_tokens":0})", "truncation.max_prompt_tokens"},
      {R"({"strategy":"auto","keep":3})", "truncation.keep"}};
  for (const auto& [value, param] : kFaults) {
    auto request = chat(value);
    ASSERT_FALSE(request.ok()) << value;
    EXPECT_EQ(request.error().http_status, 400);
    EXPECT_EQ(request.error().param, param);
  }
}

TEST(Truncation, UsageTellsWhereTheCacheWasLeft) {
  const AnswerHeader header{GenerateRequest::Kind::kChat, "chatcmpl-1", "m", 1};
  Usage usage{.prompt_tokens = 500, .completion_tokens = 1, .cached_tokens = 412};
  usage.cache_break = CacheBreak{3, 412};
  usage.truncated_messages = 12;
  const std::string json = answer_json(header, {}, usage);
  EXPECT_NE(
      json.find(R"("prompt_tokens_details":{"cached_tokens":412,"cache_break":{"message":3,"token":412},)"
                R"("truncated_messages":12})"),
      std::string::npos)
      << json;
}

}  // namespace troupe::truncation_test
