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
  // Seconds by the algorithm that was launched last; without one it was the own kernel.
  std::unique_ptr<cuda::Products> make_products(std::map<int, double> seconds) {
    return std::make_unique<cuda::Products>(
        nullptr, std::make_unique<FakeLibrary>(&launched_),
        cuda::Products::Options{.device = "a device",
                                .measures = true,
                                .tune_file = dir_.path() + "/tuning",
                                .timer = [this, seconds](const std::function<void()>& launch) {
                                  const size_t before = launched_.size();
                                  launch();
                                  return seconds.at(launched_.size() > before ? launched_.back() : -1);
                                }});
  }
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
  cuda::Products products(nullptr, std::make_unique<FakeLibrary>(&launched_), {.device = "a device"});
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
