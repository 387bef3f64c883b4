// The sampler against exact distributions: the allowed tokens are computed here the slow and obvious way
// (sort everything, cut, normalise), and 200,000 draws must fit them by χ².

#include "worker/model/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <vector>

#include "kernels/philox.h"
#include "tests/worker/model/chi_squared.h"
#include "worker/model/log_softmax.h"

namespace troupe {
namespace sampler_test {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Logits of about N(0, 2²), the same on every machine.
std::vector<float> make_logits(size_t count, uint64_t seed) {
  std::vector<float> logits(count);
  for (size_t i = 0; i < count; ++i) {
    double sum = 0;
    for (uint64_t k = 0; k < 12; ++k) sum += counter_uniform(seed, i * 12 + k);
    logits[i] = static_cast<float>(2.0 * (sum - 6.0));
  }
  return logits;
}

// Temperature → top_k → top_p → min_p → softmax, by a full sort.
std::vector<double> exact_distribution(const std::vector<float>& logits, const SamplingParams& params) {
  const size_t count = logits.size();
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  size_t kept = params.top_k > 0 ? std::min(count, static_cast<size_t>(params.top_k)) : count;
  std::vector<double> p(count, 0.0);
  const auto normalise = [&] {
    double total = 0;
    for (size_t i = 0; i < kept; ++i) total += p[order[i]];
    for (size_t i = 0; i < count; ++i) p[order[i]] = i < kept ? p[order[i]] / total : 0.0;
  };
  for (size_t i = 0; i < kept; ++i) {
    p[order[i]] = std::exp((double{logits[order[i]]} - double{logits[order[0]]}) / params.temperature);
  }
  normalise();
  double mass = 0;
  for (size_t i = 0; i < kept; ++i) {
    mass += p[order[i]];
    if (mass >= params.top_p) kept = i + 1;
  }
  normalise();
  const double least = params.min_p * p[order[0]];
  while (kept > 1 && p[order[kept - 1]] < least) --kept;
  normalise();
  return p;
}

class Distribution : public testing::TestWithParam<SamplingParams> {};

TEST_P(Distribution, FitsTheExactSoftmax) {
  const std::vector<float> logits = make_logits(60, 7);
  const ChiSquared result = fit_draws(exact_distribution(logits, GetParam()), logits, GetParam());
  EXPECT_EQ(result.impossible, 0);
  EXPECT_LT(result.chi_squared, result.limit);
}

INSTANTIATE_TEST_SUITE_P(
    Sampler, Distribution,
    testing::Values(SamplingParams{.seed = 1}, SamplingParams{.temperature = 0.5f, .seed = 2},
                    SamplingParams{.temperature = 2.0f, .seed = 3}, SamplingParams{.top_k = 5, .seed = 4},
                    SamplingParams{.top_p = 0.8f, .seed = 5},
                    SamplingParams{.temperature = 1.5f, .top_p = 0.95f, .seed = 6},
                    SamplingParams{.min_p = 0.1f, .seed = 7},
                    SamplingParams{.temperature = 0.7f, .top_k = 20, .top_p = 0.9f, .seed = 8},
                    SamplingParams{.top_k = 30, .min_p = 0.05f, .seed = 9},
                    SamplingParams{
                        .temperature = 3.0f, .top_k = 40, .top_p = 0.7f, .min_p = 0.3f, .seed = 10}));

TEST(Sampler, FitDetectsAWrongTemperature) {
  const std::vector<float> logits = make_logits(60, 7);
  const ChiSquared result =
      fit_draws(exact_distribution(logits, {.temperature = 1.03f}), logits, {.seed = 1});
  EXPECT_GT(result.chi_squared, result.limit);
}

TEST(Sampler, PhiloxMatchesThePublishedVectors) {
  EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, {0, 0}),
            (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32_10({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Sampler, UniformsDependOnEveryBitOfSeedAndPosition) {
  std::set<double> seen;
  for (int bit = 0; bit < 64; ++bit) {
    seen.insert(counter_uniform(uint64_t{1} << bit, 0));
    seen.insert(counter_uniform(0, uint64_t{1} << bit));
  }
  EXPECT_EQ(seen.size(), 128u);
  EXPECT_GE(*seen.begin(), 0.0);
  EXPECT_LT(*seen.rbegin(), 1.0);
}

TEST(Sampler, SameSeedAndPositionGiveTheSameToken) {
  const std::vector<float> logits = make_logits(1000, 3);
  const SamplingParams params{.temperature = 0.9f, .top_k = 50, .top_p = 0.95f, .seed = 42};
  std::set<TokenId> tokens;
  for (uint64_t position = 0; position < 50; ++position) {
    const TokenId token = sample_token(logits, params, position);
    EXPECT_EQ(sample_token(logits, params, position), token);
    tokens.insert(token);
  }
  EXPECT_GT(tokens.size(), 5u);
}

TEST(Sampler, GreedyTakesTheLowestIdAmongEquals) {
  EXPECT_EQ(sample_token(std::vector<float>{1, 3, 3, 2}, {.temperature = 0}, 9), 1);
}

TEST(Sampler, TopOneIsGreedyAtAnyTemperature) {
  const std::vector<float> logits{1, 3, 3, 2};
  for (uint64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(sample_token(logits, {.temperature = 50, .top_k = 1}, i), 1);
    EXPECT_EQ(sample_token(logits, {.temperature = 50, .top_p = 0}, i), 1);
    EXPECT_EQ(sample_token(std::vector<float>{1, 3, 2}, {.temperature = 50, .min_p = 2}, i), 1);
  }
}

TEST(Sampler, TopKKeepsExactlyKAndTheLowestIdsAmongEquals) {
  const std::vector<float> logits(1000, 0.5f);
  std::set<TokenId> tokens;
  for (uint64_t i = 0; i < 2000; ++i) tokens.insert(sample_token(logits, {.top_k = 7}, i));
  EXPECT_EQ(tokens, (std::set<TokenId>{0, 1, 2, 3, 4, 5, 6}));
}

TEST(Sampler, NanIsNeverDrawnAndInfinityAlways) {
  for (const SamplingParams& params :
       {SamplingParams{.temperature = 0}, SamplingParams{}, SamplingParams{.top_k = 3},
        SamplingParams{.top_p = 0.99f}, SamplingParams{.min_p = 0.001f}}) {
    for (uint64_t i = 0; i < 50; ++i) {
      EXPECT_NE(sample_token(std::vector<float>{-kInf, 1, 1, -kInf, -kInf}, params, i) % 3, 0);
      EXPECT_EQ(sample_token(std::vector<float>{1, kInf, 5}, params, i), kNoDraw);
      EXPECT_EQ(sample_token(std::vector<float>{-kInf, -kInf}, params, i), kNoDraw);
      EXPECT_EQ(sample_token(std::vector<float>{5, kNan}, params, i), kNoDraw);
    }
  }
}

TEST(Sampler, ExtremeTemperaturesStayFinite) {
  const std::vector<float> logits{-1e30f, 0, 1e30f, 1};
  for (uint64_t i = 0; i < 50; ++i) {
    EXPECT_EQ(sample_token(logits, {.temperature = 1e-30f}, i), 2);
    EXPECT_EQ(sample_token(logits, {.temperature = 1e-30f, .top_p = 0.5f}, i), 2);
  }
}

TEST(Sampler, SelectsFromALargeVocabularyLikeASort) {
  const std::vector<float> logits = make_logits(50000, 11);
  for (const SamplingParams& base : {SamplingParams{.top_k = 40}, SamplingParams{.top_p = 0.3f},
                                     SamplingParams{.temperature = 3.0f, .top_p = 0.999f},
                                     SamplingParams{.temperature = 0.6f, .top_k = 9000, .top_p = 0.9f}}) {
    const std::vector<double> expected = exact_distribution(logits, base);
    SamplingParams params = base;
    for (params.seed = 0; params.seed < 200; ++params.seed) {
      EXPECT_GT(expected[static_cast<size_t>(sample_token(logits, params, 0))], 0.0);
    }
  }
}

TEST(Sampler, LogProbabilityEqualsLogSoftmax) {
  const std::vector<float> logits = make_logits(3000, 5);
  double total = 0;
  for (const float logit : logits) total += std::exp(double{logit});
  for (const TokenId token : {0, 17, 2999}) {
    EXPECT_NEAR(log_probability(logits, token), logits[static_cast<size_t>(token)] - std::log(total), 1e-6);
  }
  EXPECT_EQ(log_probability(std::vector<float>{0, -kInf}, 1), -kInf);
  EXPECT_EQ(log_probability(std::vector<float>{0, kNan}, 0), 0.0f);
  EXPECT_NEAR(log_probability(std::vector<float>{1e30f, 1e30f}, 0), std::log(0.5), 1e-6);
}

}  // namespace sampler_test
}  // namespace troupe
