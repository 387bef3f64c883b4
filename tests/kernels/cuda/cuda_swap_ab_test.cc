// Products of 9 to 64 rows by warpgroups, against the sum in float64.

#include "tests/kernels/cuda/cuda_testing.h"
#ifndef TROUPE_GPU_TEST
#include "kernels/cuda/gemm/gemm_kernels.h"
#include "kernels/cuda/gemm/swap_ab.h"
#endif

namespace troupe::cuda_swap_ab_test {

using namespace cuda_testing;

constexpr int64_t kRowsMin = 9, kRowsMax = 64;

struct Shape {
  int64_t features, depth;
};
// Tiles are of 128 × 64: less than one, several, and such as end within one.
const Shape kShapes[] = {{5, 8}, {128, 64}, {200, 328}, {384, 1024}};

std::unique_ptr<Backend> make_swapped() {
  return make_cuda_with({.dtype = DType::kBFloat16, .cuda = {.products = ProductKernel::kSwapAb}});
}

// A product of kRowsMax rows, whose first rows are a product of fewer.
class Product {
 public:
  Product(const Shape& shape, unsigned seed) : shape_(shape), random_(seed) {
    for (int64_t i = 0; i < sums_.elements(); ++i) {
      double sum = 0, magnitude = 0;
      for (int64_t k = 0; k < shape.depth; ++k) {
        const double term =
            x.at(i / shape.features * shape.depth + k) * weight.at(i % shape.features * shape.depth + k);
        sum += term;
        magnitude += std::abs(term);
      }
      truths_.push_back(sum);
      magnitudes_.push_back(magnitude);
    }
  }

  // The first element that is not the sum, with what is given beside it: bias, what was there before.
  std::optional<std::string> off_by(const OwnedTensor& out, const Tensor& with_bias,
                                    const Tensor& with_before) const {
    const auto more = [&](int64_t i) {
      return (with_bias.empty() ? 0 : element(with_bias, i % shape_.features)) +
             (with_before.empty() ? 0 : element(with_before, i));
    };
    // A float32 sum's random walk with a factor of 4, as in matmul_test.cc; then out's own rounding.
    const double steps = 4 * std::sqrt(static_cast<double>(shape_.depth)) + 4;
    const double rounding = out.view().dtype == DType::kBFloat16 ? 1.01 * kBFloat16Epsilon : 0;
    const auto truth = [&](int64_t i) { return truths_[static_cast<size_t>(i)] + more(i); };
    return first_difference(out, truth, [&](int64_t i) {
      return steps * kFloatEpsilon * (magnitudes_[static_cast<size_t>(i)] + std::abs(more(i))) +
             rounding * std::abs(truth(i));
    });
  }

 private:
  Shape shape_;
  std::mt19937 random_;

 public:
  OwnedTensor x = OwnedTensor::random(DType::kBFloat16, {kRowsMax, shape_.depth}, random_);
  OwnedTensor weight = OwnedTensor::random(DType::kBFloat16, {shape_.features, shape_.depth}, random_);
  OwnedTensor bias = OwnedTensor::random(DType::kFloat32, {shape_.features}, random_);
  OwnedTensor before = OwnedTensor::random(DType::kFloat32, {kRowsMax, shape_.features}, random_);

 private:
  OwnedTensor sums_{DType::kFloat32, {kRowsMax, shape_.features}};
  std::vector<double> truths_, magnitudes_;
};

class CudaSwapAb : public testing::Test {
 protected:
  void set_processors([[maybe_unused]] int count) {
#ifndef TROUPE_GPU_TEST
    emulated::set_device_size({.processors = count});
#endif
  }
  void TearDown() override {
#ifndef TROUPE_GPU_TEST
    emulated::set_device_size({});
#endif
  }
};

// The device's processors decide where rows of tiles are cut.
TEST_F(CudaSwapAb, AreTheSumWithBiasAndWithWhatWasThere) {
  for (const int processors : {1, 3, 132}) {
    if (kSanitized && processors == 3) continue;
    set_processors(processors);
    const auto cuda = make_swapped();
    for (const Shape& shape : kShapes) {
      const Product product(shape, 5);
      const auto weight = pack(*cuda, product.weight);
      const Tensor bias = product.bias.view();
      for (const int64_t rows : {int64_t{9}, int64_t{33}, kRowsMax}) {
        const Tensor x = product.x.rows(0, rows), before = product.before.rows(0, rows);
        const auto plain = in_every_order(DType::kBFloat16, {rows, shape.features}, [&](const Tensor& out) {
          cuda->matmul({.x = x, .weight = weight.get(), .out = out, .bias = bias});
        });
        const auto added = in_every_order(DType::kFloat32, {rows, shape.features}, [&](const Tensor& out) {
          std::memcpy(out.data, before.data, out.bytes());
          cuda->matmul({.x = x, .weight = weight.get(), .out = out, .accumulate = true});
        });
        const std::string what = std::to_string(rows) + " × " + std::to_string(shape.features) + " × " +
                                 std::to_string(shape.depth) + " on " + std::to_string(processors);
        EXPECT_EQ(product.off_by(plain, bias, {}), std::nullopt) << what;
        EXPECT_EQ(product.off_by(added, {}, before), std::nullopt) << what;
      }
    }
  }
}

TEST_F(CudaSwapAb, OfEveryNumberOfRowsHaveTheBitsOfTheMost) {
  set_processors(7);
  const auto cuda = make_swapped();
  const Shape shape{200, 328};
  const Product product(shape, 7);
  const auto weight = pack(*cuda, product.weight);
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    OwnedTensor all(dtype, {kRowsMax, shape.features});
    cuda->matmul(
        {.x = product.x.view(), .weight = weight.get(), .out = all.view(), .bias = product.bias.view()});
    EXPECT_EQ(product.off_by(all, product.bias.view(), {}), std::nullopt);
    for (int64_t rows = kRowsMin; rows < kRowsMax; ++rows) {
      const int64_t first = (kRowsMax - rows) / 2;
      OwnedTensor some(dtype, {rows, shape.features});
      cuda->matmul({.x = product.x.rows(first, rows),
                    .weight = weight.get(),
                    .out = some.view(),
                    .bias = product.bias.view()});
      EXPECT_TRUE(same_bits(some.view(), all.rows(first, rows))) << rows;
    }
  }
}

// Beside rows of any numbers, and of none at all.
TEST_F(CudaSwapAb, ARowsBitsDoNotDependOnTheOthers) {
  set_processors(3);
  const auto cuda = make_swapped();
  const Shape shape{136, 200};
  const Product product(shape, 9);
  const auto weight = pack(*cuda, product.weight);
  OwnedTensor x = product.x, expected(DType::kFloat32, {33, shape.features}), out = expected;
  cuda->matmul({.x = x.rows(0, 33), .weight = weight.get(), .out = expected.view()});
  for (int64_t i = 0; i < 33 * shape.depth; ++i) {
    if (i / shape.depth != 20) set_element(x.view(), i, i % 3 == 0 ? std::nanf("") : 3e38f);
  }
  cuda->matmul({.x = x.rows(0, 33), .weight = weight.get(), .out = out.view()});
  EXPECT_TRUE(same_bits(out.rows(20, 1), expected.rows(20, 1)));
  EXPECT_FALSE(same_bits(out.rows(19, 1), expected.rows(19, 1)));
}

TEST_F(CudaSwapAb, ABrokenWeightIsNoticed) {
  const auto cuda = make_swapped();
  const Shape shape{136, 200};
  const Product product(shape, 11);
  OwnedTensor broken = product.weight;
  set_element(broken.view(), 135 * 200 + 199, static_cast<float>(broken.at(135 * 200 + 199)) + 0.5f);
  OwnedTensor out(DType::kFloat32, {40, shape.features});
  cuda->matmul({.x = product.x.rows(0, 40), .weight = pack(*cuda, broken).get(), .out = out.view()});
  EXPECT_NE(product.off_by(out, {}, {}), std::nullopt);
}

// In a graph launches overlap: the second one's weight is on its way before its x is written.
TEST_F(CudaSwapAb, BehindOneAnotherInAStepHaveTheBitsOfThoseByThemselves) {
  set_processors(5);
  const auto cuda = make_swapped();
  const Shape shape{256, 256};
  const Product first(shape, 13), second(shape, 15);
  const auto a = pack(*cuda, first.weight), b = pack(*cuda, second.weight);
  OwnedTensor between(DType::kBFloat16, {20, 256}), expected(DType::kFloat32, {20, 256});
  const auto multiply = [&](const Tensor& out) {
    cuda->matmul({.x = first.x.rows(0, 20), .weight = a.get(), .out = between.view()});
    cuda->matmul({.x = between.view(), .weight = b.get(), .out = out});
  };
  multiply(expected.view());
  for (int step = 0; step < 3; ++step) {
    OwnedTensor out(DType::kFloat32, {20, 256});
    std::memset(between.view().data, 0xff, between.view().bytes());
    {
      const StepScope scope(*cuda, StepKind::kDecode);
      multiply(out.view());
    }
    EXPECT_TRUE(same_bits(out.view(), expected.view())) << step;
  }
}

// Gate and up are multiplied and gated in one launch: of widths that fill no tile and that end within one.
TEST_F(CudaSwapAb, AGatedMlpHasTheBitsOfItsThreeOps) {
  for (const int processors : {1, 3, 132}) {
    if (kSanitized && processors == 3) continue;
    set_processors(processors);
    const auto cuda = make_swapped();
    for (const auto& [rows, width, depth] : {std::tuple<int64_t, int64_t, int64_t>{9, 64, 64},
                                             {20, 5, 72},
                                             {33, 100, 328},
                                             {kRowsMax, 200, 1032}}) {
      const Product up({2 * width, depth}, 19);
      const auto gate_up = pack(*cuda, up.weight);
      std::mt19937 random(21);
      const auto down = pack(*cuda, OwnedTensor::random(DType::kBFloat16, {depth, width}, random, 0.1f));
      const auto before = OwnedTensor::random(DType::kFloat32, {rows, depth}, random);
      for (const bool biased : {false, true}) {
        const Tensor x = up.x.rows(0, rows), bias = biased ? up.bias.view() : Tensor{};
        OwnedTensor mixed(DType::kBFloat16, {rows, 2 * width}), gated(DType::kBFloat16, {rows, width});
        OwnedTensor expected = before;
        cuda->matmul({.x = x, .weight = gate_up.get(), .out = mixed.view(), .bias = bias});
        EXPECT_EQ(up.off_by(mixed, bias, {}), std::nullopt);
        cuda->silu_mul({.gate_up = mixed.view(), .out = gated.view()});
        cuda->matmul({.x = gated.view(), .weight = down.get(), .out = expected.view(), .accumulate = true});
        const auto sum = in_every_order(DType::kFloat32, {rows, depth}, [&](const Tensor& out) {
          std::memcpy(out.data, before.view().data, out.bytes());
          OwnedTensor scratch(DType::kBFloat16, {rows, 2 * width}), product(DType::kBFloat16, {rows, width});
          cuda->gated_mlp({.x = x,
                           .gate_up = gate_up.get(),
                           .down = down.get(),
                           .sum = out,
                           .mixed = scratch.view(),
                           .gated = product.view(),
                           .gate_up_bias = bias});
        });
        EXPECT_TRUE(same_bits(sum.view(), expected.view()))
            << rows << " × " << width << " × " << depth << " on " << processors << (biased ? ", biased" : "");
      }
    }
  }
}

#ifndef TROUPE_GPU_TEST
// Launches of a norm and an MLP.
uint64_t mlp_launches(Backend& cuda, int64_t rows) {
  std::mt19937 random(23);
  const auto gate_up = pack(cuda, OwnedTensor::random(DType::kBFloat16, {64, 64}, random));
  const auto down = pack(cuda, OwnedTensor::random(DType::kBFloat16, {64, 32}, random));
  const auto x = OwnedTensor::random(DType::kFloat32, {rows, 64}, random);
  const auto scale = OwnedTensor::random(DType::kFloat32, {64}, random);
  OwnedTensor normed(DType::kBFloat16, {rows, 64}), sum(DType::kFloat32, {rows, 64});
  OwnedTensor mixed(DType::kBFloat16, {rows, 64}), gated(DType::kBFloat16, {rows, 32});
  const uint64_t before = emulated::last_launch().number;
  cuda.normed_gated_mlp({x.view(), scale.view(), 1e-5f, normed.view()},
                        {normed.view(), gate_up.get(), down.get(), sum.view(), mixed.view(), gated.view()});
  return emulated::last_launch().number - before;
}

TEST_F(CudaSwapAb, AnMlpIsALaunchLess) {
  const auto swapped = make_swapped(), plain = make_cuda(DType::kBFloat16);
  EXPECT_EQ(mlp_launches(*plain, 40), 4u) << "norm, gate and up, silu, down";
  EXPECT_EQ(mlp_launches(*swapped, 40), 3u);
  EXPECT_EQ(mlp_launches(*plain, 65), 4u);
  EXPECT_EQ(mlp_launches(*swapped, 65), 4u) << "more rows than it takes";
}

TEST_F(CudaSwapAb, RowsOfTilesAreCutWhereThereAreMoreProcessors) {
  const Product product({128, 1024}, 17);
  const auto sums_on = [&](int processors) {
    set_processors(processors);
    const auto cuda = make_swapped();
    OwnedTensor out(DType::kFloat32, {kRowsMax, 128});
    cuda->matmul({.x = product.x.view(), .weight = pack(*cuda, product.weight).get(), .out = out.view()});
    return out;
  };
  const OwnedTensor whole = sums_on(1), cut = sums_on(4);
  EXPECT_EQ(emulated::last_launch().grid.x, 4u);
  EXPECT_FALSE(same_bits(whole.view(), cut.view())) << "the same sums: was it cut?";
}

constexpr unsigned kThreads = 288;

// Whether it was computed by warpgroups; right it is in any case.
bool is_swapped(Backend& cuda, const Shape& shape, int64_t rows, int shift = 0) {
  const Product product(shape, 3);
  std::vector<char> moved(product.x.view().bytes() + 32);
  Tensor x = product.x.view();
  x.shape[0] = std::min(rows, kRowsMax);
  x.data = moved.data() + shift;
  std::memcpy(x.data, product.x.view().data, x.bytes());
  OwnedTensor out(DType::kFloat32, {x.shape[0], shape.features});
  cuda.matmul({.x = x, .weight = pack(cuda, product.weight).get(), .out = out.view()});
  EXPECT_EQ(product.off_by(out, {}, {}), std::nullopt);
  return emulated::last_launch().block.x == kThreads;
}

TEST_F(CudaSwapAb, TakeWhatTheCopyEngineTakes) {
  const auto cuda = make_swapped();
  EXPECT_TRUE(is_swapped(*cuda, {40, 64}, 9));
  EXPECT_TRUE(is_swapped(*cuda, {40, 72}, 64));
  EXPECT_FALSE(is_swapped(*cuda, {40, 64}, 8));
  EXPECT_FALSE(is_swapped(*cuda, {40, 68}, 20)) << "rows that are no multiple of 16 bytes";
  EXPECT_FALSE(is_swapped(*cuda, {40, 64}, 20, 2)) << "a place that is none";
  emulated::set_tensor_maps_refused(true);
  EXPECT_FALSE(is_swapped(*make_swapped(), {40, 64}, 9)) << "maps that the driver refuses";
  emulated::set_tensor_maps_refused(false);
  emulated::set_driver({.major = 8});
  EXPECT_FALSE(is_swapped(*make_swapped(), {40, 64}, 9)) << "another device's";
  emulated::set_driver({});
}

TEST_F(CudaSwapAb, HaveABlockAMultiprocessorButNoneForLessThanFourTurns) {
  for (const auto& [rows, depth, blocks] :
       {std::tuple<int64_t, int64_t, int>{4096, 4096, 132}, {28672, 4096, 132}, {40, 64, 1}, {250, 512, 4}}) {
    const cuda::SwapAbSchedule schedule = cuda::swap_ab_schedule(rows, depth, 132);
    EXPECT_EQ(schedule.blocks, blocks) << rows << " × " << depth;
    EXPECT_EQ(schedule.tiles, (rows + 127) / 128);
    EXPECT_EQ(schedule.tile_turns, depth / 64);
  }
}
#endif

}  // namespace troupe::cuda_swap_ab_test
