// Samplers of a request as the engine gets them, over the demo model's tokenizer.

#include "worker/input/prepare_samplers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "worker/input/prompt_pipeline.h"

namespace troupe::prepare_samplers_test {

constexpr const char* kModelDir = TROUPE_SOURCE_DIR "/configs/demo-model";

class Samplers : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { tokenizer = std::move(Tokenizer::load(kModelDir)).value(); }
  static void TearDownTestSuite() { tokenizer.reset(); }
  void SetUp() override {
    model.name = "demo-model";
    model.tokenizer = tokenizer.get();
    model.config = std::move(load_model_config(kModelDir)).value();
    model.config.temperature = model.config.top_p = model.config.min_p = model.config.repetition_penalty = {};
    model.config.top_k = {};
    model.total_count_max = 64;
    model.prompt_bytes_max = prompt_bytes_bound(*tokenizer, 64);
  }
  ApiResult<PreparedRequest> prepare(const std::string& fields) {
    return prepare_request(model, GenerateRequest::Kind::kCompletion,
                           R"({"model":"demo-model","prompt":"Once",)" + fields + "}", 1);
  }
  SamplingParams sampling(const std::string& fields) {
    auto prepared = prepare(fields);
    EXPECT_TRUE(prepared.ok()) << fields << prepared.error().message;
    return prepared.ok() ? prepared->engine.sampling : SamplingParams{};
  }
  std::vector<int32_t> encode(std::string_view text) { return tokenizer->encode(text, false).value(); }

  static std::unique_ptr<Tokenizer> tokenizer;
  ServedModel model;
};
std::unique_ptr<Tokenizer> Samplers::tokenizer;

TEST_F(Samplers, WhatChangesNothingLeavesTheDrawPlain) {
  for (const std::string fields :
       {R"("temperature":0.7,"top_p":0.9,"min_p":0.1)",
        R"("temperature":0.7,"min_p":0.1,"typical_p":1,"tfs":1)",
        R"("temperature":0.7,"min_p":0.1,"temperature_last":false)",
        R"("temperature":0.7,"temperature_last":true)", R"("min_p":0.1,"sampler_order":[6,0,1,3,4,2,5])",
        R"("temperature":0,"xtc_probability":1,"mirostat_mode":2)",
        R"("temperature":0.7,"top_p":0.9,"dry_multiplier":1)", R"("xtc_probability":0.5,"xtc_threshold":0.6)",
        R"("rep_pen":1.2,"rep_pen_range":100,"temperature":0.5,"top_p":0.9)"}) {
    EXPECT_FALSE(sampling(fields).chain) << fields;
  }
}

TEST_F(Samplers, AnOrderThatDiffersMakesAChain) {
  for (const std::string fields :
       {R"("temperature":0.7,"min_p":0.1,"temperature_last":true)", R"("temperature":0.7,"typical_p":0.9)",
        R"("temperature":0.7,"top_p":0.9,"sampler_order":[6,0,1,3,4,2,5])", R"("mirostat_mode":2)",
        R"("rep_pen":1.2,"top_k":5,"sampler_order":[0,6])", R"("dynatemp_range":0.5)"}) {
    EXPECT_TRUE(sampling(fields).chain) << fields;
  }
  EXPECT_TRUE(sampling(R"("rep_pen":1.2,"top_k":5,"sampler_order":[0,6])").chain->has_late_penalties());
  EXPECT_FALSE(sampling(R"("rep_pen":1.2,"tfs":0.5,"sampler_order":[0,6])").chain->has_late_penalties());
  EXPECT_EQ(sampling(R"("temperature":0.7,"typical_p":0.9)").chain->order, kDefaultSamplerOrder);
}

TEST_F(Samplers, TheRangeOfTheTemperatureIsAroundTheRequests) {
  const SamplerChain chain = *sampling(R"("temperature":1.25,"dynatemp_range":0.5)").chain;
  EXPECT_FLOAT_EQ(chain.dynatemp_low, 0.75f);
  EXPECT_FLOAT_EQ(chain.dynatemp_high, 1.75f);
  EXPECT_FLOAT_EQ(sampling(R"("temperature":0.25,"dynatemp_range":0.5)").chain->dynatemp_low, 0);
}

TEST_F(Samplers, BansBecomeTokens) {
  const HistorySamplers bans =
      sampling(R"("banned_tokens":[300],"ban_eos_token":true,"bad_words":["Wolfgang Amadeus"])").history;
  EXPECT_NE(std::find(bans.banned.begin(), bans.banned.end(), 300), bans.banned.end());
  for (const int32_t id : model.config.eos_token_ids)
    EXPECT_NE(std::find(bans.banned.begin(), bans.banned.end(), id), bans.banned.end());
  ASSERT_FALSE(bans.banned_sequences.empty());
  EXPECT_EQ(bans.banned_sequences.front(), encode("Wolfgang Amadeus"));
  const HistorySamplers early = sampling(R"("min_tokens":5,"stop_token_ids":[301])").history;
  EXPECT_EQ(early.min_tokens, 5);
  EXPECT_EQ(early.banned_early.back(), 301);
  EXPECT_EQ(early.banned_early.size(), model.config.eos_token_ids.size() + 1);
}

TEST_F(Samplers, BansThatLeaveNothingAreRefused) {
  EXPECT_EQ(prepare(R"("banned_tokens":[999999])").error().param, "banned_tokens[0]");
  std::string all = "\"banned_tokens\":[0";
  for (int32_t id = 1; id < model.config.vocab_size; ++id) all += "," + std::to_string(id);
  if (model.config.vocab_size <= 4096) {
    EXPECT_EQ(prepare(all + "]").error().param, "banned_tokens");
  }
}

// Wherever a breaker stands in a text, the text behind it is what it leaves.
TEST_F(Samplers, BreakersAreFoundHoweverTheTextWasCut) {
  const std::vector<std::string> texts{"\n", ":", "\"", "*", "Lipora lies"};
  const StatusOr<DryBreakers> breakers = find_breakers(*tokenizer, texts);
  ASSERT_TRUE(breakers.ok()) << breakers.status();
  for (const std::string& text : texts) {
    for (const std::string before : {"", "a", "The old clock maker said", "said. ", "x\n", " (*"}) {
      const std::vector<int32_t> head = encode(before + text), tail = encode(" far north");
      std::vector<int32_t> ids = head;
      ids.insert(ids.end(), tail.begin(), tail.end());
      EXPECT_LE(breakers->count_behind(ids, ids.size()), tail.size()) << before << text;
    }
  }
  const std::vector<int32_t> plain = encode("The old clock maker went home");
  EXPECT_EQ(breakers->count_behind(plain, plain.size()), plain.size());
  EXPECT_EQ(breakers->count_behind(plain, 2), 2u);
}

TEST_F(Samplers, MirostatAndBannedStringsAreRefusedTogether) {
  EXPECT_EQ(prepare(R"("mirostat_mode":2,"banned_strings":["x"])").error().param, "banned_strings");
  EXPECT_TRUE(prepare(R"("mirostat_mode":0,"banned_strings":["x"])").ok());
}

TEST_F(Samplers, ListsOfBreakersAreKept) {
  DryBreakerCache cache(tokenizer.get());
  model.breaker_cache = &cache;
  const auto first = sampling(R"("dry_multiplier":1)").history.dry.breakers;
  EXPECT_EQ(sampling(R"("dry_multiplier":2,"dry_base":1.5)").history.dry.breakers, first);
  for (int i = 0; i < 20; ++i) {
    sampling("\"dry_multiplier\":1,\"dry_sequence_breakers\":[\"" + std::to_string(i) + "\"]");
  }
  const auto again = sampling(R"("dry_multiplier":1)").history.dry.breakers;
  EXPECT_NE(again, first);
  EXPECT_EQ(again->count_behind(encode("a: b"), 9), first->count_behind(encode("a: b"), 9));
}

}  // namespace troupe::prepare_samplers_test
