// The stand-in for cuBLASLt: what it computes, and in which order of a stream.

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "tests/kernels/emulated/cublas_lt/cublas_lt_testing.h"

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

// D (n, m) of sums that are split: each part by itself, rounded to bfloat16 or not, then all of them.
std::vector<float> split_sums(const LtTestProduct& product, const ProductShape& shape, int32_t splits,
                              bool rounds) {
  std::vector<float> sums;
  for (int64_t j = 0; j < shape.n; ++j) {
    for (int64_t i = 0; i < shape.m; ++i) {
      float sum = 0;
      for (int32_t split = 0; split < splits; ++split) {
        const float part =
            product.sum(i, j, shape.depth * split / splits, shape.depth * (split + 1) / splits);
        sum += rounds ? float{__nv_bfloat16(part)} : part;
      }
      sums.push_back(sum);
    }
  }
  return sums;
}

// Every algorithm that is offered, in the order of its own additions.
TEST_F(CublasLt, AddsUpEachSplitByItselfAndThenAllOfThem) {
  for (const auto& [type, out_type] : kTypes) {
    const ProductShape shape{type, out_type, 72, 40, 500, true, false, /*padding=*/8};
    LtTestProduct product(shape);
    product.give_workspace(size_t{1} << 20);
    product.add_bias();
    std::map<std::pair<int32_t, uint32_t>, std::vector<float>> expected;
    for (const auto& result : product.results()) {
      const int32_t splits = splits_of(result.algo);
      const uint32_t scheme = scheme_of(result.algo);
      const bool rounds = scheme == CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE && out_type == CUDA_R_16BF;
      std::vector<float>& sums = expected[{splits, scheme}];
      if (sums.empty()) sums = split_sums(product, shape, splits, rounds);
      product.d.fill(std::nanf(""));
      product.workspace.back().fill(std::nanf(""));
      ASSERT_EQ(product.multiply(&result.algo), CUBLAS_STATUS_SUCCESS);
      EXPECT_TRUE(product.is([&](int64_t i, int64_t j) {
        return sums[static_cast<size_t>(j * shape.m + i)] + product.bias.at(i, 0);
      })) << splits
          << " splits, scheme " << scheme;
    }
    EXPECT_EQ(expected.size(), 7u) << "none, and three numbers of splits in two schemes";
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

struct Nodes {
  size_t kernels = 0, others = 0;
  unsigned cluster = 0;  // blocks of the largest
};

Nodes nodes_of(cudaGraph_t graph) {
  size_t count = 0;
  EXPECT_EQ(cudaGraphGetNodes(graph, nullptr, &count), cudaSuccess);
  std::vector<cudaGraphNode_t> nodes(count);
  EXPECT_EQ(cudaGraphGetNodes(graph, nodes.data(), &count), cudaSuccess);
  Nodes found;
  for (const cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type{};
    EXPECT_EQ(cudaGraphNodeGetType(node, &type), cudaSuccess);
    if (type != cudaGraphNodeTypeKernel) {
      ++found.others;
      continue;
    }
    ++found.kernels;
    cudaLaunchAttributeValue value = {};
    EXPECT_EQ(cudaGraphKernelNodeGetAttribute(node, cudaLaunchAttributeClusterDimension, &value),
              cudaSuccess);
    const auto& cluster = value.clusterDim;
    found.cluster = std::max(found.cluster, cluster.x * cluster.y * cluster.z);
  }
  return found;
}

unsigned cluster_blocks(const cublasLtMatmulAlgo_t& algorithm) {
  switch (config_of<uint16_t>(algorithm, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID)) {
    case CUBLASLT_CLUSTER_SHAPE_1x1x1:
      return 0;  // launched without the attribute
    case CUBLASLT_CLUSTER_SHAPE_2x1x1:
    case CUBLASLT_CLUSTER_SHAPE_1x2x1:
      return 2;
    case CUBLASLT_CLUSTER_SHAPE_4x1x1:
      return 4;
    case CUBLASLT_CLUSTER_SHAPE_8x1x1:
      return 8;
  }
  return 99;
}

// One kernel; with splits a second one, or a memset before the one.
TEST_F(CublasLt, IsCapturedInNodesThatARunOfTheGraphComputes) {
  LtTestProduct product({CUDA_R_16BF, CUDA_R_32F, 72, 40, 512});
  product.give_workspace(size_t{1} << 20);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  std::set<unsigned> clusters;
  for (const auto& result : product.results()) {
    product.d.fill(std::nanf(""));
    ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), cudaSuccess);
    ASSERT_EQ(product.multiply(&result.algo, 1, 0, stream), CUBLAS_STATUS_SUCCESS);
    cudaGraph_t graph = nullptr;
    ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    EXPECT_TRUE(std::isnan(product.d.at(0, 0)));
    const Nodes nodes = nodes_of(graph);
    const bool splits = splits_of(result.algo) > 1;
    const bool counts = config_of<uint32_t>(result.algo, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION) == 1;
    EXPECT_EQ(nodes.kernels, splits && !counts ? 2u : 1u);
    EXPECT_EQ(nodes.others, counts ? 1u : 0u);
    EXPECT_EQ(nodes.cluster, cluster_blocks(result.algo));
    clusters.insert(nodes.cluster);
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
  EXPECT_EQ(clusters, (std::set<unsigned>{0, 2, 4, 8}));
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

}  // namespace troupe::cublas_lt_test
