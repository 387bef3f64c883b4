// A launch is timed with a cache full of other memory, which was read before. (The emulator's events have no
// time.)

#include "kernels/cuda/step/launch_timer.h"

#include <numeric>

#include "kernels/cuda/device/read_memory.h"
#include "kernels/cuda/gemm/gemm_kernels.h"
#include "tests/kernels/cuda/cuda_testing.h"

namespace troupe::launch_timer_test {

using namespace cuda_testing;

TEST(LaunchTimer, ReadsOtherMemoryBeforeEachLaunchThatItTimes) {
  const OwnedTensor x(DType::kFloat32, {4});
  const OwnedTensor out(DType::kBFloat16, {4});
  std::vector<uint64_t> launched;  // in the process before each
  const double seconds = cuda::seconds_of_launch("a test", nullptr, [&] {
    launched.push_back(emulated::last_launch().number);
    cuda::round_vector(nullptr, x.view(), out.view());
  });
  EXPECT_EQ(seconds, 0);
  ASSERT_EQ(launched.size(), 6u) << "the first is not timed";
  for (size_t i = 1; i < launched.size(); ++i) {
    EXPECT_EQ(launched[i] - launched[i - 1], 2u) << "its own and the reading one";
  }
}

TEST(ReadMemory, ReadsEveryWord) {
  for (const size_t count : {4u, 1000u, 100000u}) {
    OwnedTensor words(DType::kInt32, {static_cast<int64_t>(count)});
    auto* const values = words.view().as<uint32_t>();
    std::iota(values, values + count, 0x7fffff00u);
    const uint32_t truth = std::accumulate(values, values + count, 7u);
    for (int order = 0; order < 3; ++order) {
      set_thread_order(order);
      uint32_t sum = 7;
      cuda::read_memory(nullptr, values, count * sizeof(uint32_t), &sum);
      EXPECT_EQ(sum, truth) << count << " words";
    }
  }
  set_thread_order(0);
}

}  // namespace troupe::launch_timer_test
