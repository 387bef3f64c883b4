// The choice of a product's implementation: with a library and a clock of the test's own.

#include <algorithm>
#include <map>

#include "kernels/cuda/gemm/gemm.h"
#include "kernels/rows_bucket.h"
#include "tests/common/temp_dir.h"
#include "tests/kernels/cuda/cuda_testing.h"

namespace troupe::products_choice_test {

using namespace cuda_testing;

// Three algorithms, of which each multiplies as plain tiles do; the third takes no more than 100 rows.
class FakeLibrary final : public cuda::LibraryGemm {
 public:
  // `launched` receives each algorithm.
  explicit FakeLibrary(std::vector<int>* launched) : launched_(launched) {}
  std::string version() const override { return "fake 1"; }
  std::vector<int> algorithms(const cuda::ProductOperands&, int count) override {
    std::vector<int> all{0, 1, 2};
    all.resize(std::min<size_t>(all.size(), static_cast<size_t>(count)));
    return all;
  }
  std::string text_of(int algorithm) const override { return "number " + std::to_string(algorithm); }
  int algorithm_of(const std::string& text) override {
    for (int i = 0; i < 3; ++i) {
      if (text_of(i) == text) return i;
    }
    return -1;
  }
  bool launch(const cuda::LaunchStream& stream, const cuda::ProductOperands& operands,
              int algorithm) override {
    if (algorithm == 2 && operands.x.shape[0] > 100) return false;
    launched_->push_back(algorithm);
    cuda::tiled_gemm(stream, operands);
    return true;
  }

 private:
  std::vector<int>* launched_;
};

class ProductsChoice : public testing::Test {
 protected:
  // As the seconds' algorithms.
  static constexpr int kRows = -1, kSwapAb = -2;

  // Seconds by the algorithm that was launched last.
  std::unique_ptr<cuda::Products> make_products(std::map<int, double> seconds, bool has_swap_ab = false) {
    std::unique_ptr<cuda::SwapAb> swap_ab;
    if (has_swap_ab) swap_ab = *cuda::SwapAb::make();
    return std::make_unique<cuda::Products>(
        nullptr, cuda::Products::Others{std::make_unique<FakeLibrary>(&launched_), std::move(swap_ab)},
        cuda::Products::Options{.device = "a device",
                                .cuda = {.measures = true, .tune_file = dir_.path() + "/tuning"},
                                .timer = [this, seconds](const std::function<void()>& launch) {
                                  const size_t before = launched_.size();
                                  launch();
                                  if (launched_.size() > before) return seconds.at(launched_.back());
                                  return seconds.at(is_swap_ab_last() ? kSwapAb : kRows);
                                }});
  }
  static bool is_swap_ab_last() { return emulated::last_launch().block.x == 288; }
  // The algorithms launched for it, the measurements included.
  std::vector<int> multiply(cuda::Products& products, int64_t rows, bool accumulate = false) {
    launched_.clear();
    const auto x = OwnedTensor::random(DType::kBFloat16, {rows, 64}, random_);
    OwnedTensor out(DType::kFloat32, {rows, 48});
    for (int64_t i = 0; i < out.elements(); ++i) set_element(out.view(), i, 1.0f);
    const cuda::ProductOperands operands{x.view(), weight_.view(), out.view(), accumulate};
    products.multiply(nullptr, products.choose(operands), operands);
    double truth = accumulate ? 1 : 0;
    for (int64_t k = 0; k < 64; ++k) truth += x.at(k) * weight_.at(k);
    EXPECT_NEAR(out.at(0), truth, 1e-3);
    return launched_;
  }

  TempDir dir_;
  std::mt19937 random_{4};
  OwnedTensor weight_ = OwnedTensor::random(DType::kBFloat16, {48, 64}, random_);
  std::vector<int> launched_;
};

TEST_F(ProductsChoice, TheFastestIsTakenForTheWholeBucket) {
  const auto products = make_products({{-1, 9}, {0, 3}, {1, 1}, {2, 2}});
  EXPECT_EQ(multiply(*products, 64), (std::vector<int>{0, 1, 2, 1})) << "each once, then the fastest";
  EXPECT_EQ(multiply(*products, 33), (std::vector<int>{1}));
  EXPECT_EQ(products->measured_count(), 1);
  EXPECT_EQ(multiply(*products, 65), (std::vector<int>{0, 1, 2, 1})) << "another bucket";
  EXPECT_EQ(products->measured_count(), 2);
}

TEST_F(ProductsChoice, TheOwnKernelIsMeasuredAmongThemWhereItTakesTheShape) {
  const auto products = make_products({{-1, 1}, {0, 3}, {1, 4}, {2, 2}});
  EXPECT_EQ(multiply(*products, 8), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(multiply(*products, 7), std::vector<int>());
}

TEST_F(ProductsChoice, HoppersKernelIsMeasuredAmongThemAndKnownToTheNextStart) {
  const auto first = make_products({{kRows, 2}, {0, 3}, {1, 4}, {2, 5}, {kSwapAb, 1}}, /*has_swap_ab=*/true);
  for (const auto& [rows, is_best] : {std::pair(8, false), std::pair(9, true), std::pair(64, true)}) {
    multiply(*first, rows);
    EXPECT_EQ(is_swap_ab_last(), is_best) << rows;
  }
  ASSERT_TRUE(first->save().ok());
  const auto second = make_products({}, /*has_swap_ab=*/true);
  EXPECT_EQ(multiply(*second, 50), std::vector<int>());
  EXPECT_TRUE(is_swap_ab_last());
  const auto slower = make_products({{kRows, 2}, {0, 1}, {1, 4}, {2, 5}, {kSwapAb, 3}}, /*has_swap_ab=*/true);
  EXPECT_EQ(multiply(*slower, 128).back(), 0) << "more rows than it takes";
  const auto without = make_products({{kRows, 9}, {0, 3}, {1, 1}, {2, 2}});
  EXPECT_EQ(multiply(*without, 64), (std::vector<int>{0, 1, 2, 1})) << "measured anew where there is none";
}

// Gate and up at once against both ops: of a weight that is multiplied 64 wide.
class GatedChoice : public ProductsChoice {
 protected:
  // The seconds of product and silu_mul apart are the algorithm's, too.
  std::optional<cuda::ProductCandidate> choose(cuda::Products& products, int64_t rows) {
    x_ = OwnedTensor::random(DType::kBFloat16, {rows, 64}, random_);
    mixed_ = OwnedTensor(DType::kBFloat16, {rows, 48});
    gated_ = OwnedTensor(DType::kBFloat16, {rows, 24});
    return products.choose_gated(operands(), {gated_.view()});
  }
  cuda::ProductOperands operands() const { return {x_.view(), weight_.view(), mixed_.view()}; }

  OwnedTensor x_{DType::kBFloat16, {1, 1}}, mixed_ = x_, gated_ = x_;
};

TEST_F(GatedChoice, IsOneLaunchWhereThatIsMeasuredToBeFaster) {
  // The library's product is the fastest by itself, but with silu_mul behind it takes longer.
  int measured = 0;
  const auto seconds_of = [&](const std::function<void()>& launch) {
    const size_t before = launched_.size();
    const uint64_t first = emulated::last_launch().number;
    launch();
    ++measured;
    const bool has_silu = emulated::last_launch().number - first == 2;
    if (launched_.size() > before) return has_silu ? 6.0 : 4.0;
    return is_swap_ab_last() ? 5.0 : 7.0;
  };
  const auto make = [&] {
    return std::make_unique<cuda::Products>(
        nullptr, cuda::Products::Others{std::make_unique<FakeLibrary>(&launched_), *cuda::SwapAb::make()},
        cuda::Products::Options{.device = "a device",
                                .cuda = {.measures = true, .tune_file = dir_.path() + "/tuning"},
                                .timer = seconds_of});
  };
  const auto products = make();
  using Kind = cuda::ProductCandidate::Kind;
  const auto chosen = choose(*products, 20);
  ASSERT_TRUE(chosen.has_value());
  EXPECT_EQ(chosen->kind, Kind::kSwapAb);
  EXPECT_EQ(products->choose(operands()).kind, Kind::kSwapAb) << "the same bits from then on";
  EXPECT_EQ(measured, 5 + 3);
  EXPECT_TRUE(choose(*products, 30).has_value());
  EXPECT_EQ(measured, 5 + 3) << "of the same bucket";
  ASSERT_TRUE(products->save().ok());
  EXPECT_EQ(choose(*make(), 25)->kind, Kind::kSwapAb);
  EXPECT_EQ(measured, 5 + 3) << "known to the next start";
}

TEST_F(GatedChoice, IsApartWhereThatIsFaster) {
  const auto products =
      make_products({{kRows, 9}, {0, 3}, {1, 1}, {2, 2}, {kSwapAb, 5}}, /*has_swap_ab=*/true);
  EXPECT_FALSE(choose(*products, 64).has_value());
  EXPECT_EQ(products->choose(operands()).algorithm, 1);
  ASSERT_TRUE(products->save().ok());
  const auto next = make_products({}, /*has_swap_ab=*/true);
  EXPECT_FALSE(choose(*next, 33).has_value());
  EXPECT_EQ(next->measured_count(), 0);
}

TEST_F(GatedChoice, FollowsTheProductWhereHoppersKernelDoesNotTakeIt) {
  const auto products =
      make_products({{kRows, 1}, {0, 3}, {1, 4}, {2, 2}, {kSwapAb, 5}}, /*has_swap_ab=*/true);
  EXPECT_TRUE(choose(*products, 8).has_value());
  EXPECT_FALSE(choose(*products, 65).has_value());
  EXPECT_EQ(products->measured_count(), 2) << "of the products alone";
}

TEST_F(ProductsChoice, MeasuringAddsNothingToASum) {
  const auto products = make_products({{-1, 9}, {0, 3}, {1, 1}, {2, 2}});
  multiply(*products, 64, /*accumulate=*/true);
  EXPECT_EQ(products->measured_count(), 1);
}

TEST_F(ProductsChoice, WhatWasMeasuredIsKnownToTheNextStart) {
  const auto first = make_products({{-1, 9}, {0, 3}, {1, 1}, {2, 2}});
  multiply(*first, 64);
  ASSERT_TRUE(first->save().ok());
  const auto second = make_products({});
  EXPECT_EQ(multiply(*second, 50), (std::vector<int>{1}));
  EXPECT_EQ(second->measured_count(), 0);
}

TEST_F(ProductsChoice, AnAlgorithmThatDoesNotTakeOtherRowsOfItsBucketGivesWay) {
  const auto products = make_products({{-1, 9}, {0, 3}, {1, 2}, {2, 1}});
  EXPECT_EQ(multiply(*products, 98).back(), 2);
  EXPECT_EQ(multiply(*products, 110), (std::vector<int>{-1})) << "the library's own guess";
}

TEST_F(ProductsChoice, AFileOfUnknownNamesIsMeasuredAnew) {
  const auto x = OwnedTensor::random(DType::kBFloat16, {64, 64}, random_);
  OwnedTensor out(DType::kFloat32, {64, 48});
  Tuning tuning(dir_.path() + "/tuning");
  tuning.put(cuda::product_key("a device", "fake 1", {x.view(), weight_.view(), out.view()}),
             "library number 9", 1);
  ASSERT_TRUE(tuning.save().ok());
  const auto products = make_products({{-1, 9}, {0, 3}, {1, 1}, {2, 2}});
  multiply(*products, 64);
  EXPECT_EQ(products->measured_count(), 1);
}

TEST_F(ProductsChoice, WithoutMeasuringTheLibraryGuessesForEachNumberOfRows) {
  cuda::Products products(nullptr, {std::make_unique<FakeLibrary>(&launched_), nullptr},
                          {.device = "a device"});
  EXPECT_EQ(multiply(products, 90), (std::vector<int>{-1}));
  EXPECT_EQ(multiply(products, 120), (std::vector<int>{-1}));
  EXPECT_EQ(multiply(products, 8), std::vector<int>()) << "the own kernel";
  EXPECT_EQ(products.measured_count(), 0);
}

TEST(RowsBucket, IsTheNextPowerOfTwoOrAQuarterOfTheWayThere) {
  for (const auto& [rows, bucket] : {std::pair(1, 1), std::pair(2, 2), std::pair(3, 4), std::pair(64, 64),
                                     std::pair(65, 80), std::pair(80, 80), std::pair(128, 128),
                                     std::pair(129, 160), std::pair(368, 384), std::pair(2048, 2048)}) {
    EXPECT_EQ(rows_bucket(rows), bucket) << rows;
    EXPECT_EQ(rows_bucket(bucket), bucket);
  }
}

}  // namespace troupe::products_choice_test
