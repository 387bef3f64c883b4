// Samplers' fields by all their names, their off-values, their ranges and their order.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "common/api/api.h"

namespace troupe::api_samplers_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Step = Sampler;

ApiResult<GenerateRequest> completion(const std::string& fields) {
  return parse_completion_request(R"({"model":"m","prompt":"x",)" + fields + "}");
}
ApiResult<GenerateRequest> chat(const std::string& fields) {
  return parse_chat_request(R"({"model":"m","messages":[{"role":"user","content":"hi"}],)" + fields + "}");
}
GenerateRequest parsed(const std::string& fields) {
  const auto request = completion(fields);
  EXPECT_TRUE(request.ok()) << fields << ": " << (request.ok() ? "" : request.error().message);
  EXPECT_TRUE(chat(fields).ok()) << fields;
  return request.ok() ? request.value() : GenerateRequest{};
}
SamplerFields samplers(const std::string& fields) {
  return parsed(fields).samplers.value();
}

// "param: message" of the error.
std::string fault(const std::string& fields) {
  const auto request = completion(fields);
  return request.ok() ? "accepted" : request.error().param + ": " + request.error().message;
}

TEST(ApiSamplers, APlainRequestHasNone) {
  EXPECT_FALSE(
      parsed(R"("temperature":0.7,"top_p":0.9,"top_k":40,"min_p":0.1,"repetition_penalty":1.1)").samplers);
}

TEST(ApiSamplers, NumbersUnderEveryName) {
  struct Name {
    std::vector<std::string> names;
    double SamplerFields::*member;
    double scale = 1;
  };
  const std::vector<Name> names = {{{"typical_p", "typical", "typ_p"}, &SamplerFields::typical_p},
                                   {{"top_a"}, &SamplerFields::top_a},
                                   {{"tfs", "tfs_z"}, &SamplerFields::tfs},
                                   {{"epsilon_cutoff"}, &SamplerFields::epsilon_cutoff, 1e-4},
                                   {{"eta_cutoff"}, &SamplerFields::eta_cutoff, 1e-4},
                                   {{"smoothing_factor"}, &SamplerFields::smoothing_factor},
                                   {{"xtc_probability"}, &SamplerFields::xtc_probability},
                                   {{"rep_pen_slope"}, &SamplerFields::repetition_slope},
                                   {{"guidance_scale", "cfg_scale"}, &SamplerFields::guidance_scale},
                                   {{"dry_multiplier"}, &SamplerFields::dry_multiplier},
                                   {{"dynatemp_range"}, &SamplerFields::dynatemp_range}};
  for (const Name& name : names) {
    for (const std::string& alias : name.names) {
      const SamplerFields out = samplers("\"" + alias + "\":0.25");
      EXPECT_DOUBLE_EQ(out.*name.member, 0.25 * name.scale) << alias;
      for (const std::string off : {"0", "-1", "\"\"", "null", "false"}) {
        const auto request = parsed("\"" + alias + "\":" + off);
        if (request.samplers) {
          EXPECT_EQ((*request.samplers).*name.member, SamplerFields().*name.member) << alias << off;
        }
      }
      EXPECT_THAT(fault("\"" + alias + "\":100000"), HasSubstr(alias)) << alias;
      EXPECT_THAT(fault("\"" + alias + "\":\"much\""), HasSubstr("'" + alias + "' must be a number"))
          << alias;
    }
  }
  EXPECT_EQ(samplers(R"("typical_p":1,"tfs":1)").tfs, 1);
}

TEST(ApiSamplers, CountsUnderEveryName) {
  for (const std::string name :
       {"repetition_penalty_range", "penalty_range", "repetition_range", "rep_pen_range", "repeat_last_n"}) {
    EXPECT_EQ(samplers("\"" + name + "\":512").repetition_range, 512) << name;
    EXPECT_EQ(samplers("\"" + name + "\":-1").repetition_range, 0) << name;
    EXPECT_EQ(samplers("\"" + name + "\":false").repetition_range, 0) << name;
    EXPECT_EQ(samplers("\"" + name + "\":0").repetition_range, 0) << name;
    EXPECT_THAT(fault("\"" + name + "\":1.5"), HasSubstr("'" + name + "' must be an integer"));
  }
  for (const std::string name : {"min_tokens", "min_length"}) {
    EXPECT_EQ(samplers("\"" + name + "\":7").min_tokens, 7);
    EXPECT_THAT(fault("\"max_tokens\":5,\"" + name + "\":7"), HasSubstr(name + ": "));
  }
  for (const std::string name : {"dry_penalty_last_n", "dry_range"}) {
    EXPECT_EQ(samplers("\"dry_multiplier\":1,\"" + name + "\":100").dry_range, 100);
    EXPECT_EQ(samplers("\"dry_multiplier\":1,\"" + name + "\":-1").dry_range, 0);
  }
  EXPECT_EQ(samplers(R"("repetition_decay":9)").repetition_decay, 9);
  EXPECT_TRUE(samplers(R"("ban_eos_token":true)").bans_eos);
}

TEST(ApiSamplers, OtherServersNamesOfPlainFields) {
  for (const std::string name : {"max_new_tokens", "n_predict", "max_length"}) {
    EXPECT_EQ(parsed("\"" + name + "\":9").max_tokens, 9) << name;
    EXPECT_EQ(parsed("\"" + name + "\":9,\"max_tokens\":5").max_tokens, 5) << name;
    EXPECT_FALSE(parsed("\"" + name + "\":-1").max_tokens) << name;
  }
  for (const std::string name : {"rep_pen", "repeat_penalty"}) {
    EXPECT_EQ(parsed("\"" + name + "\":1.25").repetition_penalty, 1.25) << name;
    EXPECT_THAT(fault("\"" + name + "\":11"),
                HasSubstr(name + ": '" + name + "' is repetition_penalty here"));
  }
  for (const std::string name : {"stopping_strings", "stop_sequence"}) {
    EXPECT_THAT(parsed("\"" + name + "\":[\"a\",\"b\"]").stop, ElementsAre("a", "b"));
    EXPECT_THAT(parsed("\"" + name + "\":[]").stop, IsEmpty());
  }
  EXPECT_EQ(parsed(R"("sampler_seed":5)").seed, 5u);
  EXPECT_FALSE(parsed(R"("sampler_seed":-1)").seed);
  EXPECT_EQ(parsed(R"("n_probs":4)").logprobs, 4);
  EXPECT_FALSE(parsed(R"("n_probs":0)").logprobs);
}

// Whatever their order in the body.
TEST(ApiSamplers, TheFirstNameOfTheTableCounts) {
  for (const std::string fields : {R"("typical":0.5,"typical_p":0.75)", R"("typical_p":0.75,"typical":0.5)",
                                   R"("typ_p":0.2,"typical_p":0.75,"typical":0.5)"}) {
    EXPECT_EQ(samplers(fields).typical_p, 0.75) << fields;
  }
  EXPECT_EQ(samplers(R"("typ_p":0.2,"typical":0.5,"typical_p":null)").typical_p, 0.5);
  EXPECT_EQ(parsed(R"("rep_pen":1.5,"repetition_penalty":1.1,"repeat_penalty":2)").repetition_penalty, 1.1);
  EXPECT_EQ(parsed(R"("max_length":3,"max_new_tokens":4,"n_predict":5)").max_tokens, 4);
}

TEST(ApiSamplers, DynamicTemperatureInBothForms) {
  const SamplerFields bounds = samplers(R"("dynamic_temperature":true,"dynatemp_low":0.5,"dynatemp_high":2)");
  EXPECT_TRUE(bounds.has_dynamic_temperature);
  EXPECT_EQ(bounds.dynatemp_low, 0.5);
  EXPECT_EQ(bounds.dynatemp_high, 2);
  EXPECT_TRUE(samplers(R"("min_temp":0.5,"max_temp":2)").has_dynamic_temperature);
  EXPECT_FALSE(
      samplers(R"("dynamic_temperature":false,"min_temp":0.5,"max_temp":2)").has_dynamic_temperature);
  EXPECT_FALSE(samplers(R"("min_temp":1,"max_temp":1)").has_dynamic_temperature);
  EXPECT_FALSE(samplers(R"("dynatemp_exponent":2)").has_dynamic_temperature);
  EXPECT_EQ(samplers(R"("dynatemp_range":0.5,"dynatemp_exponent":2)").dynatemp_exponent, 2);
  EXPECT_THAT(fault(R"("dynamic_temperature":true,"dynatemp_low":2,"dynatemp_high":1)"),
              HasSubstr("'dynatemp_high' must be a number from the low one, 2"));
}

TEST(ApiSamplers, Mirostat) {
  EXPECT_EQ(samplers(R"("mirostat_mode":2,"mirostat_tau":3,"mirostat_eta":0.5)").mirostat_tau, 3);
  EXPECT_EQ(samplers(R"("mirostat":1)").mirostat_mode, 1);
  EXPECT_EQ(samplers(R"("mirostat":true)").mirostat_mode, 2);
  for (const std::string off : {"0", "-1", "false"}) {
    EXPECT_EQ(samplers("\"mirostat_mode\":" + off + ",\"mirostat_tau\":1e9").mirostat_mode, 0) << off;
  }
  EXPECT_THAT(fault(R"("mirostat_mode":1.5)"), HasSubstr("must be 0, 1 or 2"));
  EXPECT_THAT(fault(R"("mirostat_mode":3)"), HasSubstr("mirostat_mode: "));
}

TEST(ApiSamplers, DryBreakersInEveryForm) {
  const auto breakers = [](const std::string& value) {
    return samplers("\"dry_multiplier\":0.8,\"dry_sequence_breakers\":" + value).dry_breakers;
  };
  EXPECT_THAT(breakers(R"(["\n",":"])"), ElementsAre("\n", ":"));
  EXPECT_THAT(breakers(R"("[\"\\n\", \":\"]")"), ElementsAre("\n", ":"));
  EXPECT_THAT(breakers(R"("\"\\n\", \":\"")"), ElementsAre("\n", ":"));
  EXPECT_THAT(breakers("[]"), IsEmpty());
  for (const std::string none : {"null", "\"\""})
    EXPECT_THAT(breakers(none), ElementsAre("\n", ":", "\"", "*"));
  EXPECT_THAT(fault(R"("dry_multiplier":1,"dry_sequence_breakers":"[\"x")"),
              HasSubstr("dry_sequence_breakers: "));
  EXPECT_THAT(fault(R"("dry_multiplier":1,"dry_sequence_breakers":["x",7])"),
              HasSubstr("dry_sequence_breakers[1]: "));
  // SillyTavern sends what it has in the field, also where DRY is off.
  for (const std::string value : {"\"[\\\"x\"", "7", "\"\"", "[]", "{}"}) {
    EXPECT_EQ(
        samplers("\"dry_multiplier\":0,\"dry_base\":-3,\"dry_sequence_breakers\":" + value).dry_multiplier,
        0);
  }
}

TEST(ApiSamplers, BansInEveryForm) {
  for (const std::string name : {"banned_tokens", "custom_token_bans"}) {
    EXPECT_THAT(samplers("\"" + name + "\":[1,2.0,\"3\"]").banned_tokens, ElementsAre(1, 2, 3));
    EXPECT_THAT(samplers("\"" + name + "\":\"1, 2,3\"").banned_tokens, ElementsAre(1, 2, 3));
    EXPECT_THAT(samplers("\"" + name + "\":[-1]").banned_tokens, IsEmpty());
    EXPECT_FALSE(parsed("\"" + name + "\":\"\"").samplers &&
                 !samplers("\"" + name + "\":\"\"").banned_tokens.empty());
    EXPECT_THAT(fault("\"" + name + "\":[\"word\"]"), HasSubstr(name + "[0]: "));
  }
  EXPECT_THAT(samplers(R"("bad_words":["a b","","c"])").bad_words, ElementsAre("a b", "c"));
  EXPECT_THAT(fault(R"("bad_words":["a",1])"), HasSubstr("bad_words[1]: "));
  using Bias = std::vector<std::pair<int32_t, float>>;
  EXPECT_EQ(parsed(R"("logit_bias":[[7,1.5],[3,false],[7,2]])").logit_bias,
            (Bias{{3, -INFINITY}, {7, 2.0f}}));
  EXPECT_THAT(fault(R"("logit_bias":[["word",1]])"), HasSubstr("logit_bias[0][0]: "));
}

TEST(ApiSamplers, BannedStringsAreATextOrTheLinesOfAField) {
  const auto strings = [](const std::string& value) {
    return parsed(R"("banned_strings":)" + value).banned_strings;
  };
  EXPECT_THAT(strings(R"(["a whisper","","Ä"])"), ElementsAre("a whisper", "Ä"));
  EXPECT_THAT(strings("\"shivers\""), ElementsAre("shivers"));
  for (const char* off : {"[]", "null", "\"\"", R"(["",""])"}) EXPECT_THAT(strings(off), IsEmpty()) << off;
  EXPECT_THAT(fault(R"("banned_strings":["x",1])"), HasSubstr("banned_strings[1]: "));
  EXPECT_THAT(fault(R"("banned_strings":{})"), HasSubstr("a string or a list of strings"));
  EXPECT_THAT(fault(R"("banned_strings":")" + std::string(16385, 'x') + "\""), HasSubstr("at most 16384"));
}

TEST(ApiSamplers, OrdersOfThreeServers) {
  const auto first = [](const std::string& fields) {
    const SamplerFields out = samplers(fields);
    EXPECT_TRUE(std::is_permutation(out.order.begin(), out.order.end(), kDefaultSamplerOrder.begin()));
    return std::vector<Step>(out.order.begin(), out.order.begin() + 5);
  };
  EXPECT_EQ(samplers(R"("sampler_order":[6,0,1,3,4,2,5])").order,
            (SamplerOrder{Step::kPenalties, Step::kTopK, Step::kTopA, Step::kTfs, Step::kTypicalP,
                          Step::kTopP, Step::kMinP, Step::kTemperature, Step::kSmoothing, Step::kEpsilon,
                          Step::kEta, Step::kXtc}));
  EXPECT_THAT(first(R"("sampler_order":[5,6,0])"),
              ElementsAre(Step::kTemperature, Step::kSmoothing, Step::kPenalties, Step::kTopK, Step::kTopA));
  EXPECT_THAT(first(R"("sampler_priority":["repetition_penalty","dry","min_p","xtc","quadratic_sampling"])"),
              ElementsAre(Step::kPenalties, Step::kMinP, Step::kXtc, Step::kSmoothing, Step::kTopK));
  EXPECT_THAT(first(R"("sampler_priority":"penalties\nmin_p\nxtc")"),
              ElementsAre(Step::kPenalties, Step::kMinP, Step::kXtc, Step::kTopK, Step::kTopA));
  EXPECT_THAT(
      first(R"("samplers":["top_k","typ_p","temperature"])"),
      ElementsAre(Step::kPenalties, Step::kTopK, Step::kTypicalP, Step::kTemperature, Step::kSmoothing));
  EXPECT_THAT(first(R"("samplers":"edkypmxt")"),
              ElementsAre(Step::kPenalties, Step::kTopK, Step::kTypicalP, Step::kTopP, Step::kMinP));
  EXPECT_THAT(first(R"("sampler_priority":["temperature","top_p_top_k","xtc"])"),
              ElementsAre(Step::kPenalties, Step::kTemperature, Step::kSmoothing, Step::kTopP, Step::kTopK));
  EXPECT_FALSE(samplers(R"("samplers":[])").has_order);
  EXPECT_THAT(fault(R"("sampler_order":[6,7])"), HasSubstr("sampler_order[1]: "));
  EXPECT_THAT(fault(R"("sampler_priority":["top_q"])"), HasSubstr("sampler_priority[0]: "));
  EXPECT_THAT(fault(R"("samplers":"kz")"), HasSubstr("samplers: "));
}

TEST(ApiSamplers, TheTemperatureComesFirstOrLast) {
  const auto place_of = [](const std::string& fields, Step step) {
    const SamplerFields out = samplers(fields);
    return std::find(out.order.begin(), out.order.end(), step) - out.order.begin();
  };
  EXPECT_EQ(place_of(R"("temperature_last":false)", Step::kTemperature), 1);
  EXPECT_EQ(place_of(R"("temperature_last":true)", Step::kTemperature), 9);
  EXPECT_EQ(place_of(R"("temperature_last":true,"sampler_order":[5,6,0])", Step::kTemperature), 9);
  EXPECT_EQ(place_of(R"("temperature_last":true,"sampler_order":[5,6,0])", Step::kXtc), 11);
  EXPECT_EQ(place_of(R"("temperature_last":false,"sampler_order":[6,0,5])", Step::kTemperature), 2);
}

}  // namespace troupe::api_samplers_test
