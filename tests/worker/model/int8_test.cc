// A model with int8 weights: the distance of its log-probabilities from the float32 ones, and their
// dependence on the tokens alone.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/worker/model/demo_model.h"

namespace troupe {
namespace int8_model_test {

std::vector<float> scores(const RunnerOptions& options, const std::vector<TokenId>& ids) {
  const auto runner = ModelRunner::load(options);
  EXPECT_TRUE(runner.ok()) << runner.status();
  if (!runner.ok()) return {};
  const auto result = (*runner)->logprobs(ids);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? *result : std::vector<float>{};
}

RunnerOptions int8_options(const std::string& backend, DType dtype) {
  RunnerOptions options = demo_options(backend);
  options.weight_format = WeightFormat::kInt8;
  options.dtype = dtype;
  return options;
}

// 0.013 on average when this was written, in float32 as in bfloat16, for a trained model of 8 layers. A wrong
// scale or a lost column anywhere exceeds the bound by far.
constexpr double kMeanErrorMax = 0.03;
constexpr double kWorstErrorMax = 0.5;

TEST(Int8Model, LogProbabilitiesAreNearTheFloatOnes) {
  const std::vector<TokenId> ids = golden_cases()[20].all_ids();
  const std::vector<float> exact = scores(demo_options("cpu"), ids);
  for (DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    const std::vector<float> rounded = scores(int8_options("cpu", dtype), ids);
    ASSERT_EQ(rounded.size(), exact.size());
    double total = 0;
    double worst = 0;
    for (size_t i = 0; i < exact.size(); ++i) {
      const double error = std::abs(double{rounded[i]} - double{exact[i]});
      total += error;
      worst = std::max(worst, error);
    }
    const double mean = total / static_cast<double>(exact.size());
    RecordProperty(std::string("mean_error_") + std::string(dtype_name(dtype)), std::to_string(mean));
    EXPECT_LT(mean, kMeanErrorMax) << dtype_name(dtype) << ", " << exact.size() << " tokens";
    EXPECT_LT(worst, kWorstErrorMax) << dtype_name(dtype);
    EXPECT_GT(mean, 1e-4) << "nothing was rounded";
  }
}

TEST(Int8Model, ChunksOfAPromptChangeNoBit) {
  std::vector<TokenId> ids = golden_cases()[0].all_ids();
  ids.resize(std::min<size_t>(ids.size(), 48));
  RunnerOptions options = int8_options("cpu", DType::kFloat32);
  const std::vector<float> whole = scores(options, ids);
  options.max_batched_tokens = 7;
  options.threads = 3;
  EXPECT_EQ(scores(options, ids), whole);
}

TEST(Int8Model, DescriptionReportsInt8Weights) {
  const auto runner = ModelRunner::load(int8_options("cpu", DType::kBFloat16));
  ASSERT_TRUE(runner.ok()) << runner.status();
  EXPECT_NE((*runner)->description().find("MiB of int8"), std::string::npos) << (*runner)->description();
}

}  // namespace int8_model_test
}  // namespace troupe
