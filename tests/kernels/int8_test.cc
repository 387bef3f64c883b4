// Products by int8 weights: exactly their definition (kernels/int8.h) on every instruction set, near the
// product of the unrounded values, and bitwise independent of the batch, the threads and the instruction set.

#include "kernels/int8.h"

#include "tests/kernels/kernel_testing.h"

namespace troupe::int8_test {

using namespace kernel_testing;

struct Shape {
  int64_t columns;  // N
  int64_t depth;    // K
};
const Shape kShapes[] = {{64, 64}, {200, 896}, {131, 259}, {48, 33}, {1, 1}, {7, 1000}, {65, 4100}};

std::unique_ptr<PackedWeight> pack8(Backend& backend, const OwnedTensor& weight) {
  auto packed = backend.pack(weight.view(), WeightFormat::kInt8);
  EXPECT_TRUE(packed.ok()) << packed.status();
  return std::move(*packed);
}

OwnedTensor multiply(Backend& backend, const Tensor& x, const PackedWeight& weight, DType out_dtype) {
  OwnedTensor out(out_dtype, {x.shape[0], weight.rows()});
  backend.matmul({.x = x, .weight = &weight, .out = out.view()});
  return out;
}

class Int8 : public testing::TestWithParam<Variant> {
 protected:
  std::unique_ptr<Backend> backend_ = make(GetParam());
  DType dtype_ = GetParam().options.dtype;
};

// The sums are integers and the rest is two multiplications: nothing is left to chance.
TEST_P(Int8, HasTheBitsOfTheReference) {
  const auto reference = make({"ref", {.dtype = dtype_}});
  std::mt19937 random(3);
  for (const Shape& shape : kShapes) {
    const auto weight = OwnedTensor::random(DType::kFloat32, {shape.columns, shape.depth}, random, 0.1f);
    const auto x = OwnedTensor::random(dtype_, {13, shape.depth}, random);
    const auto packed = pack8(*backend_, weight);
    EXPECT_EQ(packed->format(), WeightFormat::kInt8);
    for (DType out_dtype : {DType::kFloat32, dtype_}) {
      const OwnedTensor expected = multiply(*reference, x.view(), *pack8(*reference, weight), out_dtype);
      ASSERT_TRUE(multiply(*backend_, x.view(), *packed, out_dtype) == expected)
          << shape.columns << "x" << shape.depth;
    }
  }
}

// Rounding to 127 steps of the largest of K normal values errs by (largest / 127) / √12 each, in x and in w,
// and the errors of K terms add up like a walk: about 1 % of the result's own deviation.
TEST_P(Int8, IsNearTheUnroundedProduct) {
  std::mt19937 random(4);
  const int64_t depth = 896;
  const auto weight = OwnedTensor::random(DType::kFloat32, {96, depth}, random);
  const auto x = OwnedTensor::random(dtype_, {9, depth}, random);
  const OwnedTensor out = multiply(*backend_, x.view(), *pack8(*backend_, weight), DType::kFloat32);
  double squares = 0;
  double error_squares = 0;
  for (int64_t t = 0; t < 9; ++t) {
    for (int64_t n = 0; n < 96; ++n) {
      double truth = 0;
      for (int64_t k = 0; k < depth; ++k) truth += x.at(t * depth + k) * weight.at(n * depth + k);
      squares += truth * truth;
      error_squares += (out.at(t * 96 + n) - truth) * (out.at(t * 96 + n) - truth);
    }
  }
  EXPECT_LT(std::sqrt(error_squares / squares), 0.015);
  EXPECT_GT(std::sqrt(error_squares / squares), 0.001) << "nothing was rounded";
}

TEST_P(Int8, ARowsBitsDoNotDependOnTheBatchNorOnTheThreads) {
  std::mt19937 random(5);
  // Many and deep enough rows for some kernels to take them in parts.
  const int64_t count = kSanitized ? 9 : GetParam().name == "ref" ? 40 : 400;
  const auto weight = OwnedTensor::random(dtype_, {100, 4200}, random);
  const auto x = OwnedTensor::random(dtype_, {count, 4200}, random);
  const int64_t rows = x.view().shape[0];
  const auto packed = pack8(*backend_, weight);
  const OwnedTensor whole = multiply(*backend_, x.view(), *packed, DType::kFloat32);
  for (int64_t m : {1, 2, 5, 7, 8, 33}) {
    if (m > rows) continue;
    const OwnedTensor out = multiply(*backend_, x.rows(rows - m, m), *packed, DType::kFloat32);
    ASSERT_TRUE(same_bits(out.view(), whole.rows(rows - m, m))) << m;
  }
  Variant variant = GetParam();
  variant.options.threads = 5;
  const auto other = make(variant);
  EXPECT_TRUE(multiply(*other, x.view(), *pack8(*other, weight), DType::kFloat32) == whole);
}

TEST_P(Int8, AccumulateAndBiasAddToTheProduct) {
  std::mt19937 random(6);
  const auto weight = OwnedTensor::random(dtype_, {100, 72}, random);
  const auto x = OwnedTensor::random(dtype_, {9, 72}, random);
  const auto before = OwnedTensor::random(DType::kFloat32, {9, 100}, random);
  const auto packed = pack8(*backend_, weight);
  const OwnedTensor product = multiply(*backend_, x.view(), *packed, DType::kFloat32);
  const auto bias = OwnedTensor::random(DType::kFloat32, {100}, random);
  OwnedTensor out = before;
  backend_->matmul(
      {.x = x.view(), .weight = packed.get(), .out = out.view(), .accumulate = true, .bias = bias.view()});
  const auto truth = [&](int64_t i) { return product.at(i) + bias.at(i % 100) + before.at(i); };
  const auto tolerance = [&](int64_t i) {
    return 3 * kFloatEpsilon *
           (std::abs(product.at(i)) + std::abs(bias.at(i % 100)) + std::abs(before.at(i)));
  };
  EXPECT_EQ(first_difference(out, truth, tolerance), std::nullopt);
}

TEST_P(Int8, RowsOfZerosAndOfExtremesAreExact) {
  OwnedTensor weight(DType::kFloat32, {2, 8});
  OwnedTensor x(dtype_, {3, 8});
  for (int64_t k = 0; k < 8; ++k) {
    set_element(weight.view(), k, k % 2 == 0 ? -4.0f : 4.0f);  // row 1 stays zero
    set_element(x.view(), k, k % 2 == 0 ? -1.0f : 1.0f);       // all saturated: the largest sums of pairs
    set_element(x.view(), 8 + k, 0.0f);
    set_element(x.view(), 16 + k, 1e-35f);  // too small to be scaled
  }
  const OwnedTensor out = multiply(*backend_, x.view(), *pack8(*backend_, weight), DType::kFloat32);
  EXPECT_NEAR(out.at(0), 32.0, 32 * 4 * kFloatEpsilon);
  for (int64_t i = 1; i < 6; ++i) EXPECT_EQ(out.at(i), 0.0) << i;
}

TEST_P(Int8, RefusesADepthWhoseSumsOverflow) {
  OwnedTensor weight(DType::kFloat32, {1, kInt8DepthMax + 1});
  const auto packed = backend_->pack(weight.view(), WeightFormat::kInt8);
  EXPECT_EQ(packed.status().message(), "an int8 weight has at most 65536 columns, got [1, 65537] float32");
}

INSTANTIATE_TEST_SUITE_P(Backends, Int8, testing::ValuesIn(all_variants()), variant_label);

}  // namespace troupe::int8_test
