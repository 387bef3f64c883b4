// The warm-up covers the device's first-time costs before the first request. runner_test.cc checks that it
// changes no answer.

#include "worker/model/warm_up.h"

#include <gtest/gtest.h>

#include <numeric>

#include "kernels/backends.h"
#include "kernels/kernels.h"
#include "tests/common/temp_dir.h"
#include "tests/worker/model/made_up_model.h"

namespace troupe {
namespace warm_up_test {

constexpr int kLanes = 6;
constexpr BlockId kBlocksEach = 20;

class WarmUp : public testing::Test {
 protected:
  void SetUp() override {
    const TempDir dir;
    dir.write("config.json", kMadeUpModel);
    options_.model_dir = dir.path();
    options_.load_format = LoadFormat::kDummy;
    options_.backend = EMULATED_MODULE;
    options_.dtype = DType::kBFloat16;
    options_.max_num_seqs = kLanes;
    options_.max_batched_tokens = 64;
    options_.kv_cache_tokens = kLanes * kBlocksEach * options_.block_size;
    auto runner = ModelRunner::load(options_);
    ASSERT_TRUE(runner.ok()) << runner.status();
    runner_ = std::move(*runner);
    auto device = make_backend(EMULATED_MODULE, {.dtype = DType::kBFloat16});
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = std::move(*device);
  }
  int64_t free_bytes() const { return device_->device_memory()->free_bytes; }

  // Runs a step of decodes after `start` tokens, of which the first `shared` blocks are the same for all.
  void decode(int lanes, int32_t start, BlockId shared, float temperature) {
    const std::vector<TokenId> ids{7};
    std::vector<std::vector<BlockId>> tables;
    for (BlockId lane = 0; lane < lanes; ++lane) {
      auto& table = tables.emplace_back(static_cast<size_t>(kBlocksEach));
      std::iota(table.begin(), table.end(), lane * kBlocksEach);
      std::iota(table.begin(), table.begin() + shared, 0);
    }
    Batch batch;
    for (const auto& table : tables) {
      BatchItem& item = batch.items.emplace_back();
      item.ids = ids;
      item.count = 1;
      item.start = start;
      item.samples = true;
      item.blocks = table;
    }
    const std::vector<SampleRow> draws(tables.size(), {.draw = {.temperature = temperature}});
    const auto output = runner_->run(batch, {draws, {}});
    ASSERT_TRUE(output.ok()) << output.status();
  }

  RunnerOptions options_;
  std::unique_ptr<ModelRunner> runner_;
  std::unique_ptr<Backend> device_;  // shares the runner's device
};

TEST_F(WarmUp, NoDecodeStepTakesMemoryLater) {
  const int64_t cold = free_bytes();
  const Status warmed = warm_up(*runner_, options_);
  ASSERT_TRUE(warmed.ok()) << warmed;
  const int64_t warm = free_bytes();
  EXPECT_LT(warm, cold) << "graphs take memory: the comparison can fail";
  for (const int lanes : {1, 2, 3, 4, 6}) {
    for (const float temperature : {0.0f, 1.0f}) {
      decode(lanes, 0, 0, temperature);
      decode(lanes, 300, 0, temperature);
      decode(lanes, 300, 18, temperature);
      EXPECT_EQ(free_bytes(), warm) << lanes;
    }
  }
}

TEST(WarmUpSizes, AreTheBucketsTheLargestAndAllDecodes) {
  EXPECT_EQ(warm_up_sizes(200, 48),
            (std::vector<int64_t>{1, 2, 4, 8, 16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 200}));
  EXPECT_EQ(warm_up_sizes(64, 64), (std::vector<int64_t>{1, 2, 4, 8, 16, 32, 64}));
  EXPECT_EQ(warm_up_sizes(6, 100), (std::vector<int64_t>{1, 2, 4, 6}));
  EXPECT_EQ(warm_up_sizes(1, 1), (std::vector<int64_t>{1}));
}

}  // namespace warm_up_test
}  // namespace troupe
