#include "gateway/upstream/length_refusal.h"

#include <gtest/gtest.h>

#include "common/api/error.h"

namespace troupe {
namespace length_refusal_test {

route::Failure read(const std::string& body, int status = 400) {
  route::Failure failure{route::FailureKind::kStatus, status};
  note_length_refusal(body, failure);
  return failure;
}

std::string with_message(const std::string& message) {
  return R"({"error":{"message":")" + message + R"(","type":"BadRequestError","param":null,"code":400}})";
}

TEST(LengthRefusal, IsKnownInTheWordsOfManyServers) {
  struct Row {
    std::string body;
    int64_t context;
    int status = 400;
  };
  const std::vector<Row> rows{
      {ApiError::context_length("messages", 5000, 4096).to_json(), 4096},
      {with_message(
           "This model's maximum context length is 4096 tokens. However, you requested 5010 tokens (5000 "
           "in the messages, 10 in the completion). Please reduce the length."),
       4096},
      {with_message(
           "'max_tokens' or 'max_completion_tokens' is too large: 5000. This model's maximum context length "
           "is 4096 tokens and your request has 12 input tokens (5000 > 4096 - 12)."),
       4096},
      {R"({"object":"error","message":"The decoder prompt (length 5000) is longer than the)"
       R"( maximum model length of 4096. Make sure","code":400})",
       4096},
      {with_message("Input length (5000) exceeds model's maximum context length (4096)."), 4096},
      {R"({"object":"error","message":"The input (5000 tokens) is longer than the model's )"
       R"(context length (4096 tokens).","type":"BadRequestError","param":null,"code":400})",
       4096},
      {with_message(
           "Requested token count exceeds the model's maximum context length of 4096 tokens. You requested "
           "a total of 5000 tokens"),
       4096},
      {R"({"error":{"code":400,"message":"request (5000 tokens) exceeds the available cont)"
       R"(ext size (4096 tokens), try increasing it","type":"exceed_context_size_error","n)"
       R"(_prompt_tokens":5000,"n_ctx":4096}})",
       4096},
      {with_message(
           "the request exceeds the available context size. try increasing the context size or enable "
           "context shift, 7"),
       0},
      {R"({"error":{"code":400,"message":"too long","type":"exceed_context_size_error","n_ctx":4096}})",
       4096},
      {R"({"error":"the input length exceeds the context length"})", 0},
      {R"({"error":"Input validation error: `inputs` tokens + `max_new_tokens` must be <= )"
       R"(4096. Given: 5000 `inputs` tokens and 10 `max_new_tokens`","error_type":"validat)"
       R"(ion"})",
       4096, 422},
      {with_message("Requested tokens (5000) exceed context window of 4096"), 4096},
      {R"({"error":{"message":"Your input exceeds the context window of this model.","code)"
       R"(":"context_length_exceeded"}})",
       0},
      {with_message("the request exceeds the available context size (4096 tokens)"), 4096, 500},
  };
  for (const Row& row : rows) {
    const route::Failure failure = read(row.body, row.status);
    EXPECT_TRUE(failure.too_long) << row.body;
    EXPECT_EQ(failure.context_max, row.context) << row.body;
  }
}

TEST(LengthRefusal, IsNoOtherRefusalAndNoNoise) {
  for (const std::string body :
       {R"({"error":{"message":"temperature must be at most 2","code":"invalid"}})", R"({"error":null})", "",
        "[1]", R"({"error":{"message":7,"code":7,"n_ctx":4096}})", "maximum context length is 4096",
        R"({"error":[]})"})
    EXPECT_FALSE(read(body).too_long) << body;
  for (const int status : {200, 401, 403, 404, 429, 502, 503, 504})
    EXPECT_FALSE(read(ApiError::context_length("prompt", 9, 8).to_json(), status).too_long) << status;
  EXPECT_FALSE(read(with_message(std::string(1 << 20, 'x') + "maximum context length is 8")).too_long);
}

TEST(LengthRefusal, ANumberOfAnotherSentenceIsNoLength) {
  EXPECT_EQ(read(with_message("beyond the maximum context length. You sent 5000")).context_max, 0);
  EXPECT_EQ(read(with_message("maximum context length, as was set by whoever started it: 4096")).context_max,
            0);
  EXPECT_EQ(read(with_message("maximum context length is 99999999999999999999")).context_max, 0);
}

}  // namespace length_refusal_test
}  // namespace troupe
