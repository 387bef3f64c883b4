// The host's side of the CUDA backend checks its callers: a mistake ends the process where it is made, not as
// a kernel's wild read.

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "kernels/cuda/attention/attention_plan.h"
#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/gemm/rounded_biases.h"
#include "kernels/cuda/gemm/weight_upload.h"
#include "kernels/cuda/step/readback.h"
#include "kernels/cuda/step/step_arrays.h"
#include "kernels/cuda/step/step_graphs.h"

namespace troupe::cuda::contracts_test {

struct Stream {
  Stream() { cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking); }
  ~Stream() { cudaStreamDestroy(handle); }
  cudaStream_t handle = nullptr;
};

TEST(ContractDeathTest, APlanIsOfARightShape) {
  const std::array<int32_t, 3> starts{0, 1, 2};
  const std::array<int32_t, 2> contexts{5, 9}, tables{0, 1};
  const AttentionShape shape{starts, contexts};
  AttentionPlan plan;
  plan_attention(shape, plan);
  EXPECT_EQ(plan.pieces.size(), 2u);
  AttentionShape bad = shape;
  bad.query_starts = std::span(starts).first(2);
  EXPECT_DEATH(plan_attention(bad, plan), "2 requests with 2 starts");
  bad = shape;
  bad.piece_keys = kPieceKeys + 1;
  EXPECT_DEATH(plan_attention(bad, plan), "pieces of 257 keys");
  bad = shape;
  bad.tile_rows = 32;
  EXPECT_DEATH(plan_attention(bad, plan), "tiles of 32 rows");
  bad = shape;
  bad.block_tables = tables;
  bad.block_table_stride = 2;
  EXPECT_DEATH(plan_attention(bad, plan), "2 entries of block tables for 2 requests");
}

TEST(ContractDeathTest, ACascadeIsOfTwoRequestsAtLeast) {
  EXPECT_EQ(CascadeGate::size_of(2), 0u);
  EXPECT_DEATH(CascadeGate::size_of(1), "1 requests share nothing");
}

TEST(ContractDeathTest, AGraphsStepBeginsEndsAndIsLaunchedInThisOrder) {
  const Stream stream;
  StepGraphs graphs(stream.handle);
  EXPECT_DEATH(graphs.end(), "has not begun");
  EXPECT_DEATH(graphs.launch(), "no step has ended");
  graphs.begin();
  EXPECT_DEATH(graphs.begin(), "before the last one's end");
  graphs.end();
  graphs.launch();
  EXPECT_DEATH(graphs.launch(), "no step has ended");
}

TEST(ContractDeathTest, ArraysStepsFollowOneAnother) {
  const Stream stream;
  Watchdog watchdog(std::chrono::milliseconds{0});
  StepArrays arrays(stream.handle, watchdog, [] {});
  EXPECT_DEATH(arrays.end_step(), "has not begun");
  arrays.begin_step(/*whole=*/false);
  EXPECT_DEATH(arrays.begin_step(/*whole=*/false), "within another");
  arrays.end_step();
}

TEST(ContractDeathTest, MemoryIsAsLargeAsItIsUsed) {
  const Stream stream;
  Watchdog watchdog(std::chrono::milliseconds{0});
  const auto readback = PinnedReadback::make(stream.handle, watchdog, 8);
  const std::array<char, 16> bytes{};
  EXPECT_DEATH(readback->start(bytes.data(), 16), "16 bytes, made for 8");
  EXPECT_DEATH(RoundedBiases(nullptr, RoundedBiases::kAlignment + 1), "room for parts of a bias");
  EXPECT_DEATH(WeightUpload::make(stream.handle, {.threads = 0}), "0 threads");
  std::vector<float> from(6), to(4);
  const auto upload = WeightUpload::make(stream.handle, {});
  EXPECT_DEATH(upload->copy(Tensor::make(from.data(), DType::kFloat32, {2, 3}),
                            Tensor::make(to.data(), DType::kFloat32, {2, 2})),
               R"(\[2, 3\] float32 to \[2, 2\] float32)");
}

TEST(ContractDeathTest, ADivisorIsPositive) {
  EXPECT_DEATH(Divisor(0), "divide: by 0");
}

}  // namespace troupe::cuda::contracts_test
