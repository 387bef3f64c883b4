// A device that hangs: the process ends and names the ops of which one does not, instead of waiting for ever.

#include "kernels/cuda/device/watchdog.h"

#include <chrono>
#include <vector>

#include "kernels/cuda/gemm/gemm_kernels.h"
#include "tests/kernels/cuda/cuda_testing.h"

namespace troupe::watchdog_test {

using namespace cuda_testing;

constexpr std::chrono::milliseconds kShort{20};

class Watchdog : public ::testing::Test {
 protected:
  void SetUp() override {
    emulated::set_late(true);
    ASSERT_EQ(cudaStreamCreate(&stream_), cudaSuccess);
    ASSERT_EQ(cudaEventCreate(&event_), cudaSuccess);
  }
  void TearDown() override {
    emulated::set_hung(false);
    cudaEventDestroy(event_);
    cudaStreamDestroy(stream_);
    emulated::set_late(false);
  }
  // Work for the stream, named `op`.
  void launch(cuda::Watchdog& watchdog, const char* op) {
    cudaMemsetAsync(&memory_, 1, sizeof(memory_), stream_);
    watchdog.launched(op);
  }

  cudaStream_t stream_ = nullptr;
  cudaEvent_t event_ = nullptr;
  int memory_ = 0;
};

TEST_F(Watchdog, WaitsForADeviceThatIsSlow) {
  cuda::Watchdog watchdog(std::chrono::hours{1});
  for (int i = 0; i < 5; ++i) launch(watchdog, "embed");
  ASSERT_EQ(cudaEventRecord(event_, stream_), cudaSuccess);
  watchdog.wait("readback", event_, watchdog.launch_count());
  EXPECT_EQ(memory_, 0x01010101);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess) << "that it was not ready is forgotten";
}

TEST_F(Watchdog, NamesWhatWasLaunchedSinceTheLastWait) {
  cuda::Watchdog watchdog(kShort);
  launch(watchdog, "embed");
  watchdog.wait("upload", stream_);
  for (const char* op : {"rms_norm", "matmul", "rms_norm", "sample"}) launch(watchdog, op);
  ASSERT_EQ(cudaEventRecord(event_, stream_), cudaSuccess);
  const uint64_t launches = watchdog.launch_count();
  launch(watchdog, "copy_blocks");  // of the next step
  emulated::set_hung(true);
  EXPECT_DEATH(
      watchdog.wait("readback", event_, launches),
      "readback: the device hangs: not done after 0.02 s. .*: 2 x rms_norm, 1 x matmul, 1 x sample\n");
  EXPECT_DEATH(watchdog.wait("download", stream_), "download: .*, 1 x sample, 1 x copy_blocks\n");
}

// More than are remembered.
TEST_F(Watchdog, NamesTheLastOfVeryManyLaunches) {
  cuda::Watchdog watchdog(kShort);
  watchdog.launched("embed");
  for (int i = 0; i < 5000; ++i) watchdog.launched("matmul");
  launch(watchdog, "sample");
  emulated::set_hung(true);
  EXPECT_DEATH(watchdog.wait("readback", stream_),
               "launches since the last wait: 2047 x matmul, 1 x sample\n");
}

TEST_F(Watchdog, WithoutALimitTheWaitIsForEver) {
  cuda::Watchdog watchdog(std::chrono::milliseconds{0});
  launch(watchdog, "embed");
  emulated::set_hung(true);
  EXPECT_DEATH(watchdog.wait("readback", stream_), "emulated CUDA: a wait for a device that hangs");
}

// A step of the backend's, launched whole and one by one.
TEST_F(Watchdog, ABackendsWaitsEnd) {
  for (const bool graphs : {true, false}) {
    const auto backend =
        make_cuda_with({.dtype = DType::kBFloat16, .cuda = {.graphs = graphs, .hang_timeout = kShort}});
    OwnedTensor gate_up(DType::kBFloat16, {1, 16}), out(DType::kBFloat16, {1, 8});
    auto readback = backend->make_readback(16);
    ASSERT_TRUE(readback.ok()) << readback.status();
    const auto step = [&] {
      const StepScope scope(*backend, StepKind::kDecode);
      backend->silu_mul({gate_up.view(), out.view()});
    };
    step();
    (*readback)->start(out.view().data, 16);
    EXPECT_NE((*readback)->wait(), nullptr);
    step();
    (*readback)->start(out.view().data, 16);
    emulated::set_hung(true);
    EXPECT_DEATH((*readback)->wait(), "readback: the device hangs: .*: 1 x silu_mul\n");
    char byte = 0;
    EXPECT_DEATH(backend->download(&byte, out.view().data, 1), "download: the device hangs: ");
    EXPECT_DEATH((step(), step(), step()), "step arrays: the device hangs: .*: 1 x silu_mul\n")
        << "a step that nothing is read of";
    emulated::set_hung(false);
    (*readback)->wait();
    EXPECT_EQ(backend->graphs().unchanged, graphs ? 1 : 0) << "the step that is named was not captured";
  }
}

}  // namespace troupe::watchdog_test
