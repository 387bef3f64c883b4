#include "kernels/cuda/gemm/rounded_biases.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/tensor.h"
#include "tests/kernels/emulated/emulator.h"

namespace troupe::cuda {
namespace {

// On the emulator, where device memory is the host's.
class RoundedBiasesTest : public testing::Test {
 protected:
  Tensor bias(size_t first, int64_t count) {
    return Tensor::make(biases_.data() + first, DType::kFloat32, {count});
  }
  // The values of the rounded bias.
  std::vector<float> values(const Tensor& rounded) const {
    std::vector<float> values;
    for (int64_t i = 0; i < rounded.shape[0]; ++i) values.push_back(static_cast<float>(element(rounded, i)));
    return values;
  }
  static uint64_t launches() { return emulated::last_launch().number; }

  std::vector<float> biases_{1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  // Room for two.
  alignas(256) BFloat16 memory_[2 * RoundedBiases::kAlignment] = {};
  RoundedBiases rounded_{memory_, 2 * RoundedBiases::kAlignment};
  LaunchStream stream_{nullptr};
};

TEST_F(RoundedBiasesTest, EachIsRoundedOnce) {
  const Tensor first = rounded_.of(stream_, bias(0, 3)), second = rounded_.of(stream_, bias(3, 4));
  EXPECT_THAT(values(first), testing::ElementsAre(1, 2, 3));
  EXPECT_THAT(values(second), testing::ElementsAre(4, 5, 6, 7));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(second.data) % 256, 0u) << "as memory of the device is";
  const uint64_t before = launches();
  EXPECT_EQ(rounded_.of(stream_, bias(0, 3)).data, first.data);
  EXPECT_EQ(rounded_.of(stream_, bias(3, 4)).data, second.data);
  EXPECT_EQ(launches(), before);
}

TEST_F(RoundedBiasesTest, WhatIsWrittenAnewIsRoundedAnew) {
  rounded_.of(stream_, bias(0, 2));
  rounded_.of(stream_, bias(2, 2));
  biases_[1] = 20;
  rounded_.forget(&biases_[1], sizeof(float));
  const uint64_t before = launches();
  rounded_.of(stream_, bias(2, 2));
  EXPECT_EQ(launches(), before) << "nothing of it was written";
  EXPECT_THAT(values(rounded_.of(stream_, bias(0, 2))), testing::ElementsAre(1, 20));
  biases_ = std::vector<float>(10, 5.0f);
  rounded_.forget(biases_.data(), biases_.size() * sizeof(float));
  EXPECT_THAT(values(rounded_.of(stream_, bias(2, 2))), testing::ElementsAre(5, 5));
}

TEST_F(RoundedBiasesTest, AnotherLengthIsAnotherBias) {
  rounded_.of(stream_, bias(0, 2));
  EXPECT_THAT(values(rounded_.of(stream_, bias(0, 4))), testing::ElementsAre(1, 2, 3, 4));
}

TEST_F(RoundedBiasesTest, WithoutRoomThoseBeforeAreGivenUp) {
  rounded_.of(stream_, bias(0, 5));
  rounded_.of(stream_, bias(0, 4));
  EXPECT_THAT(values(rounded_.of(stream_, bias(5, 4))), testing::ElementsAre(6, 7, 8, 9));
  EXPECT_THAT(values(rounded_.of(stream_, bias(0, 5))), testing::ElementsAre(1, 2, 3, 4, 5));
}

}  // namespace
}  // namespace troupe::cuda
