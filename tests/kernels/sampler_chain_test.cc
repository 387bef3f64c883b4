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

namespace troupe::sampler_chain_test {

constexpr double kInf = std::numeric_limits<double>::infinity();

struct Case {
  std::vector<float> logits;
  DrawParams draw;
  SamplerChain chain;
  float mu = 0;
  std::vector<LogitEdit> edits = {};

  SampleRow row() {
    SampleRow row{.draw = draw, .penalties = {1.2f, 0.3f, 0.1f}, .edits = edits};
    row.chain = &chain;
    row.mirostat_mu = &mu;
    return row;
  }
};

class Cases {
 public:
  template <typename T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[random_() % values.size()];
  }
  double uniform(double low, double high) {
    return low + (high - low) * std::uniform_real_distribution<double>()(random_);
  }
  float real(double low, double high) { return static_cast<float>(uniform(low, high)); }

  std::vector<float> logits(size_t vocab) {
    std::normal_distribution<float> normal(0.0f, one_of({0.5f, 1.5f, 3.0f, 6.0f}));
    std::vector<float> row(vocab);
    for (float& logit : row) logit = normal(random_);
    return row;
  }
  // One sampler by itself.
  Case single(Sampler sampler, size_t vocab) {
    Case c{logits(vocab), {.seed = random_(), .position = random_() % 500}, {}};
    switch_on(sampler, c);
    return c;
  }
  // Several, in any order.
  Case several(size_t vocab) {
    Case c{logits(vocab), {.seed = random_(), .position = random_() % 500}, {}};
    for (size_t i = 0; i < kSamplerCount; ++i) {
      if (random_() % 3 == 0) switch_on(static_cast<Sampler>(i), c);
    }
    if (random_() % 2 == 0) std::shuffle(c.chain.order.begin(), c.chain.order.end(), random_);
    if (random_() % 5 == 0) {
      c.chain.mirostat = one_of({1, 2});
      c.chain.mirostat_tau = real(1, 8);
      c.mu = real(1, 12);
    }
    for (int32_t id = 0; id < std::min<int32_t>(static_cast<int32_t>(vocab), 40); ++id)
      c.edits.push_back({id, one_of({-1, 0, 2}), 0, one_of({0.0f, 1.5f})});
    return c;
  }

 private:
  void switch_on(Sampler sampler, Case& c) {
    SamplerChain& chain = c.chain;
    switch (sampler) {
      case Sampler::kPenalties:
        return;  // where the order says so
      case Sampler::kTopK:
        c.draw.top_k = one_of({1, 3, 40, 6000});
        return;
      case Sampler::kTopA:
        chain.top_a = real(0.01, 1);
        return;
      case Sampler::kTfs:
        chain.tfs = real(0.3, 0.99);
        return;
      case Sampler::kTypicalP:
        chain.typical_p = real(0.1, 0.99);
        return;
      case Sampler::kEpsilon:
        chain.epsilon = real(1e-4, 9e-3);
        return;
      case Sampler::kEta:
        chain.eta = real(1e-4, 9e-3);
        return;
      case Sampler::kTopP:
        c.draw.top_p = real(0.1, 0.99);
        return;
      case Sampler::kMinP:
        c.draw.min_p = real(0.01, 0.5);
        return;
      case Sampler::kTemperature:
        c.draw.temperature = real(0.3, 2.5);
        if (random_() % 2 == 0) return;
        chain.has_dynamic_temperature = true;
        chain.dynatemp_low = real(0, 1);
        chain.dynatemp_high = real(1, 3);
        chain.dynatemp_exponent = real(0.3, 3);
        return;
      case Sampler::kSmoothing:
        chain.smoothing_factor = real(0.05, 2);
        chain.smoothing_curve = one_of({1.0f, 1.0f, 2.5f, 4.5f});
        return;
      case Sampler::kXtc:
        chain.xtc_probability = real(0.2, 1);
        chain.xtc_threshold = one_of({0.02f, 0.1f, 0.3f, 0.6f});
        return;
    }
  }

  std::mt19937 random_{11};
};

// Whether the chain leaves the tokens that float64 says, each with its probability.
bool agrees(Case& c) {
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
void expect_agreement(const std::function<Case(size_t)>& make, const std::string& what) {
  int count = 0, wrong = 0;
  for (const size_t vocab : {size_t{1}, size_t{2}, size_t{3}, size_t{50}, size_t{1000}, size_t{7000}}) {
    for (int round = 0; round < eighth_if_sanitized(vocab > 5000 ? 16 : 240); ++round, ++count) {
      Case c = make(vocab);
      wrong += agrees(c) ? 0 : 1;
    }
  }
  EXPECT_LE(wrong, count / 250) << what << ": of " << count;
}

TEST(SamplerChain, EachSamplerIsItsFormulaInFloat64) {
  Cases cases;
  for (size_t i = 0; i < kSamplerCount; ++i) {
    const auto sampler = static_cast<Sampler>(i);
    expect_agreement([&](size_t vocab) { return cases.single(sampler, vocab); },
                     "sampler " + std::to_string(i));
  }
}

TEST(SamplerChain, SeveralInAnyOrderAreTheirFormulasInFloat64) {
  Cases cases;
  expect_agreement([&](size_t vocab) { return cases.several(vocab); }, "several");
}

TEST(SamplerChain, AWrongThresholdIsSeen) {
  Cases cases;
  int wrong = 0;
  for (int round = 0; round < 200; ++round) {
    Case c = cases.single(Sampler::kMinP, 1000);
    const std::vector<WeighedToken> fast = chain_tokens(c.logits, c.row());
    c.draw.min_p *= 1.01f;
    wrong += chain_tokens(c.logits, c.row()).size() != fast.size() ? 1 : 0;
  }
  EXPECT_GT(wrong, 5);
}

// The share of each token in 100,000 draws is its probability: chi squared over the likely ones.
TEST(SamplerChain, DrawsFitTheDistribution) {
  Cases cases;
  for (int round = 0; round < 4; ++round) {
    Case c = cases.single(Sampler::kTypicalP, 200);
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
  Case c{{2.0f, 1.9f, 1.8f, -3.0f}, {.top_k = 3}, {}};
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
  Cases cases;
  for (const int32_t mode : {1, 2}) {
    for (const float tau : {2.0f, 3.0f}) {
      Case c{{}, {.seed = 5}, {}};
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
  Cases cases;
  Case c = cases.single(Sampler::kTemperature, 500);
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
  Cases cases;
  for (int round = 0; round < 100; ++round) {
    Case c = cases.several(300);
    c.draw.temperature = 0;
    const auto best = std::max_element(c.logits.begin(), c.logits.end()) - c.logits.begin();
    EXPECT_EQ(draw_by_chain(c.logits, c.row()), best);
  }
}

// Whatever numbers a request sends, logits stay numbers and every cut leaves a token that is there.
TEST(SamplerChain, ExtremeParametersLeaveATokenToDraw) {
  Cases cases;
  for (int round = 0; round < 4000; ++round) {
    Case c = cases.several(20 + static_cast<size_t>(round % 50));
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
