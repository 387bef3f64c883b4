#include "worker/model/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace troupe {
namespace rope_test {

constexpr int64_t kHeadDim = 64;
constexpr int64_t kPositions = 2048;

std::vector<float> table_of(double theta) {
  ModelConfig config;
  config.head_dim = kHeadDim;
  config.rope.theta = theta;
  std::vector<float> table(static_cast<size_t>(kPositions * kHeadDim));
  fill_rope_table(config, Tensor::make(table.data(), DType::kFloat32, {kPositions, kHeadDim}));
  return table;
}

TEST(Rope, PositionZeroRotatesNothing) {
  const std::vector<float> table = table_of(10000);
  for (size_t i = 0; i < kHeadDim / 2; ++i) {
    EXPECT_EQ(table[i], 1.0f);
    EXPECT_EQ(table[kHeadDim / 2 + i], 0.0f);
  }
}

TEST(Rope, RotatesByPositionTimesFrequency) {
  for (const double theta : {10000.0, 500000.0}) {
    const std::vector<float> table = table_of(theta);
    for (int64_t position = 0; position < kPositions; ++position) {
      for (int64_t i = 0; i < kHeadDim / 2; ++i) {
        const double angle = static_cast<double>(position) *
                             std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(kHeadDim));
        // float32 angles, as in Transformers: off by a few rounding steps of the angle itself.
        const double tolerance = 1e-6 + angle * 2e-7;
        const auto at = static_cast<size_t>(position * kHeadDim + i);
        ASSERT_NEAR(table[at], std::cos(angle), tolerance) << position << " " << i;
        ASSERT_NEAR(table[at + kHeadDim / 2], std::sin(angle), tolerance) << position << " " << i;
      }
    }
  }
}

// Where float32 angles and exact ones visibly differ, Transformers' are right by definition. The expected
// values were computed separately, with Transformers' rounding to float32.
TEST(Rope, RoundsTheAngleLikeTransformers) {
  const std::vector<float> table = table_of(10000);
  struct Expected {
    int64_t position, i;
    double cosine, sine;
  };
  const std::vector<Expected> all{{1, 1, 0.7317609786987305, 0.6815613508224487},
                                  {17, 3, 0.632781982421875, 0.7743300199508667},
                                  {2047, 0, 0.24971525371074677, -0.968319296836853},
                                  {2047, 1, -0.3573565185070038, 0.9339680671691895},
                                  {1500, 31, 0.9800609946250916, 0.19869700074195862},
                                  {1999, 5, -0.9417859315872192, 0.3362131118774414}};
  for (const Expected& e : all) {
    const auto at = static_cast<size_t>(e.position * kHeadDim + e.i);
    EXPECT_NEAR(table[at], e.cosine, 1e-6) << e.position << " " << e.i;
    EXPECT_NEAR(table[at + kHeadDim / 2], e.sine, 1e-6) << e.position << " " << e.i;
  }
}

}  // namespace rope_test
}  // namespace troupe
