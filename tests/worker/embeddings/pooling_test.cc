// Pooling of rows, and the body and answer of POST /v1/embeddings.

#include "worker/engine/pooling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "common/core/base64.h"
#include "common/json/json.h"

namespace troupe::pooling_test {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<float> pooled(PoolingParams params, const std::vector<std::vector<float>>& rows) {
  Pooler pooler(params);
  for (const auto& row : rows) pooler.add(row);
  return pooler.vector();
}

TEST(Pooler, TakesTheLastRowOrTheMean) {
  const std::vector<std::vector<float>> rows = {{1, 2}, {2, 4}, {3, 9}};
  EXPECT_THAT(pooled({Pooling::kLast, false}, rows), ElementsAre(3, 9));
  EXPECT_THAT(pooled({Pooling::kMean, false}, rows), ElementsAre(2, 5));
  EXPECT_THAT(pooled({Pooling::kMean, false}, {}), IsEmpty());
}

TEST(Pooler, NormalizesToLengthOne) {
  EXPECT_THAT(pooled({Pooling::kLast, true}, {{9, 9}, {3, -4}}), ElementsAre(0.6f, -0.8f));
  EXPECT_THAT(pooled({Pooling::kMean, true}, {{3, 0}, {3, 8}}), ElementsAre(0.6f, 0.8f));
  EXPECT_THAT(pooled({Pooling::kMean, true}, {{0, 0}}), ElementsAre(0, 0));
}

TEST(EmbeddingsRequest, TakesEveryFormOfInput) {
  const auto inputs = [](const std::string& json) {
    auto request = parse_embeddings_request(R"({"input":)" + json + "}");
    EXPECT_TRUE(request.ok()) << json;
    return request.ok() ? request->inputs : std::vector<GenerateRequest::Prompt>();
  };
  using Ids = std::vector<int32_t>;
  EXPECT_THAT(inputs(R"("a")"), ElementsAre("a"));
  EXPECT_THAT(inputs(R"(["a","b"])"), ElementsAre("a", "b"));
  EXPECT_THAT(inputs("[1,2]"), ElementsAre(Ids{1, 2}));
  EXPECT_THAT(inputs(R"([[1,2],[3],"c"])"), ElementsAre(Ids{1, 2}, Ids{3}, "c"));
}

TEST(EmbeddingsRequest, HasDefaultsAndFields) {
  auto plain = parse_embeddings_request(R"({"input":"a","user":"u","dimensions":null})");
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(plain->pooling, Pooling::kLast);
  EXPECT_TRUE(plain->normalize && !plain->base64 && plain->add_special_tokens);
  EXPECT_FALSE(plain->dimensions || plain->truncate_prompt_tokens);
  auto all = parse_embeddings_request(
      R"({"model":"m","input":"a","pooling":"mean","normalize":false,"encoding_format":"base64","dimensions":8,
          "truncate_prompt_tokens":-1,"add_special_tokens":false,"cache_salt":"s"})");
  ASSERT_TRUE(all.ok()) << all.error().message;
  EXPECT_EQ(all->model, "m");
  EXPECT_EQ(all->cache_salt, "s");
  EXPECT_EQ(all->pooling, Pooling::kMean);
  EXPECT_TRUE(!all->normalize && all->base64 && !all->add_special_tokens);
  EXPECT_EQ(all->dimensions, 8);
  EXPECT_EQ(all->truncate_prompt_tokens, -1);
}

TEST(EmbeddingsRequest, ErrorsNameTheField) {
  std::string list = "[\"x\"";
  for (size_t i = 0; i < kEmbeddingInputsMax; ++i) list += ",\"x\"";
  for (const auto& [body, field] : std::vector<std::pair<std::string, std::string>>{
           {"{}", "input"},
           {R"({"input":""})", "input"},
           {R"({"input":[]})", "input"},
           {R"({"input":["a",""]})", "input[1]"},
           {R"({"input":{"text":"a"}})", "input"},
           {R"({"input":)" + list + "]}", "input"},
           {R"({"input":"a","pooling":"cls"})", "pooling"},
           {R"({"input":"a","encoding_format":"int8"})", "encoding_format"},
           {R"({"input":"a","truncate_prompt_tokens":0})", "truncate_prompt_tokens"},
           {R"({"input":"a","normalize":1})", "normalize"},
           {R"({"input":"a","dimensions":0})", "dimensions"},
           {R"({"messages":[]})", "messages"}}) {
    auto request = parse_embeddings_request(body);
    ASSERT_FALSE(request.ok()) << body.substr(0, 60);
    EXPECT_EQ(request.error().http_status, 400);
    EXPECT_EQ(request.error().param, field) << body.substr(0, 60);
  }
}

TEST(EmbeddingsAnswer, NumbersAndBase64AreTheSameFloats) {
  const std::vector<std::vector<float>> vectors = {{0.1f, -1e-20f, 3},
                                                   {std::nextafter(1.0f, 2.0f), 0, -0.0f}};
  EmbeddingsAnswer answer{.model = "m\"", .pooling = Pooling::kMean, .vectors = vectors, .prompt_tokens = 7};
  const auto plain = parse_json(embeddings_json(answer));
  ASSERT_TRUE(plain.ok()) << plain.status();
  answer.base64 = true;
  const auto packed = parse_json(embeddings_json(answer));
  ASSERT_TRUE(packed.ok()) << packed.status();
  for (size_t i = 0; i < vectors.size(); ++i) {
    const bj::value& item = plain->at("data").at(i);
    EXPECT_EQ(item.at("index").to_number<size_t>(), i);
    const auto bytes = from_base64(std::string(packed->at("data").at(i).at("embedding").as_string()));
    ASSERT_TRUE(bytes && bytes->size() == vectors[i].size() * 4);
    for (size_t j = 0; j < vectors[i].size(); ++j) {
      EXPECT_EQ(static_cast<float>(item.at("embedding").at(j).to_number<double>()), vectors[i][j]);
      uint32_t bits = 0;
      for (size_t k = 0; k < 4; ++k)
        bits |= uint32_t{static_cast<unsigned char>((*bytes)[4 * j + k])} << (8 * k);
      EXPECT_EQ(bits, std::bit_cast<uint32_t>(vectors[i][j]));
    }
  }
  EXPECT_EQ(plain->at("model").as_string(), "m\"");
  EXPECT_EQ(plain->at("pooling").as_string(), "mean");
  EXPECT_EQ(plain->at("usage").at("total_tokens").to_number<int>(), 7);
}

}  // namespace troupe::pooling_test
