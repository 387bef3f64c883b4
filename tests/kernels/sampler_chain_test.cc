// Each sampler and whole chains against float64 (ref/sampler_chain.cc, from the formulas) over thousands of
// rows, draws against the distribution, and what their definitions promise.

#include "kernels/sampler_chain.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <random>

#include "kernels/best_tokens.h"
#include "kernels/draw_weights.h"
#include "kernels/exact_math.h"
#include "kernels/ref/ref.h"
#include "tests/common/sanitized.h"
#include "tests/kernels/chain_cases.h"

namespace troupe::sampler_chain_test {

using kernel_testing::ChainCase;
using kernel_testing::ChainCases;

constexpr double kInf = std::numeric_limits<double>::infinity();

// Whether the chain leaves the tokens that float64 says, each with its probability.
bool agrees(ChainCase& c) {
  const std::vector<WeighedToken> fast = chain_tokens(c.logits, c.row());
  const std::vector<ref::ChainToken> truth = ref::chain_tokens(c.logits, c.row());
  double total = 0;
  for (const WeighedToken& token : fast) total += static_cast<double>(token.weight);
  std::map<int32_t, double> surplus;
  for (const WeighedToken& token : fast) surplus[token.id] = static_cast<double>(token.weight) / total;
  std::map<int32_t, double> allowed;  // weights are cut to integers, the best one's is 2^40
  for (const ref::ChainToken& token : truth) {
    surplus[token.id] -= token.probability;
    allowed[token.id] = 1e-4 * token.probability;
  }
  return std::all_of(surplus.begin(), surplus.end(), [&](const auto& entry) {
    return std::abs(entry.second) <= allowed[entry.first] + 1e-11;
  });
}

// A cut where one mass is the other's neighbour within single precision falls on either side, once in some
// thousand rows.
void expect_agreement(const std::function<ChainCase(size_t)>& make, const std::string& what) {
  int count = 0, wrong = 0;
  for (const size_t vocab : {size_t{1}, size_t{2}, size_t{3}, size_t{50}, size_t{1000}, size_t{7000}}) {
    for (int round = 0; round < eighth_if_sanitized(vocab > 5000 ? 16 : 240); ++round, ++count) {
      ChainCase c = make(vocab);
      wrong += agrees(c) ? 0 : 1;
    }
  }
  EXPECT_LE(wrong, count / 250) << what << ": of " << count;
}

TEST(SamplerChain, EachSamplerIsItsFormulaInFloat64) {
  ChainCases cases;
  for (size_t i = 0; i < kSamplerCount; ++i) {
    const auto sampler = static_cast<Sampler>(i);
    expect_agreement([&](size_t vocab) { return cases.single(sampler, vocab); },
                     "sampler " + std::to_string(i));
  }
}

TEST(SamplerChain, SeveralInAnyOrderAreTheirFormulasInFloat64) {
  ChainCases cases;
  expect_agreement([&](size_t vocab) { return cases.several(vocab); }, "several");
}

TEST(SamplerChain, AWrongThresholdIsSeen) {
  ChainCases cases;
  int wrong = 0;
  for (int round = 0; round < 200; ++round) {
    ChainCase c = cases.single(Sampler::kMinP, 1000);
    const std::vector<WeighedToken> fast = chain_tokens(c.logits, c.row());
    c.draw.min_p *= 1.01f;
    wrong += chain_tokens(c.logits, c.row()).size() != fast.size() ? 1 : 0;
  }
  EXPECT_GT(wrong, 5);
}

// The share of each token in 100,000 draws is its probability: chi squared over the likely ones.
TEST(SamplerChain, DrawsFitTheDistribution) {
  ChainCases cases;
  for (int round = 0; round < 4; ++round) {
    ChainCase c = cases.single(Sampler::kTypicalP, 200);
    c.draw.temperature = 1.3f;
    c.draw.top_k = 30;
    c.chain.xtc_probability = round % 2 == 0 ? 1.0f : 0.0f;
    c.chain.xtc_threshold = 0.05f;
    const std::vector<ref::ChainToken> truth = ref::chain_tokens(c.logits, c.row());
    std::map<int32_t, int> counts;
    constexpr int kDraws = 100000;
    for (int i = 0; i < kDraws; ++i) {
      c.draw.position = static_cast<uint64_t>(i);
      ++counts[draw_by_chain(c.logits, c.row())];
    }
    double sum = 0, freedom = -1, rest = kDraws;
    for (const ref::ChainToken& token : truth) {
      const double expected = token.probability * kDraws;
      if (expected < 20) continue;
      sum += std::pow(counts[token.id] - expected, 2) / expected;
      rest -= counts[token.id];
      ++freedom;
    }
    EXPECT_LT(sum, freedom + 5 * std::sqrt(2 * freedom + 1) + 5) << "round " << round;
    EXPECT_LT(rest, 0.05 * kDraws);
  }
}

TEST(SamplerChain, XtcIsRolledOnceAPositionWithItsProbability) {
  ChainCase c{{2.0f, 1.9f, 1.8f, -3.0f}, {.top_k = 3}, {}};
  c.chain.xtc_threshold = 0.1f;
  c.chain.xtc_probability = 0.3f;
  int excluded = 0;
  for (int i = 0; i < 100000; ++i) {
    c.draw.position = static_cast<uint64_t>(i);
    const std::vector<WeighedToken> tokens = chain_tokens(c.logits, c.row());
    ASSERT_TRUE(tokens.size() == 3 || (tokens.size() == 1 && tokens.front().id == 2));
    excluded += tokens.size() == 1 ? 1 : 0;
  }
  EXPECT_NEAR(excluded, 30000, 5 * std::sqrt(100000 * 0.3 * 0.7));
  c.chain.xtc_threshold = 0.51f;  // off
  c.chain.xtc_probability = 1;
  EXPECT_EQ(chain_tokens(c.logits, c.row()).size(), 3u);
}

// Surprises of the tokens drawn come to tau on the average, from any start.
TEST(SamplerChain, MirostatKeepsTheSurprise) {
  ChainCases cases;
  for (const int32_t mode : {1, 2}) {
    for (const float tau : {2.0f, 3.0f}) {
      ChainCase c{{}, {.seed = 5}, {}};
      c.chain.mirostat = mode;
      c.chain.mirostat_tau = tau;
      c.mu = first_mirostat_mu(c.chain);
      double surprise = 0;
      constexpr int kSteps = 3000;
      std::vector<float> logits(2000);
      for (size_t i = 0; i < logits.size(); ++i) logits[i] = -1.1f * std::log(static_cast<float>(i + 1));
      for (int i = 0; i < kSteps; ++i) {
        c.draw.position = static_cast<uint64_t>(i);
        const float before = c.mu;
        const int32_t id = draw_by_chain(logits, c.row());
        ASSERT_GE(id, 0);
        surprise +=
            double{c.chain.mirostat_tau} - (double{c.mu} - double{before}) / double{c.chain.mirostat_eta};
      }
      EXPECT_NEAR(surprise / kSteps, double{tau}, 0.15) << "mirostat " << mode;
    }
  }
}

// A token that is known moves the state on as the draw did: what follows is the same.
TEST(SamplerChain, KnownTokensGiveMirostatItsStateAgain) {
  ChainCases cases;
  ChainCase c = cases.single(Sampler::kTemperature, 500);
  c.chain.mirostat = 2;
  c.chain.mirostat_tau = 3;
  c.mu = first_mirostat_mu(c.chain);
  std::vector<int32_t> drawn;
  std::vector<float> states;
  for (int i = 0; i < 50; ++i) {
    c.draw.position = static_cast<uint64_t>(i);
    drawn.push_back(draw_by_chain(c.logits, c.row()));
    states.push_back(c.mu);
  }
  c.mu = first_mirostat_mu(c.chain);
  for (size_t i = 0; i < drawn.size(); ++i) {
    c.draw.position = i;
    SampleRow row = c.row();
    if (i < 30) row.known = drawn[i];
    EXPECT_EQ(draw_by_chain(c.logits, row), drawn[i]);
    EXPECT_EQ(c.mu, states[i]);
  }
}

TEST(SamplerChain, TemperatureZeroTakesTheBestWhateverIsOn) {
  ChainCases cases;
  for (int round = 0; round < 100; ++round) {
    ChainCase c = cases.several(300);
    c.draw.temperature = 0;
    const auto best = std::max_element(c.logits.begin(), c.logits.end()) - c.logits.begin();
    EXPECT_EQ(draw_by_chain(c.logits, c.row()), best);
  }
}

// Whatever numbers a request sends, logits stay numbers and every cut leaves a token that is there.
TEST(SamplerChain, ExtremeParametersLeaveATokenToDraw) {
  ChainCases cases;
  for (int round = 0; round < 4000; ++round) {
    ChainCase c = cases.several(20 + static_cast<size_t>(round % 50));
    c.draw.temperature = cases.one_of({2e-38f, 1e-36f, 1e-30f, 1e-10f, 2.0f});
    c.draw.top_p = cases.one_of({1e-6f, 0.5f, 0.9f, 1.0f});
    c.chain.typical_p = cases.one_of({1e-6f, 0.5f, 1.0f});
    c.chain.smoothing_factor = cases.one_of({0.0f, 1.0f, 100.0f});
    c.chain.smoothing_curve = cases.one_of({0.01f, 1.0f, 100.0f});
    for (float& logit : c.logits) logit *= cases.one_of({1.0f, 1e4f});
    SampleRow row = c.row();
    row.penalties.repetition = cases.one_of({0.01f, 1.1f, 10.0f});
    const std::vector<float> logits = c.logits;
    const int32_t token = draw_by_chain(logits, row);
    ASSERT_GE(token, 0) << round;
    ASSERT_LT(static_cast<size_t>(token), logits.size()) << round;
  }
}

TEST(SamplerChain, NoTokenIsDrawnWhereALogitIsNoNumber) {
  SamplerChain chain;
  SampleRow row;
  row.chain = &chain;
  const float nan = std::nanf(""), inf = static_cast<float>(kInf);
  for (const std::vector<float>& logits :
       {std::vector<float>{1, nan, 2}, {1, inf}, {-inf, -inf}, std::vector<float>(6000, nan)}) {
    EXPECT_EQ(draw_by_chain(logits, row), kNoDraw);
  }
  EXPECT_EQ(draw_by_chain(std::vector<float>{-inf, 3, -inf}, row), 1);
}

TEST(BestTokens, AreThoseOfAFullSort) {
  std::mt19937 random(3);
  for (const float grain : {0.0f, 0.5f, 40.0f}) {
    for (const size_t vocab : {1u, 16u, 17u, 600u, 5001u, 20000u}) {
      for (const size_t count : {1u, 40u, 700u, 5000u}) {
        std::normal_distribution<float> normal(0.0f, 4.0f);
        std::vector<float> logits(vocab);
        for (float& logit : logits)
          logit = grain > 0 ? std::round(normal(random) / grain) * grain : normal(random);
        logits[random() % vocab] = grain > 1 ? 1e30f : -static_cast<float>(kInf);
        std::vector<uint64_t> ranks;
        for (size_t i = 0; i < vocab; ++i) {
          if (logits[i] > -static_cast<float>(kInf))
            ranks.push_back(draw_rank(logit_key(clean_logit(logits[i])), static_cast<uint32_t>(i)));
        }
        std::sort(ranks.begin(), ranks.end(), std::greater<>());
        ranks.resize(std::min(ranks.size(), count));
        EXPECT_EQ(best_tokens(logits, count), ranks) << vocab << ", " << count << ", grain " << grain;
      }
    }
  }
}

TEST(ExactMath, IsTheLibrarysToSomeUlp) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> exponents(-690, 690);
  for (int i = 0; i < 100000; ++i) {
    const double x = exponents(random);
    EXPECT_NEAR(exact_exp(x) / std::exp(x), 1, 1e-13) << x;
    const double y = std::exp(x);
    EXPECT_NEAR(exact_log(y), std::log(y), 1e-14 * std::abs(std::log(y)) + 1e-16) << y;
  }
  EXPECT_EQ(exact_log(1), 0);
  EXPECT_EQ(exact_pow(0, 2), 0);
  EXPECT_EQ(exact_pow(3, 0), 1);
  EXPECT_NEAR(exact_pow(1.75, 8), std::pow(1.75, 8), 1e-11);
}

}  // namespace troupe::sampler_chain_test
