// KV memory from a share of the device's memory.

#include "worker/model/load/memory_budget.h"

#include <gmock/gmock.h>

#include "tests/worker/model/tiny_model.h"
#include "worker/model/runner.h"
#include "worker/model/warm_up.h"

namespace troupe::memory_budget_test {

using testing::HasSubstr;

constexpr int64_t kGib = int64_t{1} << 30;
constexpr int64_t kMib = int64_t{1} << 20;

TEST(MemoryBudget, ShareIncludesMemoryInUse) {
  // 80 GiB, 17 of them in use: 72 - 17 less the reserve.
  const auto blocks =
      kv_blocks_that_fit({.device = {80 * kGib, 63 * kGib}, .utilization = 0.9, .block_bytes = 2 * kMib});
  ASSERT_TRUE(blocks.ok()) << blocks.status();
  EXPECT_EQ(*blocks, (55 * kGib - kStepReserveBytes) / (2 * kMib));
  const int64_t in_use = 17 * kGib + *blocks * 2 * kMib + kStepReserveBytes;
  EXPECT_NEAR(static_cast<double>(in_use) / (80.0 * kGib), 0.9, 0.02 * 0.9);
}

TEST(MemoryBudget, ErrorListsMemoryUsesWhenNothingFits) {
  const auto blocks =
      kv_blocks_that_fit({.device = {24 * kGib, 2 * kGib}, .utilization = 0.9, .block_bytes = 2 * kMib});
  ASSERT_EQ(blocks.status().code(), absl::StatusCode::kResourceExhausted);
  const std::string message(blocks.status().message());
  EXPECT_THAT(message, HasSubstr("of the device's 24.00 GiB, gpu_memory_utilization 0.9 allows 21.60 GiB"));
  EXPECT_THAT(message, HasSubstr("take 22.00 GiB"));
}

RunnerOptions tiny_options(const TempDir& dir, const std::string& backend) {
  RunnerOptions options;
  options.model_dir = dir.path();
  options.backend = backend;
  options.block_size = 4;
  options.max_batched_tokens = 6;
  options.max_num_seqs = 2;
  options.max_model_len = 12;
  return options;
}

TEST(MemoryBudget, RunnerOnADeviceTakesTheRemainingMemory) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "TSan does not know the emulator's fibers";
#endif
  const TempDir dir;
  TinyModel().write(dir);
  RunnerOptions options = tiny_options(dir, EMULATED_MODULE);  // a device of 4 GiB
  constexpr double kUtilization = 0.2;                         // the warm-up's graphs are a small part of it
  options.memory_utilization = kUtilization;
  const auto runner = ModelRunner::load(options);
  ASSERT_TRUE(runner.ok()) << runner.status();
  const int64_t kv_at_first = (*runner)->memory().kv_bytes;
  ASSERT_TRUE(warm_up(**runner, options).ok());
  const Status fitted = (*runner)->fit_kv();
  ASSERT_TRUE(fitted.ok()) << fitted;
  const RunnerMemory memory = (*runner)->memory();
  EXPECT_GT(memory.kv_bytes, kv_at_first);
  // Includes the graphs of the warm-up, which occupy device memory.
  const int64_t in_use = memory.device->total_bytes - memory.device->free_bytes;
  EXPECT_GT(in_use, memory.weight_bytes + memory.activation_bytes + memory.kv_bytes);
  EXPECT_NEAR(static_cast<double>(in_use + kStepReserveBytes) / (4.0 * kGib), kUtilization,
              kUtilization * 0.02);
  EXPECT_LE(in_use + kStepReserveBytes, static_cast<int64_t>(kUtilization * 4 * kGib));
  options.memory_utilization = 0.001;
  EXPECT_THAT(std::string(ModelRunner::load(options).status().message()), HasSubstr("no room for KV"));
}

TEST(MemoryBudget, RunnerInHostMemoryGetsAnError) {
  const TempDir dir;
  TinyModel().write(dir);
  const auto runner = ModelRunner::load(tiny_options(dir, "cpu"));
  EXPECT_THAT(std::string(runner.status().message()), HasSubstr("kv_cache_tokens 0 is not supported on cpu"));
}

}  // namespace troupe::memory_budget_test
