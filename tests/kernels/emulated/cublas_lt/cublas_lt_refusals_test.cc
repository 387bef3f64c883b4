// The stand-in for cuBLASLt: which algorithms it names, and what it refuses.

#include <cmath>
#include <cstring>
#include <functional>
#include <set>

#include "tests/kernels/emulated/cublas_lt/cublas_lt_testing.h"

namespace troupe::cublas_lt_refusals_test {

using namespace cublas_lt_testing;

class CublasLtRefusals : public EmulatorTest {};

constexpr ProductShape kShape{CUDA_R_16BF, CUDA_R_16BF, 64, 40, 128};

void expect_refused(const ProductShape& shape, cublasStatus_t expected, const char* what,
                    const std::function<void(LtTestProduct&)>& edit) {
  LtTestProduct product(shape);
  const cublasLtMatmulAlgo_t good = product.results(1).front().algo;
  edit(product);
  EXPECT_TRUE(product.results().empty()) << what;
  EXPECT_EQ(product.status, expected) << what;
  EXPECT_EQ(product.check(good), expected) << what;
  EXPECT_EQ(product.multiply(&good), expected) << what;
  EXPECT_EQ(product.multiply(), expected) << what;
  EXPECT_TRUE(std::isnan(product.d.at(0, 0))) << what << ": it was computed";
}

void set_layout(cublasLtMatrixLayout_t& layout, const DeviceMatrix& matrix, cudaDataType_t type) {
  EXPECT_EQ(cublasLtMatrixLayoutDestroy(layout), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasLtMatrixLayoutCreate(&layout, type, static_cast<uint64_t>(matrix.rows),
                                       static_cast<uint64_t>(matrix.columns), matrix.ld),
            CUBLAS_STATUS_SUCCESS);
}

template <class Value>
void set_layout(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t name, Value value) {
  EXPECT_EQ(cublasLtMatrixLayoutSetAttribute(layout, name, &value, sizeof(value)), CUBLAS_STATUS_SUCCESS);
}

TEST_F(CublasLtRefusals, AreOfMatricesThatDoNotFitOneAnother) {
  const auto refused = [](const char* what, const std::function<void(LtTestProduct&)>& edit) {
    expect_refused(kShape, CUBLAS_STATUS_INVALID_VALUE, what, edit);
  };
  refused("A not transposed", [](auto& p) { p.set_desc(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_N); });
  refused("B transposed", [](auto& p) { p.set_desc(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_T); });
  refused("no operation", [](auto& p) { p.set_desc(CUBLASLT_MATMUL_DESC_TRANSA, int32_t{9}); });
  refused("A's columns overlap",
          [](auto& p) { set_layout(p.a_layout, CUBLASLT_MATRIX_LAYOUT_LD, int64_t{127}); });
  refused("D's columns overlap",
          [](auto& p) { set_layout(p.d_layout, CUBLASLT_MATRIX_LAYOUT_LD, int64_t{63}); });
  refused("no columns", [](auto& p) {
    p.b.columns = p.c.columns = p.d.columns = 0;
    set_layout(p.b_layout, p.b, CUDA_R_16BF);
    set_layout(p.c_layout, p.c, CUDA_R_16BF);
    set_layout(p.d_layout, p.d, CUDA_R_16BF);
  });
  refused("C of other columns", [](auto& p) {
    p.c.columns = 39;
    set_layout(p.c_layout, p.c, CUDA_R_16BF);
  });
}

TEST_F(CublasLtRefusals, AreOfTypesOrdersAndEpiloguesThatItHasNot) {
  const auto refused = [](const char* what, const std::function<void(LtTestProduct&)>& edit) {
    expect_refused(kShape, CUBLAS_STATUS_NOT_SUPPORTED, what, edit);
  };
  refused("A of another type than B", [](auto& p) { set_layout(p.a_layout, p.a, CUDA_R_32F); });
  refused("C of another type than D", [](auto& p) { set_layout(p.c_layout, p.c, CUDA_R_32F); });
  refused("half", [](auto& p) {
    set_layout(p.a_layout, p.a, CUDA_R_16F);
    set_layout(p.b_layout, p.b, CUDA_R_16F);
  });
  refused("float32 rounded to bfloat16", [](auto& p) {
    set_layout(p.a_layout, p.a, CUDA_R_32F);
    set_layout(p.b_layout, p.b, CUDA_R_32F);
  });
  for (const auto& [compute, scale] :
       {std::pair(CUBLAS_COMPUTE_16F, CUDA_R_16F), std::pair(CUBLAS_COMPUTE_32F, CUDA_R_16BF),
        std::pair(CUBLAS_COMPUTE_32F_FAST_TF32, CUDA_R_32F)}) {
    refused("another compute or scale type", [&](auto& p) {
      EXPECT_EQ(cublasLtMatmulDescDestroy(p.desc), CUBLAS_STATUS_SUCCESS);
      EXPECT_EQ(cublasLtMatmulDescCreate(&p.desc, compute, scale), CUBLAS_STATUS_SUCCESS);
      p.set_desc(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
    });
  }
  refused("rows", [](auto& p) { set_layout(p.a_layout, CUBLASLT_MATRIX_LAYOUT_ORDER, CUBLASLT_ORDER_ROW); });
  refused("scalars on the device",
          [](auto& p) { p.set_desc(CUBLASLT_MATMUL_DESC_POINTER_MODE, int32_t{1}); });
  refused("ReLU", [](auto& p) { p.set_desc(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_RELU); });
  refused("a float32 bias of a bfloat16 D", [](auto& p) {
    p.add_bias();
    p.set_desc(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, CUDA_R_32F);
  });
}

TEST_F(CublasLtRefusals, AreOfAttributesOfAnotherLength) {
  LtTestProduct product(kShape);
  const uint64_t wide = 1;
  EXPECT_EQ(cublasLtMatmulDescSetAttribute(product.desc, CUBLASLT_MATMUL_DESC_TRANSA, &wide, sizeof(wide)),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasLtMatmulDescSetAttribute(product.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &wide, 4),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasLtMatmulDescSetAttribute(product.desc, CUBLASLT_MATMUL_DESC_TRANSA, nullptr, 4),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasLtMatmulPreferenceSetAttribute(product.preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                 &wide, sizeof(uint32_t)),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasLtMatrixLayoutSetAttribute(product.a_layout, CUBLASLT_MATRIX_LAYOUT_LD, &wide, 4),
            CUBLAS_STATUS_INVALID_VALUE);
  const cublasLtMatmulAlgo_t algorithm = product.results(1).front().algo;
  uint64_t value = 0;
  size_t written = 0;
  EXPECT_EQ(cublasLtMatmulAlgoConfigGetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, &value, 4,
                                                 &written),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasLtMatmulAlgoConfigGetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, nullptr,
                                                 0, &written),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(written, sizeof(uint16_t));
}

TEST_F(CublasLtRefusals, AreOfWhatACallLacks) {
  LtTestProduct p(kShape);
  const float one = 1;
  const cublasLtMatmulAlgo_t good = p.results(1).front().algo;
  const auto multiplied = [&](cublasLtHandle_t handle, const void* alpha, const void* a, const void* beta,
                              const void* c, void* d) {
    return cublasLtMatmul(handle, p.desc, alpha, a, p.a_layout, p.b.memory.get(), p.b_layout, beta, c,
                          p.c_layout, d, p.d_layout, &good, nullptr, 0, nullptr);
  };
  void* const a = p.a.memory.get();
  void* const d = p.d.memory.get();
  EXPECT_EQ(multiplied(nullptr, &one, a, &one, d, d), CUBLAS_STATUS_NOT_INITIALIZED);
  EXPECT_EQ(multiplied(p.handle, nullptr, a, &one, d, d), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(multiplied(p.handle, &one, nullptr, &one, d, d), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(multiplied(p.handle, &one, a, nullptr, d, d), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(multiplied(p.handle, &one, a, &one, nullptr, d), CUBLAS_STATUS_INVALID_VALUE) << "C is added";
  EXPECT_EQ(multiplied(p.handle, &one, a, &one, d, nullptr), CUBLAS_STATUS_INVALID_VALUE);
  set_layout(p.c_layout, CUBLASLT_MATRIX_LAYOUT_LD, int64_t{72});
  EXPECT_EQ(multiplied(p.handle, &one, a, &one, d, d), CUBLAS_STATUS_INVALID_VALUE)
      << "in place, with other columns";
  p.add_bias();
  p.set_desc(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(nullptr));
  EXPECT_EQ(p.results(1).size(), 1u) << "it is not read yet";
  EXPECT_EQ(p.multiply(&good), CUBLAS_STATUS_INVALID_VALUE);
  int count = 0;
  cublasLtMatmulHeuristicResult_t result;
  EXPECT_EQ(cublasLtMatmulAlgoGetHeuristic(p.handle, p.desc, p.a_layout, p.b_layout, p.c_layout, p.d_layout,
                                           p.preference, 0, &result, &count),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasLtDestroy(nullptr), CUBLAS_STATUS_NOT_INITIALIZED);
}

TEST_F(CublasLtRefusals, AreOfMatricesThatLieWhereTheAlgorithmCannotReadThem) {
  LtTestProduct product(kShape);
  std::set<uint32_t> needs;
  for (const auto& result : product.results()) {
    uint32_t alignment = 0;
    size_t written = 0;
    ASSERT_EQ(cublasLtMatmulAlgoCapGetAttribute(&result.algo, CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_A_BYTES,
                                                &alignment, sizeof(alignment), &written),
              CUBLAS_STATUS_SUCCESS);
    needs.insert(alignment);
    const float one = 1, zero = 0;
    for (const uint32_t moved : {2u, 4u, 8u, 16u}) {
      LtTestProduct other(kShape);
      const DeviceMatrix room(CUDA_R_16BF, 128, 65, 128);
      const auto* const a = static_cast<const char*>(room.memory.get()) + moved;
      EXPECT_EQ(other.check(result.algo), CUBLAS_STATUS_SUCCESS);
      const cublasStatus_t status = cublasLtMatmul(
          other.handle, other.desc, &one, a, other.a_layout, other.b.memory.get(), other.b_layout, &zero,
          nullptr, other.c_layout, other.d.memory.get(), other.d_layout, &result.algo, nullptr, 0, nullptr);
      EXPECT_EQ(status, moved % alignment == 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED)
          << moved << " of " << alignment;
    }
  }
  EXPECT_EQ(needs, (std::set<uint32_t>{2, 8, 16}));
  for (const uint32_t alignment : {2u, 4u, 8u, 16u}) {
    product.prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment);
    EXPECT_FALSE(product.results().empty());
    for (const auto& result : product.results()) {
      uint32_t needed = 0;
      cublasLtMatmulAlgoCapGetAttribute(&result.algo, CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_A_BYTES, &needed,
                                        sizeof(needed), nullptr);
      EXPECT_LE(needed, alignment);
    }
  }
}

TEST_F(CublasLtRefusals, AreOfColumnsAndBiasesThatAreNotAligned) {
  LtTestProduct aligned(kShape), odd({CUDA_R_16BF, CUDA_R_16BF, 37, 40, 129});
  const cublasLtMatmulAlgo_t best = aligned.results(1).front().algo;
  EXPECT_EQ(odd.check(best), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(odd.multiply(&best), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_FALSE(odd.results().empty());
  aligned.add_bias();
  aligned.set_desc(CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                   static_cast<const void*>(static_cast<char*>(aligned.bias.memory.get()) + 2));
  EXPECT_EQ(aligned.check(best), CUBLAS_STATUS_NOT_SUPPORTED);
  for (const auto& result : aligned.results()) EXPECT_EQ(aligned.check(result.algo), CUBLAS_STATUS_SUCCESS);
}

TEST_F(CublasLtRefusals, AreOfAWorkspaceTooSmall) {
  LtTestProduct product({CUDA_R_16BF, CUDA_R_16BF, 72, 40, 512});
  for (const auto& result : product.results()) EXPECT_EQ(result.workspaceSize, 0u) << "none was allowed";
  product.give_workspace(size_t{1} << 20);
  size_t needing = 0;
  for (const auto& result : product.results()) {
    if (result.workspaceSize == 0) continue;
    ++needing;
    const auto multiplied = [&](void* workspace, size_t bytes) {
      product.workspace_place = workspace;
      product.workspace_bytes = bytes;
      return product.multiply(&result.algo);
    };
    char* const place = static_cast<char*>(product.workspace.back().memory.get());
    EXPECT_EQ(multiplied(place, result.workspaceSize - 1), CUBLAS_STATUS_INVALID_VALUE);
    EXPECT_EQ(multiplied(nullptr, result.workspaceSize), CUBLAS_STATUS_INVALID_VALUE);
    EXPECT_EQ(multiplied(place + 8, result.workspaceSize), CUBLAS_STATUS_INVALID_VALUE);
    EXPECT_EQ(multiplied(place, result.workspaceSize), CUBLAS_STATUS_SUCCESS);
  }
  EXPECT_GT(needing, 0u);
  product.prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{72 * 40 * 4 * 2});
  size_t small = 0;
  for (const auto& result : product.results()) {
    EXPECT_LE(result.workspaceSize, 72u * 40 * 4 * 2);
    small += result.workspaceSize != 0;
  }
  EXPECT_GT(small, 0u);
  EXPECT_LT(small, needing);
}

TEST_F(CublasLtRefusals, AreOfReductionsThatTheMaskLeavesOut) {
  LtTestProduct product({CUDA_R_16BF, CUDA_R_16BF, 72, 40, 512});
  product.give_workspace(size_t{1} << 20);
  for (const uint32_t mask :
       {uint32_t{CUBLASLT_REDUCTION_SCHEME_NONE}, uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE},
        uint32_t{CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE}}) {
    product.prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, mask);
    std::set<uint32_t> schemes;
    for (const auto& result : product.results()) schemes.insert(scheme_of(result.algo));
    EXPECT_EQ(schemes, (std::set<uint32_t>{CUBLASLT_REDUCTION_SCHEME_NONE, mask}));
  }
}

// In a process's words: 64 bytes that are copied.
TEST_F(CublasLtRefusals, AreOfWordsThatNoHeuristicGave) {
  LtTestProduct product(kShape), other({CUDA_R_16BF, CUDA_R_32F, 64, 40, 128});
  product.give_workspace(size_t{1} << 20);
  for (const auto& result : product.results()) {
    unsigned char bytes[sizeof(cublasLtMatmulAlgo_t)];
    static_assert(sizeof(bytes) == 64);
    std::memcpy(bytes, &result.algo, sizeof(bytes));
    cublasLtMatmulAlgo_t copy;
    std::memcpy(&copy, bytes, sizeof(bytes));
    cublasLtMatmulHeuristicResult_t checked{};
    ASSERT_EQ(product.check(copy, &checked), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(checked.workspaceSize, result.workspaceSize);
    EXPECT_EQ(checked.wavesCount, result.wavesCount);
    EXPECT_EQ(checked.algo.data[0], 0u) << "it is not written";
    EXPECT_EQ(other.check(copy), CUBLAS_STATUS_INVALID_VALUE) << "D is of another type";
    EXPECT_EQ(other.multiply(&copy), CUBLAS_STATUS_INVALID_VALUE);
    for (unsigned char& byte : bytes) {
      byte ^= 0x40;
      std::memcpy(&copy, bytes, sizeof(bytes));
      byte ^= 0x40;
      EXPECT_EQ(product.check(copy), CUBLAS_STATUS_INVALID_VALUE);
      EXPECT_EQ(product.multiply(&copy), CUBLAS_STATUS_INVALID_VALUE);
      uint32_t tile = 0;
      EXPECT_EQ(cublasLtMatmulAlgoConfigGetAttribute(&copy, CUBLASLT_ALGO_CONFIG_TILE_ID, &tile, 4, nullptr),
                CUBLAS_STATUS_INVALID_VALUE);
    }
  }
  EXPECT_EQ(product.check(cublasLtMatmulAlgo_t{}), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_TRUE(std::isnan(product.d.at(0, 0)));
}

class CublasLtGuesses : public EmulatorTest {};

TEST_F(CublasLtGuesses, AreNoMoreThanAskedForAndTheSameFirst) {
  LtTestProduct product({CUDA_R_16BF, CUDA_R_16BF, 256, 40, 704});
  product.give_workspace(size_t{32} << 20);
  const auto all = product.results();
  ASSERT_GT(all.size(), 20u);
  for (int requested = 1; requested < 9; ++requested) {
    const auto some = product.results(requested);
    ASSERT_EQ(some.size(), static_cast<size_t>(requested > 2 ? requested - 1 : requested))
        << "among several, one failed";
    for (size_t i = 0; i < some.size(); ++i) {
      EXPECT_EQ(std::memcmp(&some[i].algo, &all[i].algo, sizeof(all[i].algo)), 0) << i;
    }
  }
}

// As on a GPU, where graphs of decodes of several sizes then differ by more than their parameters.
TEST_F(CublasLtGuesses, HaveOtherClustersAndSplitsForOtherColumns) {
  std::set<uint16_t> clusters;
  std::set<std::pair<bool, uint32_t>> splits;
  for (const auto& [m, depth] :
       {std::pair<int64_t, int64_t>{512, 256}, {1408, 256}, {256, 704}, {128, 128}}) {
    LtTestProduct product({CUDA_R_16BF, CUDA_R_16BF, m, 1, depth});
    product.prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{32} << 20);
    std::set<uint16_t> own;
    for (int64_t n = 33; n <= 300; ++n) {
      product.b.columns = product.c.columns = product.d.columns = n;
      set_layout(product.b_layout, product.b, CUDA_R_16BF);
      set_layout(product.c_layout, product.c, CUDA_R_16BF);
      set_layout(product.d_layout, product.d, CUDA_R_16BF);
      const auto found = product.results(1);
      ASSERT_EQ(found.size(), 1u);
      own.insert(config_of<uint16_t>(found.front().algo, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID));
      splits.emplace(splits_of(found.front().algo) > 1,
                     config_of<uint32_t>(found.front().algo, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION));
    }
    EXPECT_GE(own.size(), 2u) << m << " × " << depth;
    clusters.insert(own.begin(), own.end());
  }
  EXPECT_EQ(clusters, (std::set<uint16_t>{CUBLASLT_CLUSTER_SHAPE_2x1x1, CUBLASLT_CLUSTER_SHAPE_4x1x1,
                                          CUBLASLT_CLUSTER_SHAPE_8x1x1}));
  EXPECT_EQ(splits.size(), 3u) << "none, added by a second kernel, and counted";
}

}  // namespace troupe::cublas_lt_refusals_test
