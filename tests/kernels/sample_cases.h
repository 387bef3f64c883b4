#pragma once

// Rows of logits to draw from, and how, made to hit the edges: ties, NaN, infinities, both zeros, flat rows,
// one token; every cut by itself and together; edits of tokens seen, seen in the prompt alone, biased.

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/sampler_chain.h"
#include "tests/kernels/kernel_testing.h"

namespace troupe::kernel_testing {

class SampleCases {
 public:
  SampleCases(int64_t rows, int64_t vocab, std::mt19937& random)
      : random_(random), logits_(DType::kFloat32, {rows, vocab}), rows_(static_cast<size_t>(rows)) {
    edits_.resize(rows_.size());
    for (int64_t i = 0; i < kDrawnCount; ++i) drawn_.push_back(token(vocab));
    for (int64_t s = 0; s < rows; ++s) {
      fill_logits(s, vocab);
      fill_row(static_cast<size_t>(s), vocab);
    }
  }

  // A copy of the logits, as sample() changes them.
  OwnedTensor logits() const { return logits_; }
  const std::vector<SampleRow>& rows() const { return rows_; }
  // The tokens that the step before drew.
  Tensor drawn() const {
    return Tensor::make(const_cast<int32_t*>(drawn_.data()), DType::kInt32, {kDrawnCount});
  }
  std::vector<int32_t> drawn_by(Backend& backend) const { return draw(backend, rows_); }
  // The same rows with a chain of samplers each, but for every sixth: of another kind by its number.
  std::vector<int32_t> drawn_by_chains(Backend& backend) const {
    std::vector<SamplerChain> chains(rows_.size());
    std::vector<float> states(rows_.size(), 6.0f);
    std::vector<SampleRow> rows = rows_;
    for (size_t s = 0; s < rows.size(); ++s) {
      SamplerChain& chain = chains[s];
      if (s % 6 == 0) continue;
      if (s % 6 == 1) chain.typical_p = 0.7f;
      if (s % 6 == 2) chain.xtc_probability = 0.5f;
      if (s % 6 == 3) chain.mirostat = 2;
      if (s % 6 == 4) chain.tfs = 0.9f, chain.smoothing_factor = 0.4f;
      if (s % 6 == 5) std::swap(chain.order[0], chain.order[1]);  // penalties behind top_k
      if (chain.has_late_penalties()) rows[s].last_drawn = -1;
      rows[s].chain = &chain;
      rows[s].mirostat_mu = &states[s];
    }
    return draw(backend, rows);
  }
  // The same rows under masks, every second of some tokens, the others of two in three; of the fourth nothing
  // is left. Every fifth has a chain, too.
  std::vector<int32_t> drawn_under_masks(Backend& backend) const {
    const auto words = static_cast<size_t>((logits_.view().shape[1] + 31) / 32);
    std::vector<std::vector<uint32_t>> masks(rows_.size(), std::vector<uint32_t>(words));
    std::vector<SampleRow> rows = rows_;
    SamplerChain chain;
    chain.typical_p = 0.7f;
    for (size_t s = 0; s < rows.size(); ++s) {
      for (size_t w = 0; w < words; ++w) {
        const auto bits = static_cast<uint32_t>(counter_bits(s, w));
        masks[s][w] = s == 3 ? 0 : s % 2 == 0 ? bits & bits >> 7 & bits >> 13 : bits | bits << 9;
      }
      rows[s].mask = masks[s];
      if (s % 5 == 4) rows[s].chain = &chain;
    }
    std::vector<int32_t> tokens = draw(backend, rows);
    for (size_t s = 0; s < rows.size(); ++s) {
      const int32_t token = tokens[s];
      EXPECT_TRUE(token == kNoDraw || (masks[s][static_cast<size_t>(token) / 32] >> (token % 32) & 1) != 0)
          << s;
    }
    return tokens;
  }

 private:
  static constexpr int64_t kDrawnCount = 7;

  std::vector<int32_t> draw(Backend& backend, const std::vector<SampleRow>& rows) const {
    OwnedTensor logits = logits_;
    std::vector<int32_t> out(rows.size(), -1);
    const auto count = static_cast<int64_t>(rows.size());
    backend.sample({logits.view(), rows, Tensor::make(out.data(), DType::kInt32, {count}), drawn()});
    return out;
  }

  template <typename T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[random_() % values.size()];
  }
  int32_t token(int64_t vocab) { return static_cast<int32_t>(random_() % static_cast<uint64_t>(vocab)); }

  void fill_logits(int64_t s, int64_t vocab) {
    const float deviation = one_of({0.0f, 0.3f, 2.0f, 8.0f});
    const float grain = one_of({0.0f, 0.0f, 0.25f, 2.0f});  // of rounding: ties
    std::normal_distribution<float> normal(0.0f, 1.0f);
    for (int64_t v = 0; v < vocab; ++v) {
      float logit = normal(random_) * deviation;
      if (grain > 0) logit = std::round(logit / grain) * grain;
      set_element(logits_.view(), s * vocab + v, logit);
    }
    constexpr float kInf = std::numeric_limits<float>::infinity();
    for (int i = one_of({0, 0, 3}); i > 0; --i) {
      set_element(logits_.view(), s * vocab + token(vocab),
                  one_of({std::nanf(""), -kInf, -0.0f, 1e30f, -1e30f, kInf}));
    }
    if (random_() % 20 != 0) return;
    for (int64_t v = 0; v < vocab; ++v) {
      set_element(logits_.view(), s * vocab + v, one_of({std::nanf(""), -kInf}));
    }
  }

  void fill_row(size_t s, int64_t vocab) {
    SampleRow& row = rows_[s];
    row.draw = {.temperature = one_of({1.0f, 1.0f, 0.7f, 3.0f, 0.0f, 1e-30f}),
                .top_k = one_of({0, 0, 1, 7, 40, static_cast<int32_t>(vocab / 2), 1 << 30}),
                .top_p = one_of({1.0f, 1.0f, 0.9f, 0.5f, 0.999f, 0.0f}),
                .min_p = one_of({0.0f, 0.0f, 0.05f, 0.5f, 2.0f}),
                .seed = random_(),
                .position = random_() % 1000};
    if (random_() % 3 != 0) return;
    row.penalties = {one_of({1.0f, 1.3f}), one_of({0.0f, 0.8f}), one_of({0.0f, 0.4f})};
    std::vector<int32_t> tokens(static_cast<size_t>(vocab));
    std::iota(tokens.begin(), tokens.end(), 0);
    std::shuffle(tokens.begin(), tokens.end(), random_);
    tokens.resize(static_cast<size_t>(std::min<int64_t>(vocab, one_of({1, 5, 900}))));
    for (const int32_t id : tokens)
      edits_[s].push_back(
          {id, one_of({-1, 0, 1, 6}), one_of({0.0f, -3.0f, 2.5f}), one_of({0.0f, 0.0f, 1.7f})});
    row.edits = edits_[s];
    if (random_() % 2 != 0) return;
    row.last_drawn = static_cast<int32_t>(random_() % kDrawnCount);
    // Sometimes of a token that has an edit already.
    if (random_() % 2 == 0) drawn_[static_cast<size_t>(row.last_drawn)] = tokens.front();
  }

  std::mt19937& random_;
  OwnedTensor logits_;
  std::vector<SampleRow> rows_;
  std::vector<std::vector<LogitEdit>> edits_;
  std::vector<int32_t> drawn_;
};

}  // namespace troupe::kernel_testing
