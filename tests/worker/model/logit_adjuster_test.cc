// Bias and penalties against Transformers' processors (tests/fixtures/make_sampling_goldens.py): the adjusted
// logits to the bit, and the draws from them by χ².

#include "worker/model/logit_adjuster.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/json/json.h"
#include "tests/worker/model/chi_squared.h"
#include "worker/model/log_softmax.h"

namespace troupe {
namespace logit_adjuster_test {

constexpr int kDraws = 60000;

struct Golden {
  SamplingParams params;
  std::vector<TokenId> prompt, output;
  std::vector<float> logits, adjusted;
  std::vector<double> probabilities, log_softmax;
};

template <typename T>
std::vector<T> numbers_of(const bj::value& list) {
  std::vector<T> numbers;
  for (const bj::value& item : list.as_array()) numbers.push_back(item.to_number<T>());
  return numbers;
}

Golden read_golden(const bj::value& item) {
  Golden golden;
  const auto& settings = item.at("settings").as_object();
  const auto set = [&settings](const char* name, auto& out) {
    if (const bj::value* value = settings.if_contains(name))
      out = value->to_number<std::decay_t<decltype(out)>>();
  };
  SamplingParams& p = golden.params;
  set("repetition_penalty", p.repetition_penalty);
  set("presence_penalty", p.presence_penalty);
  set("frequency_penalty", p.frequency_penalty);
  set("temperature", p.temperature);
  set("top_k", p.top_k);
  set("top_p", p.top_p);
  set("min_p", p.min_p);
  for (const auto& [id, bias] : item.at("logit_bias").as_object()) {
    p.logit_bias.emplace_back(std::stoi(std::string(id)), bias.to_number<float>());
  }
  golden.prompt = numbers_of<TokenId>(item.at("prompt"));
  golden.output = numbers_of<TokenId>(item.at("output"));
  golden.logits = numbers_of<float>(item.at("logits"));
  golden.adjusted = numbers_of<float>(item.at("adjusted"));
  golden.probabilities = numbers_of<double>(item.at("probabilities"));
  golden.log_softmax = numbers_of<double>(item.at("log_softmax"));
  return golden;
}

std::vector<Golden> read_goldens() {
  std::vector<Golden> goldens;
  const auto json = read_json_file(TROUPE_SOURCE_DIR "/tests/fixtures/sampling_golden.json");
  EXPECT_TRUE(json.ok()) << json.status();
  if (!json.ok()) return goldens;
  for (const bj::value& item : json->as_array()) goldens.push_back(read_golden(item));
  return goldens;
}

std::vector<float> adjusted(const Golden& golden) {
  std::vector<float> logits = golden.logits;
  const auto adjuster = LogitAdjuster::make(golden.params, golden.prompt);
  EXPECT_NE(adjuster, nullptr);
  if (adjuster == nullptr) return logits;
  for (const TokenId token : golden.output) adjuster->add_emitted(token);
  edit_logits(logits, {.draw = {}, .penalties = adjuster->penalties(), .edits = adjuster->edits(0)});
  return logits;
}

TEST(LogitAdjuster, LogitsEqualTransformersToTheBit) {
  const auto goldens = read_goldens();
  ASSERT_EQ(goldens.size(), 12u);
  for (size_t c = 0; c < goldens.size(); ++c) EXPECT_EQ(adjusted(goldens[c]), goldens[c].adjusted) << c;
}

TEST(LogitAdjuster, DrawsFitTransformersProbabilities) {
  const auto goldens = read_goldens();
  for (size_t c = 0; c < goldens.size(); ++c) {
    const ChiSquared result =
        fit_draws(goldens[c].probabilities, adjusted(goldens[c]), goldens[c].params, kDraws);
    EXPECT_EQ(result.impossible, 0) << c;
    EXPECT_LT(result.chi_squared, result.limit) << c;
  }
}

TEST(LogitAdjuster, DrawsWithoutPenaltiesDoNotFit) {
  const auto goldens = read_goldens();
  for (size_t c = 0; c < goldens.size(); ++c) {
    const ChiSquared result =
        fit_draws(goldens[c].probabilities, goldens[c].logits, goldens[c].params, kDraws);
    EXPECT_TRUE(result.impossible > 0 || result.chi_squared > result.limit) << c;
  }
}

TEST(LogitAdjuster, LogSoftmaxOfRawLogitsEqualsTorch) {
  for (const Golden& golden : read_goldens()) {
    const LogSoftmax softmax(golden.logits);
    for (size_t i = 0; i < golden.logits.size(); ++i) {
      EXPECT_NEAR(softmax.of(static_cast<TokenId>(i)), golden.log_softmax[i], 1e-6);
    }
  }
}

TEST(LogitAdjuster, NeutralParametersMakeNoAdjuster) {
  EXPECT_EQ(LogitAdjuster::make({}, std::vector<TokenId>{1, 2}), nullptr);
}

TEST(LogitAdjuster, PresenceAndFrequencyIgnoreThePrompt) {
  SamplingParams params;
  params.presence_penalty = 1;
  params.frequency_penalty = 0.5f;
  const auto adjuster = LogitAdjuster::make(params, std::vector<TokenId>{0, 1});
  std::vector<float> logits{1, 1, 1, 1};
  edit_logits(logits, {.draw = {}, .penalties = adjuster->penalties(), .edits = adjuster->edits(0)});
  EXPECT_EQ(logits, (std::vector<float>{1, 1, 1, 1}));
  for (const TokenId token : {1, 2, 2}) adjuster->add_emitted(token);
  edit_logits(logits, {.draw = {}, .penalties = adjuster->penalties(), .edits = adjuster->edits(0)});
  EXPECT_EQ(logits, (std::vector<float>{1, -0.5f, -1, 1}));
}

// Logits that were all 1, as an adjuster leaves them.
std::vector<float> ones_by(LogitAdjuster& adjuster, uint64_t position = 0) {
  std::vector<float> logits(8, 1.0f);
  edit_logits(logits, {.draw = {}, .penalties = adjuster.penalties(), .edits = adjuster.edits(position)});
  return logits;
}

// koboldcpp's window: full in its newer half, less in the older one; exllama's decay before it.
TEST(LogitAdjuster, TheRepetitionPenaltyHasARangeASlopeAndADecay) {
  SamplingParams params;
  params.repetition_penalty = 2;
  params.history.repetition_range = 2;
  const std::vector<TokenId> prompt{0, 1, 2, 3, 4, 5};
  EXPECT_EQ(ones_by(*LogitAdjuster::make(params, prompt)), (std::vector<float>{1, 1, 1, 1, .5f, .5f, 1, 1}));
  params.history.repetition_slope = 0.25f;
  params.history.repetition_range = 4;
  const auto sloped = LogitAdjuster::make(params, prompt);
  EXPECT_TRUE(sloped->needs_last());
  EXPECT_EQ(ones_by(*sloped), (std::vector<float>{1, 1, .8f, .8f, .5f, .5f, 1, 1}));
  sloped->add_emitted(0);  // it is the newest now, and 2 is out
  EXPECT_EQ(ones_by(*sloped), (std::vector<float>{.5f, 1, 1, .8f, .8f, .5f, 1, 1}));
  params.history.repetition_slope = 1;
  params.history.repetition_range = 2;
  params.history.repetition_decay = 2;
  EXPECT_EQ(ones_by(*LogitAdjuster::make(params, prompt)),
            (std::vector<float>{1, 1, 1 / 1.5f, .5f, .5f, .5f, 1, 1}));
  params.history = {};
  EXPECT_FALSE(LogitAdjuster::make(params, prompt)->needs_last());
}

TEST(LogitAdjuster, BansAreOfTokensSequencesAndShortAnswers) {
  constexpr float kBan = -std::numeric_limits<float>::infinity();
  SamplingParams params;
  params.history.banned = {7};
  params.history.banned_sequences = {{1, 2}, {3, 1, 4}};
  params.history.min_tokens = 2;
  params.history.banned_early = {5};
  const auto adjuster = LogitAdjuster::make(params, std::vector<TokenId>{3});
  EXPECT_EQ(ones_by(*adjuster, 0), (std::vector<float>{1, 1, 1, 1, 1, kBan, 1, kBan}));
  adjuster->add_emitted(1);
  EXPECT_EQ(ones_by(*adjuster, 1), (std::vector<float>{1, 1, kBan, 1, kBan, kBan, 1, kBan}));
  adjuster->add_emitted(4);
  EXPECT_EQ(ones_by(*adjuster, 2), (std::vector<float>{1, 1, 1, 1, 1, 1, 1, kBan}));
}

TEST(LogitAdjuster, DryTakesFromWhatWouldRepeat) {
  SamplingParams params;
  params.history.dry = {.multiplier = 0.5f, .base = 2, .allowed_length = 1};
  params.logit_bias = {{3, 0.25f}};
  const auto adjuster = LogitAdjuster::make(params, std::vector<TokenId>{1, 2, 3, 6, 1, 2});
  EXPECT_EQ(ones_by(*adjuster), (std::vector<float>{1, 1, 1, .25f, 1, 1, 1, 1}));  // 1 + .25 - .5 · 2
  adjuster->add_emitted(5);
  EXPECT_EQ(ones_by(*adjuster), (std::vector<float>{1, 1, 1, 1.25f, 1, 1, 1, 1}));
}

TEST(LogSoftmaxRow, BestComeFirstWithLowestIdAmongEquals) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> logits{1, 3, nan, 3, 2, 3};
  const auto best = LogSoftmax(logits).best(4);
  ASSERT_EQ(best.size(), 4u);
  EXPECT_EQ(best[0].id, 1);
  EXPECT_EQ(best[1].id, 3);
  EXPECT_EQ(best[2].id, 5);
  EXPECT_EQ(best[3].id, 4);
  for (const RankedToken& token : best) EXPECT_EQ(token.logprob, log_probability(logits, token.id));
  EXPECT_EQ(LogSoftmax(logits).best(20).size(), logits.size());
  EXPECT_TRUE(LogSoftmax(logits).best(0).empty());
}

TEST(Choices, FirstKeepsThePlainSeedAndOthersDeriveTheirs) {
  EXPECT_EQ(choice_seed(5, 0), 5u);
  std::vector<uint64_t> seeds;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    for (uint32_t choice = 0; choice < 16; ++choice) seeds.push_back(choice_seed(seed, choice));
  }
  std::sort(seeds.begin(), seeds.end());
  EXPECT_EQ(std::unique(seeds.begin(), seeds.end()), seeds.end());
}

}  // namespace logit_adjuster_test
}  // namespace troupe
