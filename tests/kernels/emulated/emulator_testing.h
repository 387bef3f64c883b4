#pragma once

// Shared by the emulator's own tests.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/kernels/emulated/emulator.h"

namespace troupe::emulator_testing {

using namespace emulated;

class EmulatorTest : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  void TearDown() override {
    set_order(Order::kForward);
    cudaGetLastError();
  }
};

struct OrderCase {
  Order order;
  uint32_t seed;
};
inline constexpr OrderCase kOrders[] = {
    {Order::kForward, 0}, {Order::kReverse, 0}, {Order::kShuffled, 1}, {Order::kShuffled, 2}};

template <class... E, class... A>
void run(dim3 grid, dim3 block, size_t shared_bytes, void (*kernel)(E...), A... arguments) {
  const cudaLaunchConfig_t config{grid, block, shared_bytes, nullptr, nullptr, 0};
  ASSERT_EQ(cudaLaunchKernelEx(&config, kernel, arguments...), cudaSuccess);
}

inline std::vector<__nv_bfloat16> random_values(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<__nv_bfloat16> values(count);
  for (auto& value : values) value = __float2bfloat16(normal(random));
  return values;
}

}  // namespace troupe::emulator_testing
