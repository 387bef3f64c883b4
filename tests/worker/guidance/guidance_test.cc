// Guidance's formula, and which requests ask for it, with which negative prompt.

#include "worker/model/guidance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "worker/input/prompt_pipeline.h"
#include "worker/text/tokenizer/tokenizer_config.h"

namespace troupe::guidance_test {

using ::testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<double> log_softmax(const std::vector<float>& logits) {
  double total = 0;
  for (const float logit : logits) total += std::exp(double{logit});
  std::vector<double> out;
  for (const float logit : logits) out.push_back(double{logit} - std::log(total));
  return out;
}

TEST(GuideLogits, AreTransformersFormula) {
  std::mt19937 random(5);
  std::normal_distribution<float> draw(1, 4);
  for (const double scale : {0.25, 1.5, 3.0}) {
    std::vector<float> logits, negative;
    for (int i = 0; i < 500; ++i) logits.push_back(draw(random)), negative.push_back(draw(random));
    const std::vector<double> p = log_softmax(logits), n = log_softmax(negative);
    guide_logits(logits, negative, scale);
    for (size_t i = 0; i < logits.size(); ++i)
      EXPECT_NEAR(logits[i], scale * (p[i] - n[i]) + n[i], 1e-5) << scale << " " << i;
  }
}

TEST(GuideLogits, ATokenWithoutProbabilityStaysOne) {
  std::vector<float> logits = {1, 2, -kInf, 3, -kInf};
  const std::vector<float> negative = {2, -kInf, 1, 3, -kInf};
  const std::vector<double> p = log_softmax(logits);
  guide_logits(logits, negative, 2);
  EXPECT_EQ(logits[2], -kInf);
  EXPECT_EQ(logits[4], -kInf);
  EXPECT_NEAR(logits[1], p[1], 1e-6) << "the negative row says nothing of it";
}

TEST(GuideLogits, NoTokenIsDrawnFromWhatIsNoNumber) {
  const float nan = std::nanf("");
  for (const std::vector<float>& bad : {std::vector<float>{1, nan, 2}, {1, kInf, 2}, {-kInf, -kInf, -kInf}}) {
    std::vector<float> logits = {1, 2, 3}, other = bad;
    guide_logits(logits, bad, 2);
    EXPECT_EQ(draw_token(logits, {}), kNoDraw);
    guide_logits(other, std::vector<float>{1, 2, 3}, 2);
    EXPECT_EQ(draw_token(other, {}), kNoDraw);
  }
}

class PrepareGuidance : public ::testing::Test {
 protected:
  static constexpr const char* kModelDir = TROUPE_SOURCE_DIR "/configs/demo-model";
  PrepareGuidance() {
    model_.name = "demo-model";
    model_.tokenizer = tokenizer_.get();
    model_.chat_template = template_.get();
    model_.special_tokens = tokenizer_->config().variables();
    model_.config = std::move(load_model_config(kModelDir)).value();
    model_.total_count_max = 64;
    model_.prompt_bytes_max = prompt_bytes_bound(*tokenizer_, 64);
  }
  ApiResult<PreparedRequest> prepare(GenerateRequest::Kind kind, const std::string& body) {
    return prepare_request(model_, kind, "{" + body + "}", 1);
  }
  ApiResult<PreparedRequest> chat(const std::string& fields) {
    return prepare(
        GenerateRequest::Kind::kChat,
        R"("messages":[{"role":"system","content":"You are Ann."},{"role":"user","content":"Hi"}],)" +
            fields);
  }
  ApiResult<PreparedRequest> completion(const std::string& fields) {
    return prepare(GenerateRequest::Kind::kCompletion, R"("prompt":"Once upon",)" + fields);
  }
  std::string negative_of(const ApiResult<PreparedRequest>& prepared) {
    if (!prepared.ok()) return prepared.error().message;
    const std::optional<Guidance>& guidance = prepared.value().engine.guidance;
    return guidance ? tokenizer_->decode(guidance->negative_prompt, /*skip_special=*/false) : "none";
  }

  std::unique_ptr<Tokenizer> tokenizer_ = std::move(Tokenizer::load(kModelDir)).value();
  std::unique_ptr<ChatTemplate> template_ = std::move(ChatTemplate::load(kModelDir)).value();
  ServedModel model_;
};

TEST_F(PrepareGuidance, ScaleOneIsNone) {
  for (const std::string off : {R"("guidance_scale":1)", R"("guidance_scale":1.0,"negative_prompt":"Bad")",
                                R"("cfg_scale":0,"negative_prompt":7)", R"("negative_prompt":"Bad")",
                                R"("guidance_scale":false)", R"("guidance_scale":-0.5)"})
    EXPECT_EQ(negative_of(chat(off)), "none") << off;
}

TEST_F(PrepareGuidance, WithoutANegativePromptItIsTheLastToken) {
  for (const std::string fields : {R"("guidance_scale":1.5)", R"("cfg_scale":1.5,"negative_prompt":"")"}) {
    const auto prepared = completion(fields);
    ASSERT_TRUE(prepared.ok()) << prepared.error().message;
    const EngineRequest& engine = prepared.value().engine;
    ASSERT_TRUE(engine.guidance.has_value());
    EXPECT_EQ(engine.guidance->scale, 1.5);
    EXPECT_EQ(engine.guidance->negative_prompt, std::vector<TokenId>{engine.prompt.back()});
  }
}

TEST_F(PrepareGuidance, ACompletionsNegativePromptIsAllOfIt) {
  EXPECT_EQ(negative_of(completion(R"("guidance_scale":2,"negative_prompt":"Dull words")")), "Dull words");
}

TEST_F(PrepareGuidance, AListsPromptsShareANegativePromptAndHaveTheirOwnLastTokens) {
  const std::string list = R"("prompt":["Once upon","A time"],"guidance_scale":2)";
  const auto shared =
      prepare(GenerateRequest::Kind::kCompletion, list + R"(,"negative_prompt":"Dull words")");
  ASSERT_TRUE(shared.ok()) << shared.error().message;
  const EngineRequest& second = shared.value().more.at(0).engine;
  EXPECT_EQ(second.guidance->negative_prompt, shared.value().engine.guidance->negative_prompt);
  EXPECT_EQ(second.guidance->scale, 2);
  const auto own = prepare(GenerateRequest::Kind::kCompletion, list);
  ASSERT_TRUE(own.ok()) << own.error().message;
  const EngineRequest& other = own.value().more.at(0).engine;
  EXPECT_EQ(other.guidance->negative_prompt, std::vector<TokenId>{other.prompt.back()});
}

TEST_F(PrepareGuidance, AChatsTakesTheSystemsPlace) {
  EXPECT_EQ(
      negative_of(chat(R"("guidance_scale":2,"negative_prompt":"You are dull.")")),
      "<|im_start|>system\nYou are dull.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  const auto alone =
      prepare(GenerateRequest::Kind::kChat,
              R"("messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Well"}],)"
              R"("continue_final_message":true,"guidance_scale":2,"negative_prompt":"Dull.")");
  EXPECT_EQ(
      negative_of(alone),
      "<|im_start|>system\nDull.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nWell");
}

TEST_F(PrepareGuidance, BothPromptsMustLeaveRoom) {
  std::string words;
  for (int i = 0; i < 50; ++i) words += "one ";
  const std::string fields = R"("guidance_scale":2,"negative_prompt":")" + words + "\"";
  const auto fits = completion(fields);
  ASSERT_TRUE(fits.ok()) << fits.error().message;
  const auto negative = static_cast<int32_t>(fits.value().engine.guidance->negative_prompt.size());
  ASSERT_GT(negative, 20);
  EXPECT_EQ(fits.value().engine.max_new_count, 64 - negative);
  EXPECT_THAT(negative_of(completion(fields + R"(,"max_tokens":40)")), HasSubstr("the negative prompt's"));
  EXPECT_EQ(completion(R"("guidance_scale":2,"negative_prompt":")" + words + words + "\"").error().param,
            "negative_prompt");
}

TEST_F(PrepareGuidance, WhatIsNoScaleIsRefused) {
  EXPECT_EQ(completion(R"("guidance_scale":"much")").error().param, "guidance_scale");
  EXPECT_EQ(completion(R"("cfg_scale":101)").error().param, "cfg_scale");
  EXPECT_EQ(completion(R"("guidance_scale":2,"negative_prompt":["x"])").error().param, "negative_prompt");
}

}  // namespace troupe::guidance_test
