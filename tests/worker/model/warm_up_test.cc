// The warm-up covers the device's first-time costs before the first request. runner_test.cc checks that it
// changes no answer.

#include "worker/model/warm_up.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>

#include "kernels/backends.h"
#include "kernels/kernels.h"
#include "tests/common/sanitized.h"
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
    dir.write("config.json", model());
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
  virtual std::string model() const { return kMadeUpModel; }
  int64_t free_bytes() const { return device_->device_memory()->free_bytes; }

  // One of the emulated module (tests/kernels/cuda/kernel_count.cc).
  template <typename F>
  static F* module_function(const char* name) {
    void* const module = dlopen(EMULATED_MODULE, RTLD_NOW | RTLD_NOLOAD);
    return module == nullptr ? nullptr : reinterpret_cast<F*>(dlsym(module, name));
  }

  // Runs a step of decodes after `start` tokens, of which the first `shared` blocks are the same for all.
  void decode(int lanes, int32_t start, BlockId shared, const SampleRow& draw) {
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
    const std::vector<SampleRow> draws(tables.size(), draw);
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
  for (const int lanes : kSanitized ? std::vector{1, 6} : std::vector{1, 2, 3, 4, 6}) {
    const SamplerChain chain{.tfs = 0.9f};
    for (const SampleRow& draw : {SampleRow{.draw = {.temperature = 0}}, SampleRow{.draw = {}},
                                  SampleRow{.draw = {}, .chain = &chain}}) {
      decode(lanes, 0, 0, draw);
      decode(lanes, 300, 0, draw);
      decode(lanes, 300, 18, draw);
      EXPECT_EQ(free_bytes(), warm) << lanes;
    }
  }
}

// A step's items: the lane, its ids, and the tokens before them.
struct Part {
  BlockId lane;
  int32_t count;
  int32_t start;
};

class WarmUpOfLongContexts : public WarmUp {
 protected:
  std::string model() const override {
    std::string json = kMadeUpModel;
    const std::string positions = "\"max_position_embeddings\": ";
    const size_t at = json.find(positions + "512");
    EXPECT_NE(at, std::string::npos);
    return json.replace(at, positions.size() + 3, positions + "1920");
  }

  void step(const std::vector<Part>& parts, const SampleRow& draw, const std::vector<KvCopy>& copies = {}) {
    const std::vector<TokenId> ids(64, 7);
    std::vector<BlockId> table(static_cast<size_t>(kLanes * kBlocksEach));
    std::iota(table.begin(), table.end(), 0);
    Batch batch;
    batch.copies = copies;
    for (const Part& part : parts) {
      BatchItem& item = batch.items.emplace_back();
      item.ids = std::span(ids).first(static_cast<size_t>(part.count));
      item.count = part.count;
      item.start = part.start;
      item.samples = true;
      item.blocks = std::span(table).subspan(static_cast<size_t>(part.lane * kBlocksEach));
    }
    const std::vector<SampleRow> draws(parts.size(), draw);
    const auto output = runner_->run(batch, {draws, {}});
    ASSERT_TRUE(output.ok()) << output.status();
  }
};

TEST_F(WarmUpOfLongContexts, LaunchesEveryKernelOfLaterSteps) {
  const auto launched = module_function<uint64_t()>("troupe_emulated_kernels_launched");
  const auto forget = module_function<void()>("troupe_emulated_forget_kernels");
  ASSERT_TRUE(launched != nullptr && forget != nullptr);
  forget();
  const Status warmed = warm_up(*runner_, options_);
  ASSERT_TRUE(warmed.ok()) << warmed;
  const uint64_t warm = launched();
  EXPECT_GT(warm, 0u);

  const SampleRow greedy{.draw = {.temperature = 0.0f}};
  const std::vector<LogitEdit> bias{{.token = 3, .bias = 2.0f}};
  const SampleRow edited{.draw = {.top_k = 5, .top_p = 0.8f, .min_p = 0.1f},
                         .penalties = {.repetition = 1.5f, .presence = 0.5f, .frequency = 0.5f},
                         .edits = bias};
  step({{0, 1, 0}}, edited);
  EXPECT_EQ(launched(), warm) << "edits";
  step({{0, 40, 0}}, greedy);
  EXPECT_EQ(launched(), warm) << "a prompt";
  step({{0, 3, 40}, {1, 1, 300}, {2, 20, 100}}, greedy);
  EXPECT_EQ(launched(), warm) << "prompts beside a decode";
  step({{0, 64, 1856}}, greedy);
  EXPECT_EQ(launched(), warm) << "a prompt behind cached tokens";
  step({{0, 1, 300}, {1, 1, 5}}, edited, {{.from = 100, .to = 20}});
  EXPECT_EQ(launched(), warm) << "a copy";
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
