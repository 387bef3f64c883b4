// Products of the emulated GPU against the sum in float64.

#include "tests/kernels/cuda/cuda_testing.h"
#ifndef TROUPE_GPU_TEST
#include "kernels/cuda/gemm/gemm_kernels.h"
#endif

namespace troupe::cuda_products_test {

using namespace cuda_testing;

struct Case {
  int64_t tokens, features, depth;
};

// The own kernel's token counts (1 to 32, K in whole pieces) with features that fill no block, and what goes
// to tiles.
const Case kCases[] = {{1, 48, 256}, {2, 16, 32},  {7, 37, 1056}, {8, 64, 128},  {9, 33, 160},
                       {32, 40, 96}, {33, 40, 96}, {65, 70, 64},  {3, 130, 259}, {1, 1, 1}};

struct Operands {
  OwnedTensor x, weight, bias;
};

Operands random_operands(const Case& c, DType dtype, std::mt19937& random) {
  auto x = OwnedTensor::random(dtype, {c.tokens, c.depth}, random);
  auto weight = OwnedTensor::random(dtype, {c.features, c.depth}, random);
  return {std::move(x), std::move(weight), OwnedTensor::random(DType::kFloat32, {c.features}, random)};
}

// The product of element i, and the sum of its terms' magnitudes.
struct Sum {
  double value = 0;
  double magnitude = 0;
};
Sum sum_of(const Case& c, const Operands& o, int64_t i) {
  Sum sum;
  for (int64_t k = 0; k < c.depth; ++k) {
    const double term = o.x.at(i / c.features * c.depth + k) * o.weight.at(i % c.features * c.depth + k);
    sum.value += term;
    sum.magnitude += std::abs(term);
  }
  return sum;
}

class CudaProducts : public testing::TestWithParam<std::tuple<DType, bool>> {
 protected:
  DType dtype_ = std::get<0>(GetParam());
  std::unique_ptr<Backend> cuda_ = make_cuda(dtype_, std::get<1>(GetParam()));
  std::mt19937 random_{5};
};
INSTANTIATE_TEST_SUITE_P(Types, CudaProducts,
                         testing::Combine(testing::Values(DType::kFloat32, DType::kBFloat16),
                                          testing::Bool()),
                         [](const auto& param) {
                           return std::string(dtype_name(std::get<0>(param.param))) +
                                  (std::get<1>(param.param) ? "_reference" : "");
                         });

TEST_P(CudaProducts, AreTheSumWithBiasAndWithWhatWasThere) {
  for (const Case& c : kCases) {
    const Operands o = random_operands(c, dtype_, random_);
    const auto weight = pack(*cuda_, o.weight);
    const auto before = OwnedTensor::random(DType::kFloat32, {c.tokens, c.features}, random_);
    const auto plain = in_every_order(dtype_, {c.tokens, c.features}, [&](const Tensor& out) {
      cuda_->matmul({.x = o.x.view(), .weight = weight.get(), .out = out, .bias = o.bias.view()});
    });
    const auto added = in_every_order(DType::kFloat32, {c.tokens, c.features}, [&](const Tensor& out) {
      std::memcpy(out.data, before.view().data, out.bytes());
      cuda_->matmul({.x = o.x.view(), .weight = weight.get(), .out = out, .accumulate = true});
    });
    // A float32 sum's random walk with a factor of 4, as in matmul_test.cc; then out's own rounding.
    const double steps = 4 * std::sqrt(static_cast<double>(c.depth)) + 4;
    // Its bias is rounded to out's type.
    const bool library =
        !std::get<1>(GetParam()) && (dtype_ == DType::kFloat32 || c.tokens > 32 || c.depth % 32 != 0);
    const auto with_bias = [&](int64_t i) { return sum_of(c, o, i).value + o.bias.at(i % c.features); };
    EXPECT_EQ(first_difference(
                  plain, with_bias,
                  [&](int64_t i) {
                    const double magnitude = sum_of(c, o, i).magnitude + std::abs(o.bias.at(i % c.features));
                    const double rounded =
                        library ? epsilon_of(dtype_) * std::abs(o.bias.at(i % c.features)) : 0;
                    const double own = dtype_ == DType::kBFloat16 ? 1.01 * kBFloat16Epsilon : 0;
                    return steps * kFloatEpsilon * magnitude + own * std::abs(with_bias(i)) + rounded;
                  }),
              std::nullopt)
        << c.tokens << " × " << c.features << " × " << c.depth;
    EXPECT_EQ(first_difference(
                  added, [&](int64_t i) { return sum_of(c, o, i).value + before.at(i); },
                  [&](int64_t i) {
                    return steps * kFloatEpsilon * (sum_of(c, o, i).magnitude + std::abs(before.at(i)));
                  }),
              std::nullopt)
        << c.tokens << " × " << c.features << " × " << c.depth;
  }
}

TEST_P(CudaProducts, ADecodingRowsBitsDoNotDependOnTheBatch) {
  if (dtype_ == DType::kFloat32 && !std::get<1>(GetParam())) {
    GTEST_SKIP() << "cuBLASLt's, which picks an algorithm by the batch";
  }
  const Case whole{32, 40, 1056};
  const Operands o = random_operands(whole, dtype_, random_);
  const auto weight = pack(*cuda_, o.weight);
  OwnedTensor all(DType::kFloat32, {32, 40});
  cuda_->matmul({.x = o.x.view(), .weight = weight.get(), .out = all.view()});
  for (const int64_t tokens : {1, 5, 8, 9, 16, 17}) {
    OwnedTensor some(DType::kFloat32, {tokens, 40});
    cuda_->matmul({.x = o.x.rows(3, tokens), .weight = weight.get(), .out = some.view()});
    EXPECT_TRUE(same_bits(some.view(), all.rows(3, tokens))) << tokens;
  }
}

// Computed by the kernel that multiplies gate and up in one pass, and, with more rows, by three ops.
TEST_P(CudaProducts, AGatedMlpHasTheBitsOfItsThreeOps) {
  for (const auto& [tokens, width, depth] : {std::tuple<int64_t, int64_t, int64_t>{1, 40, 1056},
                                             {3, 37, 96},
                                             {8, 64, 2336},
                                             {13, 8, 32},
                                             {32, 33, 160},
                                             {33, 24, 64},
                                             {2, 20, 48}}) {
    const Operands up = random_operands({tokens, 2 * width, depth}, dtype_, random_);
    const auto gate_up = pack(*cuda_, up.weight);
    const auto down = pack(*cuda_, OwnedTensor::random(dtype_, {depth, width}, random_, 0.1f));
    const auto before = OwnedTensor::random(DType::kFloat32, {tokens, depth}, random_);
    for (const bool biased : {false, true}) {
      const Tensor bias = biased ? up.bias.view() : Tensor{};
      OwnedTensor mixed(dtype_, {tokens, 2 * width}), gated(dtype_, {tokens, width});
      OwnedTensor expected = before;
      cuda_->matmul({.x = up.x.view(), .weight = gate_up.get(), .out = mixed.view(), .bias = bias});
      cuda_->silu_mul({.gate_up = mixed.view(), .out = gated.view()});
      cuda_->matmul({.x = gated.view(), .weight = down.get(), .out = expected.view(), .accumulate = true});
      const auto sum = in_every_order(DType::kFloat32, {tokens, depth}, [&](const Tensor& out) {
        std::memcpy(out.data, before.view().data, out.bytes());
        OwnedTensor scratch(dtype_, {tokens, 2 * width}), products(dtype_, {tokens, width});
        cuda_->gated_mlp({.x = up.x.view(),
                          .gate_up = gate_up.get(),
                          .down = down.get(),
                          .sum = out,
                          .mixed = scratch.view(),
                          .gated = products.view(),
                          .gate_up_bias = bias});
      });
      EXPECT_TRUE(same_bits(sum.view(), expected.view()))
          << tokens << " × " << width << " × " << depth << (biased ? ", biased" : "");
    }
  }
}

// Rows that are normed where they are multiplied, and such as are not: too many, too long.
TEST_P(CudaProducts, NormedOnesHaveTheBitsOfBothOps) {
  for (const auto& [tokens, width, depth] : {std::tuple<int64_t, int64_t, int64_t>{1, 20, 64},
                                             {1, 17, 4096},
                                             {2, 16, 4128},
                                             {2, 33, 1056},
                                             {3, 8, 96},
                                             {2, 9, 8192},
                                             {1, 8, 8224},
                                             {2, 12, 50}}) {
    const Operands up = random_operands({tokens, 2 * width, depth}, dtype_, random_);
    const auto gate_up = pack(*cuda_, up.weight);
    const auto down = pack(*cuda_, OwnedTensor::random(dtype_, {depth, width}, random_, 0.1f));
    const auto x = OwnedTensor::random(DType::kFloat32, {tokens, depth}, random_, 2.0f);
    const auto norm_weight = OwnedTensor::random(DType::kFloat32, {depth}, random_);
    OwnedTensor normed(dtype_, {tokens, depth}), mixed(dtype_, {tokens, 2 * width});
    OwnedTensor gated(dtype_, {tokens, width}), sum = x;
    const RmsNormParams norm{x.view(), norm_weight.view(), 1e-5f, normed.view()};
    const std::string shape =
        std::to_string(tokens) + " × " + std::to_string(width) + " × " + std::to_string(depth);
    for (const DType type : {dtype_, DType::kFloat32}) {
      const auto product = [&](const Tensor& out) {
        return MatmulParams{normed.view(), gate_up.get(), out, false, up.bias.view()};
      };
      OwnedTensor expected(type, {tokens, 2 * width});
      cuda_->rms_norm(norm);
      cuda_->matmul(product(expected.view()));
      const auto out = in_every_order(type, {tokens, 2 * width}, [&](const Tensor& to) {
        std::memset(normed.view().data, 0xff, normed.view().bytes());
        cuda_->normed_matmul(norm, product(to));
      });
      EXPECT_TRUE(same_bits(out.view(), expected.view())) << shape;
    }
    if (depth > 5000) continue;  // its down product's features, which take the emulator long
    const auto mlp = [&](const Tensor& to) {
      return GatedMlpParams{normed.view(), gate_up.get(), down.get(),    to,
                            mixed.view(),  gated.view(),  up.bias.view()};
    };
    cuda_->rms_norm(norm);
    cuda_->gated_mlp(mlp(sum.view()));
    const auto out = in_every_order(DType::kFloat32, {tokens, depth}, [&](const Tensor& to) {
      std::memcpy(to.data, x.view().data, to.bytes());
      std::memset(normed.view().data, 0xff, normed.view().bytes());
      cuda_->normed_gated_mlp(norm, mlp(to));
    });
    EXPECT_TRUE(same_bits(out.view(), sum.view())) << shape;
  }
}

#ifndef TROUPE_GPU_TEST
TEST(CudaProductsOfFewRows, TakeNormAndGateWithThem) {
  const auto cuda = make_cuda(DType::kBFloat16);
  std::mt19937 random(4);
  const auto weight = pack(*cuda, OwnedTensor::random(DType::kBFloat16, {32, 64}, random));
  const auto down = pack(*cuda, OwnedTensor::random(DType::kBFloat16, {64, 16}, random));
  const auto x = OwnedTensor::random(DType::kFloat32, {5, 64}, random), scale = x;
  const auto launches = [&](int64_t tokens) {
    OwnedTensor normed(DType::kBFloat16, {tokens, 64}), mixed(DType::kBFloat16, {tokens, 32});
    OwnedTensor gated(DType::kBFloat16, {tokens, 16}), sum(DType::kFloat32, {tokens, 64});
    const RmsNormParams norm{x.rows(0, tokens), Tensor::make(scale.view().data, DType::kFloat32, {64}), 1e-5f,
                             normed.view()};
    const uint64_t before = emulated::last_launch().number;
    cuda->normed_matmul(norm, {.x = normed.view(), .weight = weight.get(), .out = mixed.view()});
    const uint64_t middle = emulated::last_launch().number;
    cuda->normed_gated_mlp(norm,
                           {normed.view(), weight.get(), down.get(), sum.view(), mixed.view(), gated.view()});
    return std::pair(middle - before, emulated::last_launch().number - middle);
  };
  EXPECT_EQ(launches(cuda::kNormedRowsMax), std::pair(uint64_t{1}, uint64_t{2}));
  EXPECT_EQ(launches(cuda::kNormedRowsMax + 1), std::pair(uint64_t{2}, uint64_t{3})) << "normed apart";
}

TEST(CudaProductsOfFewRows, FetchOnlyTheWeightAhead) {
  std::mt19937 random(5);
  for (const auto& [tokens, features, depth] :
       {std::tuple<int64_t, int64_t, int64_t>{1, 37, 2080}, {9, 16, 1056}, {8, 5, 1024}, {2, 40, 96}}) {
    const auto x = OwnedTensor::random(DType::kBFloat16, {tokens, depth}, random);
    const auto weight = OwnedTensor::random(DType::kBFloat16, {features, depth}, random);
    OwnedTensor plain(DType::kFloat32, {tokens, features}), fetched = plain;
    const auto operands = [&](const OwnedTensor& out) {
      return cuda::ProductOperands{x.view(), weight.view(), out.view()};
    };
    cuda::skinny_gemm(cudaStream_t{nullptr}, operands(plain));
    cuda::skinny_gemm({nullptr, /*overlapping=*/true}, operands(fetched), {.prefetches = true});
    EXPECT_TRUE(same_bits(fetched.view(), plain.view())) << tokens << " × " << features << " × " << depth;
  }
}
#endif

TEST_P(CudaProducts, ABrokenWeightIsNoticed) {
  const Case c{4, 32, 64};
  const Operands o = random_operands(c, dtype_, random_);
  const auto weight = pack(*cuda_, o.weight);
  OwnedTensor out(DType::kFloat32, {4, 32});
  cuda_->matmul({.x = o.x.view(), .weight = weight.get(), .out = out.view()});
  set_element(o.weight.view(), 40, static_cast<float>(o.weight.at(40)) + 0.5f);
  EXPECT_NE(first_difference(
                out, [&](int64_t i) { return sum_of(c, o, i).value; },
                [&](int64_t i) { return 36 * kFloatEpsilon * sum_of(c, o, i).magnitude; }),
            std::nullopt);
}

TEST_P(CudaProducts, WeightsAreRoundedOnceFromEveryType) {
  for (const DType type : {DType::kFloat32, DType::kBFloat16}) {
    const auto weight = OwnedTensor::random(type, {16, 32}, random_);
    const auto x = OwnedTensor::random(dtype_, {1, 32}, random_);
    OwnedTensor rounded(dtype_, {16, 32});
    for (int64_t i = 0; i < rounded.elements(); ++i)
      set_element(rounded.view(), i, static_cast<float>(weight.at(i)));
    OwnedTensor a(DType::kFloat32, {1, 16}), b(DType::kFloat32, {1, 16});
    cuda_->matmul({.x = x.view(), .weight = pack(*cuda_, weight).get(), .out = a.view()});
    cuda_->matmul({.x = x.view(), .weight = pack(*cuda_, rounded).get(), .out = b.view()});
    EXPECT_TRUE(same_bits(a.view(), b.view()));
  }
}

TEST_P(CudaProducts, Int8IsRefusedWithWhatHasIt) {
  const auto weight = OwnedTensor::random(DType::kFloat32, {4, 4}, random_);
  const auto packed = cuda_->pack(weight.view(), WeightFormat::kInt8);
  ASSERT_FALSE(packed.ok());
  EXPECT_NE(packed.status().message().find("only on the cpu"), std::string::npos) << packed.status();
}

}  // namespace troupe::cuda_products_test
