#include "worker/model/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <cmath>
#include <string>

#include "common/json/json.h"
#include "tests/worker/model/tiny_model.h"

namespace troupe {
namespace config_test {

using testing::ElementsAre;
using testing::HasSubstr;

bj::object base() {
  return TinyModel().config;
}

bj::object with(const std::string& key, const std::string& json) {
  bj::object config = base();
  config[key] = bj::parse(json);
  return config;
}

bj::object without(const std::string& key) {
  bj::object config = base();
  config.erase(key);
  return config;
}

TEST(ModelConfig, ReadsTheDemoModel) {
  const auto config = load_model_config(TROUPE_SOURCE_DIR "/configs/demo-model");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->architecture, "LlamaForCausalLM");
  EXPECT_EQ(config->vocab_size, 4096);
  EXPECT_EQ(config->layers, 8);
  EXPECT_EQ(config->kv_heads, 2);
  EXPECT_EQ(config->head_dim, 64);
  EXPECT_EQ(config->rope.theta, 10000.0);
  EXPECT_TRUE(config->tie_word_embeddings);
  EXPECT_EQ(config->dtype, DType::kBFloat16);
  EXPECT_THAT(config->eos_token_ids, ElementsAre(2));
  EXPECT_EQ(config->bos_token_id, 0);
  EXPECT_EQ(config->temperature, 0.7);
  EXPECT_EQ(config->top_p, 0.9);
  EXPECT_EQ(config->top_k, std::nullopt);
}

TEST(ModelConfig, ReadsBothSpellings) {
  bj::object modern = without("rope_theta");
  modern["rope_parameters"] = bj::parse(R"({"rope_type":"default","rope_theta":500000.0})");
  modern.erase("torch_dtype");
  modern["dtype"] = "float16";
  const auto config = parse_model_config(modern, nullptr);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->rope.theta, 500000.0);
  EXPECT_EQ(config->dtype, DType::kFloat16);
  EXPECT_EQ(parse_model_config(with("rope_theta", "1e6"), nullptr)->rope.theta, 1e6);
  EXPECT_EQ(parse_model_config(with("rope_scaling", R"({"type":"default"})"), nullptr)->rope.theta, 10000.0);
  EXPECT_EQ(parse_model_config(with("torch_dtype", "\"bfloat16\""), nullptr)->dtype, DType::kBFloat16);
}

TEST(ModelConfig, FillsInTransformersDefaults) {
  bj::object config = without("num_key_value_heads");
  for (const char* key : {"rope_theta", "torch_dtype", "rms_norm_eps"}) config.erase(key);
  config["head_dim"] = nullptr;
  const auto parsed = parse_model_config(config, nullptr);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->kv_heads, 2);
  EXPECT_EQ(parsed->head_dim, 4);
  EXPECT_EQ(parsed->rope.theta, 10000.0);
  EXPECT_EQ(parsed->rms_norm_eps, 1e-6);
  EXPECT_EQ(parsed->dtype, DType::kFloat32);
  EXPECT_FALSE(parsed->tie_word_embeddings);
  EXPECT_TRUE(parsed->eos_token_ids.empty());
}

TEST(ModelConfig, GenerationConfigWinsAndGreedyIsTemperatureZero) {
  const bj::object config = with("eos_token_id", "3");
  EXPECT_THAT(parse_model_config(config, nullptr)->eos_token_ids, ElementsAre(3));
  const auto parse = [&](const std::string& json) {
    const bj::value generation = bj::parse(json);
    return *parse_model_config(config, &generation);
  };
  EXPECT_THAT(parse(R"({"eos_token_id":[4,5]})").eos_token_ids, ElementsAre(4, 5));
  EXPECT_THAT(parse("{}").eos_token_ids, ElementsAre(3));
  EXPECT_EQ(parse(R"({"do_sample":false,"temperature":0.9})").temperature, 0.0);
  EXPECT_EQ(parse(R"({"temperature":0.9})").temperature, 0.9);
  EXPECT_EQ(parse("{}").temperature, std::nullopt);
  EXPECT_EQ(parse(R"({"top_k":20,"min_p":0.1,"top_p":null})").top_k, 20);
  EXPECT_EQ(parse(R"({"repetition_penalty":1})").repetition_penalty, 1.0);
  EXPECT_EQ(parse(R"({"repetition_penalty":1.05})").repetition_penalty, 1.05);
  EXPECT_EQ(parse("{}").repetition_penalty, std::nullopt);
}

// Derived models keep the list of the family's largest; tools write what they have.
TEST(ModelConfig, WhatIsNoEosIdOfTheVocabularyIsNamedAndIgnored) {
  for (const auto& [list, ids, unusable] :
       std::vector<std::tuple<std::string, std::vector<int32_t>, std::vector<std::string>>>{
           {"[3,99]", {3}, {"99"}},
           {"[3,null]", {3}, {"null"}},
           {R"([null,3.0,-2,"4",2.5,true,[1],-1])", {3}, {"null", "-2", "\"4\"", "2.5E0", "true", "[1]"}},
           {"3.0", {3}, {}},
           {"-1.0", {}, {}},
           {"[99]", {}, {"99"}}}) {
    const auto parsed = parse_model_config(with("eos_token_id", list), nullptr);
    ASSERT_TRUE(parsed.ok()) << list << parsed.status();
    EXPECT_EQ(parsed->eos_token_ids, ids) << list;
    EXPECT_EQ(parsed->eos_ids_unusable, unusable) << list;
    const bj::value generation = bj::object{{"eos_token_id", *parse_json(list)}};
    EXPECT_TRUE(parse_model_config(base(), &generation).ok()) << list;
  }
}

TEST(ModelConfig, IntegersMayBeWrittenAsFloats) {
  const auto parsed = parse_model_config(with("num_hidden_layers", "2.0"), nullptr);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->layers, 2);
  EXPECT_FALSE(parse_model_config(with("num_hidden_layers", "2.5"), nullptr).ok());
  EXPECT_FALSE(parse_model_config(with("num_hidden_layers", "1e300"), nullptr).ok());
}

ModelConfig parse(const bj::object& config) {
  const auto parsed = parse_model_config(config, nullptr);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return parsed.value_or(ModelConfig());
}

bj::object of_family(const char* architecture) {
  return with("architectures", std::string("[\"") + architecture + "\"]");
}

TEST(ModelConfig, MinusOneMeansNoToken) {
  bj::object config = of_family("LlamaForCausalLM");
  config["eos_token_id"] = -1;
  config["bos_token_id"] = -1;
  EXPECT_TRUE(parse(config).eos_token_ids.empty());
  EXPECT_EQ(parse(config).bos_token_id, std::nullopt);
}

TEST(ModelConfig, ReadsMistralsWindow) {
  bj::object config = of_family("MistralForCausalLM");
  EXPECT_EQ(parse(config).sliding_window, 4096);
  config["sliding_window"] = nullptr;
  EXPECT_EQ(parse(config).sliding_window, 0);
  config["sliding_window"] = 31;
  EXPECT_EQ(parse(config).sliding_window, 31);
  config.erase("num_key_value_heads");
  config["num_attention_heads"] = 8;
  config["head_dim"] = 2;
  EXPECT_EQ(parse(config).kv_heads, 8);
}

TEST(ModelConfig, DetectsThatQwensWindowIsOff) {
  for (const char* architecture : {"Qwen2ForCausalLM", "Qwen3ForCausalLM"}) {
    bj::object config = of_family(architecture);
    EXPECT_EQ(parse(config).sliding_window, 0);
    config["sliding_window"] = 16;
    config["max_window_layers"] = 1;
    config["use_sliding_window"] = false;
    EXPECT_EQ(parse(config).sliding_window, 0);
    config["use_sliding_window"] = true;
    EXPECT_EQ(parse(config).sliding_window, 16);
    config["max_window_layers"] = 2;  // of 2 layers: none has it
    EXPECT_EQ(parse(config).sliding_window, 0);
    config["layer_types"] = {"full_attention", "sliding_attention"};
    EXPECT_EQ(parse(config).sliding_window, 16);
    config["layer_types"] = {"full_attention", "full_attention"};
    EXPECT_EQ(parse(config).sliding_window, 0);
    config["layer_types"] = {"full_attention", "sliding_attention"};
    config["sliding_window"] = nullptr;
    EXPECT_EQ(parse(config).sliding_window, 0);
  }
}

TEST(ModelConfig, FillsInQwen3sOwnHeadDimension) {
  bj::object config = of_family("Qwen3ForCausalLM");
  EXPECT_EQ(parse(config).head_dim, 128);
  config["head_dim"] = 24;
  EXPECT_EQ(parse(config).head_dim, 24);
  config["hidden_size"] = 9;  // not a multiple of the heads, which is allowed
  EXPECT_EQ(parse(config).head_dim, 24);
}

TEST(ModelConfig, BaichuanRotatesIfItHasPositions) {
  for (const char* architecture : {"BaichuanForCausalLM", "BaiChuanForCausalLM"}) {
    bj::object config = of_family(architecture);
    config.erase("num_key_value_heads");
    EXPECT_EQ(parse(config).rope.type, RopeType::kDefault);
    config.erase("max_position_embeddings");
    EXPECT_EQ(parse(config).rope.type, RopeType::kNone);
    EXPECT_EQ(parse(config).max_position_embeddings, 4096);
    config["model_max_length"] = 100;
    EXPECT_EQ(parse(config).max_position_embeddings, 100);
    EXPECT_EQ(parse(config).position_count_max, 100);
    const auto refusal = [&config](const std::string& scaling) {
      bj::object scaled = config;
      scaled["rope_scaling"] = parse_json(scaling).value();
      return std::string(parse_model_config(scaled, nullptr).status().message());
    };
    EXPECT_THAT(refusal(R"({"type":"nonsense","factor":2})"),
                HasSubstr("key 'rope_scaling.type': 'nonsense' is not supported; default, linear,"));
    EXPECT_THAT(refusal(R"({"rope_type":"linear","factor":2})"),
                HasSubstr("key 'rope_scaling.rope_type': only 'default' is supported"));
    EXPECT_EQ(refusal(R"({"rope_type":"default"})"), "");
    config["num_key_value_heads"] = 1;
    EXPECT_THAT(std::string(parse_model_config(config, nullptr).status().message()),
                HasSubstr("key 'num_key_value_heads': must be num_attention_heads"));
  }
}

TEST(ModelConfig, ReadsEveryRopeTypeInBothSpellings) {
  const auto in = [](const char* key, const std::string& json) { return parse(with(key, json)); };
  const ModelConfig linear = in("rope_scaling", R"({"type":"linear","factor":4.0})");
  EXPECT_EQ(linear.rope.type, RopeType::kLinear);
  EXPECT_EQ(linear.rope.factor, 4.0);
  EXPECT_EQ(linear.rope.theta, 10000.0);
  EXPECT_EQ(linear.position_count_max, 128);
  const ModelConfig dynamic = in("rope_parameters", R"({"rope_type":"dynamic","factor":2,"rope_theta":5e5})");
  EXPECT_EQ(dynamic.rope.type, RopeType::kDynamic);
  EXPECT_EQ(dynamic.rope.theta, 5e5);
  EXPECT_EQ(dynamic.position_count_max, 64);
  const ModelConfig llama3 = in("rope_scaling", R"({"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,
      "high_freq_factor":4.0,"original_max_position_embeddings":8})");
  EXPECT_EQ(llama3.rope.type, RopeType::kLlama3);
  EXPECT_EQ(llama3.rope.original_max_position_embeddings, 8);
  EXPECT_EQ(llama3.position_count_max, 32);
  const ModelConfig yarn = in("rope_scaling", R"({"type":"yarn","factor":4.0})");
  EXPECT_EQ(yarn.rope.type, RopeType::kYarn);
  EXPECT_EQ(yarn.rope.original_max_position_embeddings, 32);
  EXPECT_NEAR(yarn.rope.attention_factor, 0.1 * std::log(4.0) + 1, 1e-12);
  EXPECT_EQ(yarn.position_count_max, 128);
  // The newer of two keys wins; the older of two objects wins; an empty object counts as absent.
  EXPECT_EQ(in("rope_scaling", R"({"rope_type":"default","type":"linear"})").rope.type, RopeType::kDefault);
  bj::object both = with("rope_scaling", R"({"type":"linear","factor":4.0})");
  both["rope_parameters"] = bj::parse(R"({"rope_type":"default"})");
  EXPECT_EQ(parse(both).rope.type, RopeType::kLinear);
  EXPECT_EQ(in("rope_scaling", "{}").rope.type, RopeType::kDefault);
}

TEST(ModelConfig, ReadsLlamasBiases) {
  EXPECT_TRUE(parse(with("attention_bias", "true")).attention_bias);
  EXPECT_TRUE(parse(with("mlp_bias", "true")).mlp_bias);
  EXPECT_FALSE(parse(base()).attention_bias);
}

struct BadConfig {
  std::string key;
  std::string json;   // the value; "" erases the key
  std::string error;  // after "config.json: key '…': "
};

class BadConfigs : public testing::TestWithParam<BadConfig> {};

TEST_P(BadConfigs, AreRefusedByKey) {
  const BadConfig& bad = GetParam();
  const auto parsed =
      parse_model_config(bad.json.empty() ? without(bad.key) : with(bad.key, bad.json), nullptr);
  ASSERT_FALSE(parsed.ok());
  EXPECT_THAT(std::string(parsed.status().message()), HasSubstr("config.json: key '" + bad.key));
  EXPECT_THAT(std::string(parsed.status().message()), HasSubstr(bad.error));
}

INSTANTIATE_TEST_SUITE_P(
    ModelConfig, BadConfigs,
    testing::Values(
        BadConfig{"architectures", "", "is missing; supported are LlamaForCausalLM"},
        BadConfig{"architectures", R"(["GPT2LMHeadModel"])", "must be a list with one of LlamaForCausalLM"},
        BadConfig{"architectures", R"("LlamaForCausalLM")", "must be a list"},
        BadConfig{"vocab_size", "", "is missing"}, BadConfig{"vocab_size", "0", "an integer in [1, "},
        BadConfig{"vocab_size", "-5", "-5 is not supported"},
        BadConfig{"vocab_size", "\"12\"", "\"12\" is not supported"},
        BadConfig{"vocab_size", "12.5", "an integer"},
        BadConfig{"vocab_size", "9223372036854775807", "in [1, "},
        BadConfig{"hidden_size", "18446744073709551615", "an integer in [1, "},
        BadConfig{"hidden_size", "", "is missing"}, BadConfig{"intermediate_size", "0", "an integer in"},
        BadConfig{"num_hidden_layers", "1000000", "an integer in [1, 1024]"},
        BadConfig{"num_attention_heads", "0", "an integer in"},
        BadConfig{"num_key_value_heads", "3", "3 does not divide num_attention_heads 2"},
        BadConfig{"max_position_embeddings", "", "is missing"}, BadConfig{"head_dim", "3", "3 must be even"},
        BadConfig{"head_dim", "1", "an integer in [2, "},
        BadConfig{"rms_norm_eps", "-1", "a number in [0, 1]"},
        BadConfig{"rope_theta", "0", "a number in [1, "}, BadConfig{"rope_theta", "\"1e4\"", "a number"},
        BadConfig{"rope_scaling", R"({"rope_type":"llama3","factor":8})", "low_freq_factor': is missing"},
        BadConfig{"rope_scaling",
                  R"({"rope_type":"llama3","factor":8,"low_freq_factor":4,"high_freq_factor":4})",
                  "high_freq_factor': 4 must be above low_freq_factor 4"},
        BadConfig{"rope_scaling", R"({"type":"linear"})", "factor': is missing"},
        BadConfig{"rope_scaling", R"({"type":"linear","factor":0.5})", "a number in [1, 1e+06]"},
        BadConfig{"rope_scaling", R"({"type":"longrope","factor":2})",
                  "'longrope' is not supported; default, linear, dynamic, llama3, yarn are"},
        BadConfig{"rope_scaling", R"({"factor":2})", "rope_type': is missing"},
        BadConfig{"rope_scaling", "8", "must be an object"},
        BadConfig{"rope_parameters", R"({"rope_type":"yarn"})", "factor': is missing"},
        BadConfig{"rope_parameters", R"({"rope_type":"yarn","factor":2,"truncate":1})", "true or false"},
        BadConfig{"rope_parameters", R"({"rope_type":"proportional"})", "'proportional' is not supported"},
        BadConfig{"rope_parameters", R"({"full_attention":{"rope_type":"default"}})",
                  "one rotation for all layers"},
        BadConfig{"rope_parameters", R"({"rope_theta":-1})", "rope_theta': -1 is not supported"},
        BadConfig{"partial_rotary_factor", "0.5", "only 1 is supported"},
        BadConfig{"hidden_act", "\"gelu\"", "'gelu' is not supported; only 'silu' is"},
        BadConfig{"attention_bias", "1", "true or false"}, BadConfig{"mlp_bias", "0", "true or false"},
        BadConfig{"quantization_config", R"({"quant_method":"awq"})", "must be absent"},
        BadConfig{"torch_dtype", "\"int8\"", "'int8' is not supported"},
        BadConfig{"tie_word_embeddings", "\"yes\"", "true or false"},
        BadConfig{"eos_token_id", "12", "a token id in [0, 12)"},
        BadConfig{"eos_token_id", "1.5", "a token id in [0, 12)"},
        BadConfig{"bos_token_id", "12", "an integer in [-1, 11]"}));

TEST(ModelConfig, RefusesABadGenerationConfigByKey) {
  for (const auto& [json, error] :
       {std::pair<std::string, std::string>{"[]", "generation_config.json: is not a JSON object"},
        {R"({"temperature":-1})", "generation_config.json: key 'temperature': -1 is not supported"},
        {R"({"top_p":1.5})", "key 'top_p'"},
        {R"({"top_k":"many"})", "key 'top_k'"},
        {R"({"min_p":2})", "key 'min_p'"},
        {R"({"repetition_penalty":0})", "key 'repetition_penalty'"},
        {R"({"do_sample":1})", "key 'do_sample'"},
        {R"({"eos_token_id":99})", "generation_config.json: key 'eos_token_id'"}}) {
    const bj::value generation = bj::parse(json);
    EXPECT_THAT(std::string(parse_model_config(base(), &generation).status().message()), HasSubstr(error));
  }
  EXPECT_THAT(std::string(parse_model_config(bj::value(3), nullptr).status().message()),
              HasSubstr("config.json: is not a JSON object"));
}

}  // namespace config_test
}  // namespace troupe
