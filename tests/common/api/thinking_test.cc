#include <gtest/gtest.h>

#include "common/api/api.h"

namespace troupe::thinking_fields_test {

ApiResult<GenerateRequest> chat(const std::string& fields) {
  return parse_chat_request(R"({"messages":[{"role":"user","content":"Hi"}],)" + fields + "}");
}
std::optional<int32_t> budget(const std::string& fields) {
  auto request = chat(fields);
  EXPECT_TRUE(request.ok()) << fields;
  return request.ok() ? request->thinking_token_budget : std::nullopt;
}

TEST(ThinkingFields, ABudgetHasTwoNames) {
  EXPECT_EQ(budget(R"("thinking_token_budget":64)"), 64);
  EXPECT_EQ(budget(R"("thinking_token_budget":0)"), 0);
  EXPECT_EQ(budget(R"("thinking_token_budget":5e9)"), INT32_MAX);
  for (const char* none : {R"("thinking_token_budget":-1)", R"("thinking_token_budget":null)",
                           R"("reasoning":{})", R"("reasoning":{"effort":"low"})"})
    EXPECT_EQ(budget(none), std::nullopt) << none;
  EXPECT_EQ(budget(R"("reasoning":{"max_tokens":9})"), 9);
  EXPECT_EQ(budget(R"("thinking_token_budget":3,"reasoning":{"max_tokens":9})"), 3);
  EXPECT_EQ(budget(R"("reasoning":{"max_tokens":9},"thinking_token_budget":3)"), 3);
  EXPECT_EQ(budget(R"("thinking_token_budget":-1,"reasoning":{"max_tokens":9})"), std::nullopt);
}

TEST(ThinkingFields, AnObjectSaysTheSameAsTheOthers) {
  auto low = chat(R"("reasoning":{"effort":"low","exclude":true})");
  ASSERT_TRUE(low.ok());
  EXPECT_EQ(low->reasoning_effort, "low");
  EXPECT_FALSE(low->include_reasoning);
  EXPECT_EQ(chat(R"("reasoning_effort":"high","reasoning":{"effort":"low"})")->reasoning_effort, "high");
  EXPECT_EQ(chat(R"("reasoning":{"enabled":false})")->reasoning_effort, "none");
  EXPECT_EQ(chat(R"("reasoning":{"enabled":true})")->reasoning_effort, "");
}

TEST(ThinkingFields, ErrorsNameTheField) {
  const std::pair<const char*, const char*> kFaults[] = {
      {R"("thinking_token_budget":-2)", "thinking_token_budget"},
      {R"("thinking_token_budget":"9")", "thinking_token_budget"},
      {R"("reasoning":true)", "reasoning"},
      {R"("reasoning":{"max_tokens":1.5})", "reasoning.max_tokens"},
      {R"("reasoning":{"exclude":1})", "reasoning.exclude"}};
  for (const auto& [fields, param] : kFaults) {
    const auto request = chat(fields);
    ASSERT_FALSE(request.ok()) << fields;
    EXPECT_EQ(request.error().http_status, 400);
    EXPECT_EQ(request.error().param, param);
  }
  ApiLimits others;
  others.for_others = true;
  const std::string body = R"({"messages":[{"role":"user","content":"Hi"}],"thinking_token_budget":"9"})";
  EXPECT_TRUE(parse_chat_request(body, others).ok()) << "theirs to judge";
}

ApiResult<GenerateRequest> completion(const std::string& fields) {
  return parse_completion_request(R"({"prompt":["a","b"],)" + fields + "}");
}

TEST(BestOf, IsAtLeastNAndNeedsTheWholeAnswers) {
  auto three = completion(R"("n":2,"best_of":3)");
  ASSERT_TRUE(three.ok()) << three.error().message;
  EXPECT_EQ(three->candidate_count(), 3);
  EXPECT_EQ(three->choice_count(), 6) << "what a gateway counts";
  EXPECT_EQ(completion(R"("n":2,"best_of":1)")->candidate_count(), 2) << "1 is none";
  EXPECT_TRUE(completion(R"("n":2,"best_of":2,"stream":true)").ok());
  for (const char* wrong : {R"("n":3,"best_of":2)", R"("best_of":2,"stream":true)", R"("best_of":17)",
                            R"("best_of":0)", R"("best_of":"2")"}) {
    const auto refused = completion(wrong);
    ASSERT_FALSE(refused.ok()) << wrong;
    EXPECT_EQ(refused.error().param, "best_of");
  }
}

}  // namespace troupe::thinking_fields_test
