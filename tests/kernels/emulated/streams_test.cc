// Streams that do their work as late as they may.

#include <cuda_runtime.h>

#include <utility>
#include <vector>

#include "kernels/cuda/device/ptx.cuh"
#include "tests/kernels/emulated/emulator_testing.h"

namespace troupe::emulated_streams_test {

using namespace emulator_testing;

class EmulatedStreams : public EmulatorTest {
 protected:
  void SetUp() override {
    EmulatorTest::SetUp();
    set_late(true);
    ASSERT_EQ(cudaStreamCreate(&stream_), cudaSuccess);
    ASSERT_EQ(cudaEventCreate(&event_), cudaSuccess);
    ASSERT_EQ(cudaMalloc(&device_, sizeof(int)), cudaSuccess);
    ASSERT_EQ(cudaMallocHost(&pinned_, sizeof(int)), cudaSuccess);
    cudaMemset(device_, 0, sizeof(int));
  }
  void TearDown() override {
    EXPECT_EQ(cudaFree(device_), cudaSuccess);
    EXPECT_EQ(cudaFreeHost(pinned_), cudaSuccess);
    EXPECT_EQ(cudaEventDestroy(event_), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
    set_late(false);
    EmulatorTest::TearDown();
  }
  void add_later(int amount);

  cudaStream_t stream_ = nullptr;
  cudaEvent_t event_ = nullptr;
  int* device_ = nullptr;
  int* pinned_ = nullptr;
};

__global__ void add(int* to, int amount) {
  *to += amount;
}

void EmulatedStreams::add_later(int amount) {
  const cudaLaunchConfig_t config{1, 1, 0, stream_, nullptr, 0};
  ASSERT_EQ(cudaLaunchKernelEx(&config, add, device_, amount), cudaSuccess);
}

TEST_F(EmulatedStreams, ALaunchHappensWhenItIsWaitedFor) {
  add_later(3);
  EXPECT_EQ(*device_, 0);
  ASSERT_EQ(cudaEventRecord(event_, stream_), cudaSuccess);
  add_later(4);
  EXPECT_EQ(cudaEventSynchronize(event_), cudaSuccess);
  EXPECT_EQ(*device_, 3) << "what is behind the event is not waited for";
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(*device_, 7);
}

TEST_F(EmulatedStreams, PinnedMemoryIsReadLateAndOtherMemoryAtOnce) {
  int own = 5;
  EXPECT_EQ(cudaMemcpyAsync(device_, &own, sizeof(own), cudaMemcpyHostToDevice, stream_), cudaSuccess);
  own = 6;
  cudaStreamSynchronize(stream_);
  EXPECT_EQ(*device_, 5);
  *pinned_ = 5;
  EXPECT_EQ(cudaMemcpyAsync(device_, pinned_, sizeof(int), cudaMemcpyHostToDevice, stream_), cudaSuccess);
  *pinned_ = 6;  // too early
  cudaStreamSynchronize(stream_);
  EXPECT_EQ(*device_, 6);
}

TEST_F(EmulatedStreams, PinnedMemoryIsWrittenLateAndOtherMemoryAtOnce) {
  int own = 0;
  *pinned_ = 0;
  add_later(2);
  EXPECT_EQ(cudaMemcpyAsync(pinned_, device_, sizeof(int), cudaMemcpyDeviceToHost, stream_), cudaSuccess);
  EXPECT_EQ(*pinned_, 0);
  EXPECT_EQ(cudaMemcpyAsync(&own, device_, sizeof(int), cudaMemcpyDeviceToHost, stream_), cudaSuccess);
  EXPECT_EQ(own, 2);
  EXPECT_EQ(*pinned_, 2);
}

TEST_F(EmulatedStreams, FreeingMemoryWaitsForItsUsers) {
  int* other = nullptr;
  ASSERT_EQ(cudaMalloc(&other, sizeof(int)), cudaSuccess);
  add_later(2);
  EXPECT_EQ(cudaFree(other), cudaSuccess);
  EXPECT_EQ(*device_, 2);
}

TEST_F(EmulatedStreams, AGraphIsReplayedAndTakesOverWhatAnotherCaptured) {
  const auto capture = [&](const std::vector<int>& amounts) {
    EXPECT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed), cudaSuccess);
    for (const int amount : amounts) add_later(amount);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaErrorStreamCaptureUnsupported);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorStreamCaptureUnsupported);
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
    return graph;
  };
  const cudaGraph_t first = capture({1, 2}), other = capture({10, 20}), longer = capture({1, 1, 1});
  cudaStreamSynchronize(stream_);
  EXPECT_EQ(*device_, 0) << "captured, not launched";
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&executable, first, 0), cudaSuccess);
  EXPECT_EQ(cudaGraphLaunch(executable, stream_), cudaSuccess);
  cudaGraphExecUpdateResultInfo result = {};
  EXPECT_EQ(cudaGraphExecUpdate(executable, longer, &result), cudaErrorGraphExecUpdateFailure);
  EXPECT_EQ(cudaGraphExecUpdate(executable, other, &result), cudaSuccess);
  EXPECT_EQ(cudaGraphLaunch(executable, stream_), cudaSuccess);
  cudaStreamSynchronize(stream_);
  EXPECT_EQ(*device_, 33) << "what was launched before the update is not changed by it";
  for (const cudaGraph_t graph : {first, other, longer}) EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
}

TEST_F(EmulatedStreams, AnUpdatedGraphKeepsItsClusters) {
  cudaGraphNode_t node = nullptr;
  const auto capture = [&](unsigned x) {
    EXPECT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed), cudaSuccess);
    cudaLaunchAttribute cluster{cudaLaunchAttributeClusterDimension, {0, {x, 1, 1}, 0}};
    const cudaLaunchConfig_t config{2, 1, 0, stream_, &cluster, x == 0 ? 0u : 1u};
    EXPECT_EQ(cudaLaunchKernelEx(&config, add, device_, 1), cudaSuccess);
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
    size_t count = 1;
    EXPECT_EQ(cudaGraphGetNodes(graph, &node, &count), cudaSuccess);
    cudaLaunchAttributeValue value = {};
    EXPECT_EQ(cudaGraphKernelNodeGetAttribute(node, cudaLaunchAttributeClusterDimension, &value),
              cudaSuccess);
    EXPECT_EQ(value.clusterDim.x, x);
    return graph;
  };
  const cudaGraph_t without = capture(0), of_two = capture(2);
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&executable, of_two, 0), cudaSuccess);
  cudaGraphExecUpdateResultInfo result = {};
  for (const auto& [graph, sum] : {std::pair{of_two, 2}, std::pair{without, 2}, std::pair{of_two, 4}}) {
    EXPECT_EQ(cudaGraphExecUpdate(executable, graph, &result), cudaSuccess);
    EXPECT_EQ(cudaGraphLaunch(executable, stream_), cudaSuccess);
    cudaStreamSynchronize(stream_);
    EXPECT_EQ(*device_, sum) << "of the wrong clusters nothing comes";
  }
  for (const cudaGraph_t graph : {without, of_two}) EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(cudaGraphLaunch(executable, stream_), cudaSuccess);
  EXPECT_DEATH(cudaGraphExecDestroy(executable), "a graph is destroyed whose launch is still to be done");
  cudaStreamSynchronize(stream_);
  EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
}

TEST_F(EmulatedStreams, AThreadThatOnlyAsksGetsTheWorkDoneBitByBit) {
  add_later(3);
  ASSERT_EQ(cudaEventRecord(event_, stream_), cudaSuccess);
  add_later(4);
  EXPECT_EQ(cudaStreamQuery(stream_), cudaErrorNotReady);
  EXPECT_EQ(*device_, 3);
  EXPECT_EQ(cudaEventQuery(event_), cudaSuccess);
  EXPECT_EQ(*device_, 3);
  EXPECT_EQ(cudaStreamQuery(stream_), cudaSuccess);
  EXPECT_EQ(*device_, 7);
}

constexpr int kThreads = 64;

struct Seen {
  int before[2 * kThreads], after[2 * kThreads];
};

// Each thread records the value before and after it awaits the launch before.
__global__ void look(const int* at, Seen* seen) {
  const unsigned i = blockIdx.x * kThreads + threadIdx.x;
  seen->before[i] = *at;
  cuda::await_launch_before();
  __syncthreads();
  seen->after[i] = *at;
}

__global__ void add_and_await(int* to, int amount) {
  cuda::await_launch_before();
  *to += amount;
}

// Every second thread ends at once.
__global__ void await_by_halves() {
  if (threadIdx.x % 2 == 0) cuda::await_launch_before();
}

template <class... P, class... A>
void launch_dependent(cudaStream_t stream, int blocks, int threads, void (*kernel)(P...), A... arguments) {
  cudaLaunchAttribute overlaps{cudaLaunchAttributeProgrammaticStreamSerialization, {0, {1, 1, 1}, 1}};
  const cudaLaunchConfig_t config{blocks, threads, 0, stream, &overlaps, 1};
  ASSERT_EQ(cudaLaunchKernelEx(&config, kernel, arguments...), cudaSuccess);
}

TEST_F(EmulatedStreams, ADependentLaunchBeginsBeforeTheLaunchBeforeItHasRun) {
  Seen* seen = nullptr;
  ASSERT_EQ(cudaMalloc(&seen, sizeof(Seen)), cudaSuccess);
  add_later(3);
  launch_dependent(stream_, 2, kThreads, look, device_, seen);
  launch_dependent(stream_, 1, 1, add_and_await, device_, 4);
  launch_dependent(stream_, 1, 1, add_and_await, device_, 5);  // of one kernel two launches do not overlap
  cudaStreamSynchronize(stream_);
  EXPECT_EQ(*device_, 12);
  for (int i = 0; i < 2 * kThreads; ++i) {
    EXPECT_EQ(seen->before[i], i < kThreads ? 0 : 3) << i;  // the first block's came early
    EXPECT_EQ(seen->after[i], 3) << i;
  }
  // Behind an event that is waited for alone, it begins when it is known to follow.
  add_later(1);
  ASSERT_EQ(cudaEventRecord(event_, stream_), cudaSuccess);
  launch_dependent(stream_, 2, kThreads, look, device_, seen);
  cudaEventSynchronize(event_);
  EXPECT_EQ(*device_, 13);
  cudaStreamSynchronize(stream_);
  EXPECT_EQ(seen->before[0], 13);
  EXPECT_EQ(cudaFree(seen), cudaSuccess);
}

TEST_F(EmulatedStreams, ADependentLaunchInAGraphBeginsEarlyToo) {
  Seen* seen = nullptr;
  ASSERT_EQ(cudaMalloc(&seen, sizeof(Seen)), cudaSuccess);
  set_late(false);
  EXPECT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed), cudaSuccess);
  add_later(3);
  launch_dependent(stream_, 2, kThreads, look, device_, seen);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  for (const int sum : {3, 6}) {
    EXPECT_EQ(cudaGraphLaunch(executable, stream_), cudaSuccess);
    EXPECT_EQ(seen->before[0], sum - 3);
    EXPECT_EQ(seen->before[kThreads], sum);
    EXPECT_EQ(seen->after[0], sum);
  }
  EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(cudaFree(seen), cudaSuccess);
}

TEST_F(EmulatedStreams, AThreadThatEndsWithoutAwaitingTheLaunchBeforeIsReported) {
  set_late(false);
  const cudaLaunchConfig_t config{1, 2, 0, stream_, nullptr, 0};
  ASSERT_EQ(cudaLaunchKernelEx(&config, await_by_halves), cudaSuccess)
      << "nothing is asked of other launches";
  EXPECT_DEATH(launch_dependent(stream_, 1, 2, await_by_halves),
               "thread ended without awaiting the launch before it");
}

}  // namespace troupe::emulated_streams_test
