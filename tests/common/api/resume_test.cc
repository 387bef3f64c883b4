#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/api/api.h"

namespace troupe::api_resume_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

static ApiResult<GenerateRequest> stream_with(const std::string& fields) {
  return parse_chat_request(R"({"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true)" +
                            fields + "}");
}
static ApiResult<GenerateRequest> resumed(const std::string& resume) {
  return stream_with(R"(,"troupe_resume":)" + resume);
}
// "param: message" of the error; "accepted" without one.
static std::string fault_of(const ApiResult<GenerateRequest>& result) {
  if (result.ok()) return "accepted";
  EXPECT_EQ(result.error().http_status, 400);
  return result.error().param + ": " + result.error().message;
}

TEST(ApiResume, ReadsIdsAndSeedOfTheStream) {
  const auto request =
      resumed(R"({"ids":[5,17],"seed":18446744073709551615,"id":"chatcmpl-1","created":17,"more":{}})");
  ASSERT_TRUE(request.ok()) << request.error().message;
  ASSERT_TRUE(request.value().resume.has_value());
  EXPECT_THAT(request.value().resume->ids, ElementsAre(5, 17));
  EXPECT_EQ(request.value().resume->seed, ~uint64_t{0});
  EXPECT_EQ(request.value().resume->id, "chatcmpl-1");
  EXPECT_EQ(request.value().resume->created_s, 17);

  const auto least = resumed(R"({"ids":[],"seed":0})");
  ASSERT_TRUE(least.ok()) << least.error().message;
  EXPECT_THAT(least.value().resume->ids, IsEmpty());
  EXPECT_EQ(least.value().resume->id, "");
  EXPECT_EQ(least.value().resume->created_s, std::nullopt);

  EXPECT_FALSE(resumed("null").value().resume.has_value());
  const auto completion = parse_completion_request(
      R"({"model":"m","prompt":"a","stream":true,"troupe_resume":{"ids":[1],"seed":2}})");
  ASSERT_TRUE(completion.ok()) << completion.error().message;
  EXPECT_TRUE(completion.value().resume.has_value());
}

TEST(ApiResume, NamesInvalidFields) {
  EXPECT_THAT(fault_of(resumed("[]")), HasSubstr("troupe_resume: "));
  EXPECT_THAT(fault_of(resumed("{}")), HasSubstr("troupe_resume.ids: "));
  EXPECT_THAT(fault_of(resumed(R"({"seed":1})")), HasSubstr("troupe_resume.ids: "));
  EXPECT_THAT(fault_of(resumed(R"({"ids":[1]})")), HasSubstr("troupe_resume.seed: "));
  EXPECT_THAT(fault_of(resumed(R"({"ids":"1","seed":1})")), HasSubstr("troupe_resume.ids: "));
  EXPECT_THAT(fault_of(resumed(R"({"ids":[1,-1],"seed":1})")), HasSubstr("troupe_resume.ids[1]: "));
  EXPECT_THAT(fault_of(resumed(R"({"ids":[1,2.5],"seed":1})")), HasSubstr("troupe_resume.ids[1]: "));
  EXPECT_THAT(fault_of(resumed(R"({"ids":[1],"seed":"1"})")), HasSubstr("troupe_resume.seed: "));
  EXPECT_THAT(fault_of(resumed(R"({"ids":[1],"seed":1,"id":7})")), HasSubstr("troupe_resume.id: "));
  EXPECT_THAT(fault_of(resumed(R"({"ids":[1],"seed":1,"created":-1})")),
              HasSubstr("troupe_resume.created: "));
}

TEST(ApiResume, RequiresStreamOfOneChoiceWithTheSameSeed) {
  const std::string resume = R"(,"troupe_resume":{"ids":[1],"seed":18446744073709551615})";
  EXPECT_EQ(fault_of(stream_with(resume + R"(,"seed":-1)")), "accepted");
  EXPECT_THAT(fault_of(stream_with(resume + R"(,"seed":1)")), HasSubstr("troupe_resume.seed: "));
  EXPECT_THAT(fault_of(stream_with(resume + R"(,"n":2)")), HasSubstr("n: 'n' must be 1"));
  const std::string whole = R"({"model":"m","messages":[{"role":"user","content":"hi"}])" + resume + "}";
  EXPECT_THAT(fault_of(parse_chat_request(whole)), HasSubstr("stream: "));
}

}  // namespace troupe::api_resume_test
