// The stand-in for cuBLASLt: what it computes, and in which order of a stream.

#include <cmath>
#include <set>

#include "tests/kernels/emulated/cublas_lt_testing.h"

namespace troupe::cublas_lt_test {

using namespace cublas_lt_testing;

class CublasLt : public EmulatorTest {};

constexpr std::pair<cudaDataType_t, cudaDataType_t> kTypes[] = {
    {CUDA_R_16BF, CUDA_R_16BF}, {CUDA_R_16BF, CUDA_R_32F}, {CUDA_R_32F, CUDA_R_32F}};

TEST_F(CublasLt, MultipliesMatricesOfColumnsInEveryTransposition) {
  for (const auto& [type, out_type] : kTypes) {
    for (const bool transposes_a : {false, true}) {
      for (const bool transposes_b : {false, true}) {
        LtTestProduct product({type, out_type, 37, 41, 67, transposes_a, transposes_b, /*padding=*/3});
        const auto found = product.results(1);
        ASSERT_EQ(found.size(), 1u);
        ASSERT_EQ(product.multiply(&found.front().algo, 0.5f), CUBLAS_STATUS_SUCCESS);
        EXPECT_TRUE(product.is([&](int64_t i, int64_t j) { return 0.5f * product.sum(i, j, 0, 67); }))
            << type << " " << transposes_a << transposes_b;
      }
    }
  }
}

TEST_F(CublasLt, AddsWhatCHoldsInPlaceAndOutOfPlace) {
  for (const auto& [type, out_type] : kTypes) {
    LtTestProduct product({type, out_type, 40, 33, 32});
    const auto expected = [&](const DeviceMatrix& before) {
      return [&](int64_t i, int64_t j) { return product.sum(i, j, 0, 32) + 2 * before.at(i, j); };
    };
    ASSERT_EQ(product.multiply(nullptr, 1, 2), CUBLAS_STATUS_SUCCESS);
    EXPECT_TRUE(product.is(expected(product.c)));
    product.c_is_d = true;
    DeviceMatrix before(out_type, 40, 33, 40);
    for (int64_t i = 0; i < 40 * 33; ++i) before.set(i, product.d.get(i));
    ASSERT_EQ(product.multiply(nullptr, 1, 2), CUBLAS_STATUS_SUCCESS);
    EXPECT_TRUE(product.is(expected(before)));
  }
}

TEST_F(CublasLt, ReadsNothingOfCWhereBetaIsZero) {
  LtTestProduct product({CUDA_R_16BF, CUDA_R_16BF, 40, 33, 32});
  for (const bool c_is_d : {false, true}) {
    product.c_is_d = c_is_d;
    product.c.fill(std::nanf(""));
    product.d.fill(std::nanf(""));
    ASSERT_EQ(product.multiply(), CUBLAS_STATUS_SUCCESS);
    EXPECT_TRUE(product.is([&](int64_t i, int64_t j) { return product.sum(i, j, 0, 32); }));
  }
}

TEST_F(CublasLt, AddsABiasToEachRow) {
  for (const auto& [type, out_type] : kTypes) {
    LtTestProduct product({type, out_type, 40, 33, 32});
    product.add_bias();
    for (const int32_t bias_type : {-1, static_cast<int32_t>(out_type)}) {
      product.set_desc(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, bias_type);
      product.d.fill(std::nanf(""));
      ASSERT_EQ(product.multiply(nullptr, 1, 2), CUBLAS_STATUS_SUCCESS);
      EXPECT_TRUE(product.is([&](int64_t i, int64_t j) {
        return product.sum(i, j, 0, 32) + 2 * product.c.at(i, j) + product.bias.at(i, 0);
      }));
    }
  }
}

// Every algorithm that is offered, in the order of its own additions.
TEST_F(CublasLt, AddsUpEachSplitByItselfAndThenAllOfThem) {
  constexpr int64_t kDepth = 500;
  for (const auto& [type, out_type] : kTypes) {
    LtTestProduct product({type, out_type, 72, 40, kDepth, true, false, /*padding=*/8});
    product.give_workspace(size_t{1} << 20);
    product.add_bias();
    std::set<std::pair<int32_t, uint32_t>> seen;
    for (const auto& result : product.results()) {
      const int32_t splits = splits_of(result.algo);
      const uint32_t scheme = scheme_of(result.algo);
      seen.emplace(splits, scheme);
      const bool rounds = scheme == CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE && out_type == CUDA_R_16BF;
      product.d.fill(std::nanf(""));
      product.workspace.back().fill(std::nanf(""));
      ASSERT_EQ(product.multiply(&result.algo), CUBLAS_STATUS_SUCCESS);
      EXPECT_TRUE(product.is([&](int64_t i, int64_t j) {
        float sum = 0;
        for (int32_t split = 0; split < splits; ++split) {
          const float part = product.sum(i, j, kDepth * split / splits, kDepth * (split + 1) / splits);
          sum += rounds ? float{__nv_bfloat16(part)} : part;
        }
        return sum + product.bias.at(i, 0);
      })) << splits
          << " splits, scheme " << scheme;
    }
    EXPECT_EQ(seen.size(), 7u) << "none, and three numbers of splits in two schemes";
  }
}

TEST_F(CublasLt, WritesNoMoreOfTheWorkspaceThanItAskedFor) {
  LtTestProduct product({CUDA_R_16BF, CUDA_R_16BF, 72, 40, 512});
  product.give_workspace(size_t{1} << 20);
  for (const auto& result : product.results()) {
    DeviceMatrix& workspace = product.workspace.back();
    workspace.fill(kUntouched);
    ASSERT_EQ(product.multiply(&result.algo), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(result.workspaceSize == 0, splits_of(result.algo) == 1);
    ASSERT_EQ(result.workspaceSize % 4, 0u);
    const auto used = static_cast<int64_t>(result.workspaceSize / 4);
    EXPECT_TRUE(used == 0 || workspace.get(used - 1) != kUntouched);
    EXPECT_EQ(workspace.get(used), kUntouched);
  }
}

TEST_F(CublasLt, MultipliesInTheStreamsOrderWithTheScalarsOfTheCall) {
  LtTestProduct product({CUDA_R_32F, CUDA_R_32F, 40, 33, 32});
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  set_late(true);
  float one = 1, zero = 0;
  product.a.set(0, 1000);
  ASSERT_EQ(
      cublasLtMatmul(product.handle, product.desc, &one, product.a.memory.get(), product.a_layout,
                     product.b.memory.get(), product.b_layout, &zero, product.c_place(), product.c_layout,
                     product.d.memory.get(), product.d_layout, nullptr, nullptr, 0, stream),
      CUBLAS_STATUS_SUCCESS);
  one = 7;
  zero = 7;
  EXPECT_TRUE(std::isnan(product.d.at(0, 0))) << "it was not waited for";
  product.a.set(0, 2);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_TRUE(product.is([&](int64_t i, int64_t j) { return product.sum(i, j, 0, 32); }));
  set_late(false);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

// One kernel; with splits a second one, or a memset before the one.
TEST_F(CublasLt, IsCapturedInNodesThatARunOfTheGraphComputes) {
  LtTestProduct product({CUDA_R_16BF, CUDA_R_32F, 72, 40, 512});
  product.give_workspace(size_t{1} << 20);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  for (const auto& result : product.results()) {
    product.d.fill(std::nanf(""));
    ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), cudaSuccess);
    ASSERT_EQ(product.multiply(&result.algo, 1, 0, stream), CUBLAS_STATUS_SUCCESS);
    cudaGraph_t graph = nullptr;
    ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    EXPECT_TRUE(std::isnan(product.d.at(0, 0)));
    size_t nodes = 0;
    EXPECT_EQ(cudaGraphGetNodes(graph, nullptr, &nodes), cudaSuccess);
    EXPECT_EQ(nodes, splits_of(result.algo) == 1 ? 1u : 2u);
    cudaGraphExec_t executable = nullptr;
    ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
    for (int run = 0; run < 2; ++run) {
      product.b.set(0, static_cast<float>(run));
      EXPECT_EQ(cudaGraphLaunch(executable, stream), cudaSuccess);
      EXPECT_NEAR(product.d.at(3, 0), product.sum(3, 0, 0, 512), 1e-3);
    }
    EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  }
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

}  // namespace troupe::cublas_lt_test
