// The arithmetic of a draw against float64, and every host's draws against ref's full sort: the same tokens.

#include "kernels/sampling.h"

#include "kernels/draw_weights.h"
#include "tests/kernels/sample_cases.h"

namespace troupe::sampling_test {

using namespace kernel_testing;

TEST(DrawWeights, AreTheExponentialToSinglePrecision) {
  std::mt19937 random(3);
  std::uniform_real_distribution<float> logits(-30.0f, 0.0f);
  for (const float temperature : {0.2f, 0.7f, 1.0f, 1.9f}) {
    for (int i = 0; i < 20000; ++i) {
      const float logit = logits(random);
      const double truth = std::exp(double{logit} / double{temperature}) * static_cast<double>(kFullWeight);
      const auto weight = static_cast<double>(draw_weight(logit, 0.0f, draw_scale(temperature)));
      // The exponent has an error of 2^-24 of itself (two roundings), which is at most 41; the rest is the
      // polynomial's. And it is cut to an integer.
      const double relative = 2 * kFloatEpsilon * (1 + std::abs(logit / temperature)) + 3e-7;
      EXPECT_NEAR(weight, truth, relative * truth + 1) << logit << " at " << temperature;
    }
  }
}

TEST(DrawWeights, TheBestIsExactAndNoTokenIsHeavier) {
  for (const float best : {0.0f, -3.5f, 1e30f}) {
    EXPECT_EQ(draw_weight(best, best, 1.0f), kFullWeight);
    EXPECT_LE(draw_weight(std::nextafter(best, -INFINITY), best, 1.0f), kFullWeight);
    EXPECT_EQ(draw_weight(-INFINITY, best, 1.0f), 0u);
  }
}

TEST(DrawWeights, TheTargetIsTheProductsUpperHalf) {
  EXPECT_EQ(draw_target(1000, 0), 0u);
  EXPECT_EQ(draw_target(1000, uint64_t{1} << (kDrawBits - 1)), 500u);
  EXPECT_EQ(draw_target(1000, (uint64_t{1} << kDrawBits) - 1), 999u);
  const uint64_t large = (uint64_t{1} << 62) - 1;
  EXPECT_EQ(draw_target(large, (uint64_t{1} << kDrawBits) - 1), large - 512);  // large - large / 2^53, cut
  EXPECT_EQ(draw_target(large, uint64_t{3} << (kDrawBits - 2)), large / 4 * 3 + 2);
}

TEST(DrawWeights, KeysAreInTheLogitsOrderAndThereIsOneZero) {
  const float ordered[] = {-INFINITY, -1e30f, -2.0f, -1e-40f, 0.0f, 1e-40f, 0.5f, 3e38f, INFINITY};
  for (size_t i = 1; i < std::size(ordered); ++i) {
    EXPECT_LT(logit_key(ordered[i - 1]), logit_key(ordered[i])) << ordered[i];
  }
  EXPECT_EQ(logit_key(clean_logit(-0.0f)), logit_key(0.0f));
  for (const float nan : {std::nanf(""), -std::nanf("")}) {
    EXPECT_GT(best_key(nan), best_key(INFINITY));
    EXPECT_FALSE(is_drawable(best_key(nan)));
  }
  for (const float logit : {-3e38f, 0.0f, 3e38f}) EXPECT_TRUE(is_drawable(best_key(logit)));
  for (const float logit : {-INFINITY, INFINITY}) EXPECT_FALSE(is_drawable(best_key(logit)));
}

TEST(Sampling, TheCpuDrawsWhatAFullSortDraws) {
  const auto ref = make({"ref", {}});
  std::mt19937 random(5);
  for (const int threads : {1, 3}) {
    const auto cpu = make({"cpu", {.threads = threads}});
    for (const int64_t vocab : {1, 2, 3, 40, 1000, 1024, 1025, 5000}) {
      for (int round = 0; round < (kSanitized ? 3 : 30); ++round) {
        const SampleCases cases(8, vocab, random);
        EXPECT_EQ(cases.drawn_by(*cpu), cases.drawn_by(*ref)) << vocab << ", round " << round;
      }
    }
  }
}

TEST(Sampling, NothingIsDrawnThatAMaskLacks) {
  const auto ref = make({"ref", {}}), cpu = make({"cpu", {.threads = 2}});
  std::mt19937 random(7);
  for (const int64_t vocab : {1, 31, 33, 1000}) {
    const SampleCases cases(20, vocab, random);
    const std::vector<int32_t> drawn = cases.drawn_under_masks(*cpu);
    EXPECT_EQ(cases.drawn_under_masks(*ref), drawn) << vocab;
    EXPECT_EQ(drawn[3], kNoDraw);
  }
}

// Rows with chains of samplers beside others, in any number of threads: each as by itself.
TEST(Sampling, AChainHangsOnNoOtherRow) {
  const auto one = make({"cpu", {.threads = 1}}), three = make({"cpu", {.threads = 3}});
  std::mt19937 random(6);
  for (const int64_t vocab : {1, 3, 1000, 9000}) {
    for (int round = 0; round < (kSanitized ? 2 : 10); ++round) {
      const SampleCases cases(24, vocab, random);
      const std::vector<int32_t> drawn = cases.drawn_by_chains(*one);
      EXPECT_EQ(cases.drawn_by_chains(*three), drawn) << vocab << ", round " << round;
      const std::vector<int32_t> plain = cases.drawn_by(*one);
      for (size_t s = 0; s < drawn.size(); s += 6) EXPECT_EQ(drawn[s], plain[s]);
      if (vocab == 9000) {
        EXPECT_NE(drawn, plain);
      }
    }
  }
}

// A row that softmax cannot make a distribution of, and no other row of its batch.
TEST(Sampling, NoTokenIsDrawnWhereALogitIsNoNumber) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::vector<float>> rows = {{1, 2, 3},
                                                {1, kNan, 3},
                                                {-kNan, 2, 3},
                                                {1, 2, INFINITY},
                                                {-INFINITY, 2, -1},
                                                {-INFINITY, kNan, -1},
                                                {kNan, kNan, kNan},
                                                {-INFINITY, -INFINITY, -INFINITY},
                                                {-3e38f, -3e38f, 3e38f}};
  const std::vector<int32_t> best = {2, kNoDraw, kNoDraw, kNoDraw, 1, kNoDraw, kNoDraw, kNoDraw, 2};
  for (const char* backend : {"ref", "cpu"}) {
    const auto made = make({backend, {}});
    for (const DrawParams& draw :
         {DrawParams{.temperature = 0}, DrawParams{.top_k = 1}, DrawParams{.top_p = 0},
          DrawParams{.temperature = 1e-4f}, DrawParams{.min_p = 1}}) {
      std::vector<float> logits;
      for (const auto& row : rows) logits.insert(logits.end(), row.begin(), row.end());
      const std::vector<SampleRow> wanted(rows.size(), SampleRow{.draw = draw});
      std::vector<int32_t> out(rows.size(), 7);
      const auto count = static_cast<int64_t>(rows.size());
      made->sample({Tensor::make(logits.data(), DType::kFloat32, {count, 3}), wanted,
                    Tensor::make(out.data(), DType::kInt32, {count})});
      EXPECT_EQ(out, best) << backend;
    }
  }
}

TEST(Sampling, EditsAreWrittenBack) {
  const auto cpu = make({"cpu", {}});
  std::vector<float> logits{1, 2, -3, 4};
  const std::vector<LogitEdit> edits{{0, -1, 0.5f}, {1, 0, 0}, {2, 0, 0}, {3, 2, 0}};
  const SampleRow row{.draw = {.temperature = 0}, .penalties = {2.0f, 0.25f, 0.125f}, .edits = edits};
  int32_t token = -1;
  cpu->sample({Tensor::make(logits.data(), DType::kFloat32, {1, 4}),
               {&row, 1},
               Tensor::make(&token, DType::kInt32, {1})});
  EXPECT_EQ(logits, (std::vector<float>{1.5f, 1, -6, 1.5f}));
  EXPECT_EQ(token, 0);
}

// Whether it was in the answer, in the prompt alone, biased, or nowhere.
TEST(Sampling, ATokenThatIsNotKnownYetCountsAsIfItWere) {
  const auto cpu = make({"cpu", {}});
  const std::vector<LogitEdit> before{{0, -1, 0.5f}, {1, 0, 0}, {2, 3, 0}};
  for (int32_t last = 0; last < 4; ++last) {
    std::vector<LogitEdit> after = before;
    if (last == 3) after.push_back({3, 0, 0});
    LogitEdit& own = after[static_cast<size_t>(last)];
    own.emitted_count = std::max(own.emitted_count, 0) + 1;
    const std::vector<int32_t> drawn{9, last};
    SampleRow row{.draw = {.temperature = 0}, .penalties = {2.0f, 0.25f, 0.125f}, .edits = before};
    row.last_drawn = 1;
    std::vector<float> unknown{1.0f, 2.0f, -3.0f, 4.0f, 5.0f}, known = unknown;
    int32_t token = -1;
    const Tensor out = Tensor::make(&token, DType::kInt32, {1});
    cpu->sample({Tensor::make(unknown.data(), DType::kFloat32, {1, 5}),
                 {&row, 1},
                 out,
                 Tensor::make(const_cast<int32_t*>(drawn.data()), DType::kInt32, {2})});
    row.edits = after;
    row.last_drawn = -1;
    cpu->sample({Tensor::make(known.data(), DType::kFloat32, {1, 5}), {&row, 1}, out});
    EXPECT_EQ(unknown, known) << last;
  }
}

TEST(SamplingDeathTest, ATokenOfNoPlaceNamesIt) {
  const auto cpu = make({"cpu", {}});
  std::vector<float> logits(4);
  std::vector<int32_t> tokens(2);
  SampleRow row;
  row.last_drawn = 2;
  const Tensor rows = Tensor::make(logits.data(), DType::kFloat32, {1, 4});
  const Tensor out = Tensor::make(tokens.data(), DType::kInt32, {1});
  EXPECT_DEATH(cpu->sample({rows, {&row, 1}, out}), "sample: last_drawn holds 2");
  EXPECT_DEATH(cpu->sample({rows, {&row, 1}, out, out}), "drawn is out");
}

TEST(SamplingDeathTest, AnEditOfNoTokenNamesIt) {
  const auto cpu = make({"cpu", {}});
  std::vector<float> logits(4);
  const LogitEdit edit{4, 0, 0};
  const SampleRow row{.draw = {}, .penalties = {}, .edits = {&edit, 1}};
  int32_t token = -1;
  EXPECT_DEATH(cpu->sample({Tensor::make(logits.data(), DType::kFloat32, {1, 4}),
                            {&row, 1},
                            Tensor::make(&token, DType::kInt32, {1})}),
               "sample: edits holds 4");
}

}  // namespace troupe::sampling_test
