#pragma once

// Shared by the tests of the cuBLASLt stand-in: matrices in device memory, and one product with all that it
// is described by.

#include <cublasLt.h>

#include <memory>
#include <random>
#include <vector>

#include "tests/kernels/emulated/emulator_testing.h"

namespace troupe::cublas_lt_testing {

using namespace emulator_testing;

inline constexpr float kUntouched = 12345.0f;

// Columns of `ld` elements, of which those behind `rows` are kUntouched.
struct DeviceMatrix {
  DeviceMatrix(cudaDataType_t own_type, int64_t own_rows, int64_t own_columns, int64_t own_ld)
      : type(own_type), rows(own_rows), columns(own_columns), ld(own_ld) {
    void* made = nullptr;
    EXPECT_EQ(cudaMalloc(&made, static_cast<size_t>(ld * columns) * element_bytes()), cudaSuccess);
    memory.reset(made);
    for (int64_t i = 0; i < ld * columns; ++i) set(i, kUntouched);
  }
  size_t element_bytes() const { return type == CUDA_R_32F ? 4 : 2; }
  float get(int64_t i) const {
    return type == CUDA_R_32F ? static_cast<const float*>(memory.get())[i]
                              : float{static_cast<const __nv_bfloat16*>(memory.get())[i]};
  }
  void set(int64_t i, float value) {
    if (type == CUDA_R_32F) {
      static_cast<float*>(memory.get())[i] = value;
    } else {
      static_cast<__nv_bfloat16*>(memory.get())[i] = value;
    }
  }
  float at(int64_t row, int64_t column) const { return get(row + column * ld); }
  void fill(float value) {
    for (int64_t j = 0; j < columns; ++j) {
      for (int64_t i = 0; i < rows; ++i) set(i + j * ld, value);
    }
  }
  void fill(std::mt19937& random) {
    std::normal_distribution<float> normal;
    for (int64_t j = 0; j < columns; ++j) {
      for (int64_t i = 0; i < rows; ++i) set(i + j * ld, normal(random));
    }
  }
  bool padding_is_untouched() const {
    for (int64_t i = 0; i < ld * columns; ++i) {
      if (i % ld >= rows && get(i) != float{__nv_bfloat16(kUntouched)} && get(i) != kUntouched) return false;
    }
    return true;
  }

  struct Free {
    void operator()(void* pointer) const { EXPECT_EQ(cudaFree(pointer), cudaSuccess); }
  };
  cudaDataType_t type;
  int64_t rows, columns, ld;
  std::unique_ptr<void, Free> memory;
};

struct ProductShape {
  cudaDataType_t type, out_type;
  int64_t m, n, depth;
  bool transposes_a = true, transposes_b = false;
  int64_t padding = 0;  // of every ld
};

// A product and its descriptors, which tests change before a call.
class LtTestProduct {
 public:
  explicit LtTestProduct(const ProductShape& shape, unsigned seed = 1)
      : shape_(shape),
        a(matrix(shape.type, shape.m, shape.depth, shape.transposes_a)),
        b(matrix(shape.type, shape.depth, shape.n, shape.transposes_b)),
        c(matrix(shape.out_type, shape.m, shape.n, false)),
        d(matrix(shape.out_type, shape.m, shape.n, false)),
        bias(shape.out_type, shape.m, 1, shape.m) {
    EXPECT_EQ(cublasLtCreate(&handle), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), CUBLAS_STATUS_SUCCESS);
    set_desc(CUBLASLT_MATMUL_DESC_TRANSA, shape.transposes_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    set_desc(CUBLASLT_MATMUL_DESC_TRANSB, shape.transposes_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    EXPECT_EQ(cublasLtMatmulPreferenceCreate(&preference), CUBLAS_STATUS_SUCCESS);
    a_layout = layout(a);
    b_layout = layout(b);
    c_layout = layout(c);
    d_layout = layout(d);
    std::mt19937 random(seed);
    for (DeviceMatrix* each : {&a, &b, &c, &bias}) each->fill(random);
    d.fill(std::nanf(""));
  }
  ~LtTestProduct() {
    for (const cublasLtMatrixLayout_t each : {a_layout, b_layout, c_layout, d_layout}) {
      EXPECT_EQ(cublasLtMatrixLayoutDestroy(each), CUBLAS_STATUS_SUCCESS);
    }
    EXPECT_EQ(cublasLtMatmulDescDestroy(desc), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cublasLtMatmulPreferenceDestroy(preference), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cublasLtDestroy(handle), CUBLAS_STATUS_SUCCESS);
  }
  LtTestProduct(const LtTestProduct&) = delete;
  LtTestProduct& operator=(const LtTestProduct&) = delete;

  template <class Value>
  void set_desc(cublasLtMatmulDescAttributes_t name, Value value) {
    EXPECT_EQ(cublasLtMatmulDescSetAttribute(desc, name, &value, sizeof(value)), CUBLAS_STATUS_SUCCESS);
  }
  template <class Value>
  void prefer(cublasLtMatmulPreferenceAttributes_t name, Value value) {
    EXPECT_EQ(cublasLtMatmulPreferenceSetAttribute(preference, name, &value, sizeof(value)),
              CUBLAS_STATUS_SUCCESS);
  }
  void give_workspace(size_t bytes) {
    workspace.emplace_back(CUDA_R_32F, static_cast<int64_t>(bytes / 4), 1, static_cast<int64_t>(bytes / 4));
    workspace_place = workspace.back().memory.get();
    workspace_bytes = bytes;
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{bytes});
  }
  void add_bias() {
    set_desc(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set_desc(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(bias.memory.get()));
  }

  // Without any whose state is not success.
  std::vector<cublasLtMatmulHeuristicResult_t> results(int requested = 64) const {
    std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<size_t>(requested));
    int count = 0;
    status = cublasLtMatmulAlgoGetHeuristic(handle, desc, a_layout, b_layout, c_layout, d_layout, preference,
                                            requested, found.data(), &count);
    EXPECT_LE(count, requested);
    found.resize(static_cast<size_t>(count));
    std::erase_if(found, [](const auto& result) { return result.state != CUBLAS_STATUS_SUCCESS; });
    return found;
  }
  cublasStatus_t check(const cublasLtMatmulAlgo_t& algorithm,
                       cublasLtMatmulHeuristicResult_t* result = nullptr) const {
    cublasLtMatmulHeuristicResult_t own{};
    return cublasLtMatmulAlgoCheck(handle, desc, a_layout, b_layout, c_layout, d_layout, &algorithm,
                                   result == nullptr ? &own : result);
  }
  cublasStatus_t multiply(const cublasLtMatmulAlgo_t* algorithm = nullptr, float alpha = 1, float beta = 0,
                          cudaStream_t stream = nullptr) {
    return cublasLtMatmul(handle, desc, &alpha, a.memory.get(), a_layout, b.memory.get(), b_layout, &beta,
                          c_place(), c_layout, d.memory.get(), d_layout, algorithm, workspace_place,
                          workspace_bytes, stream);
  }

  float term(int64_t i, int64_t j, int64_t k) const {
    return (shape_.transposes_a ? a.at(k, i) : a.at(i, k)) * (shape_.transposes_b ? b.at(j, k) : b.at(k, j));
  }
  // The part [begin, end) of the depth, added up in its order in float32.
  float sum(int64_t i, int64_t j, int64_t begin, int64_t end) const {
    float value = 0;
    for (int64_t k = begin; k < end; ++k) value += term(i, j, k);
    return value;
  }
  // Whether D is `expected(i, j)`, rounded to its type and to the bit, and nothing beside it was written.
  template <class Expected>
  bool is(const Expected& expected) const {
    for (int64_t j = 0; j < shape_.n; ++j) {
      for (int64_t i = 0; i < shape_.m; ++i) {
        const float value = expected(i, j);
        if (d.at(i, j) != (shape_.out_type == CUDA_R_32F ? value : float{__nv_bfloat16(value)})) {
          ADD_FAILURE() << "(" << i << ", " << j << ") is " << d.at(i, j) << ", not " << value;
          return false;
        }
      }
    }
    return d.padding_is_untouched();
  }

  const void* c_place() const { return c_is_d ? d.memory.get() : c.memory.get(); }

 private:
  ProductShape shape_;
  DeviceMatrix matrix(cudaDataType_t type, int64_t rows, int64_t columns, bool transposed) const {
    if (transposed) std::swap(rows, columns);
    return {type, rows, columns, rows + shape_.padding};
  }
  static cublasLtMatrixLayout_t layout(const DeviceMatrix& matrix) {
    cublasLtMatrixLayout_t made = nullptr;
    EXPECT_EQ(cublasLtMatrixLayoutCreate(&made, matrix.type, static_cast<uint64_t>(matrix.rows),
                                         static_cast<uint64_t>(matrix.columns), matrix.ld),
              CUBLAS_STATUS_SUCCESS);
    return made;
  }

 public:
  DeviceMatrix a, b, c, d, bias;
  bool c_is_d = false;
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  cublasLtMatrixLayout_t a_layout, b_layout, c_layout, d_layout;
  std::vector<DeviceMatrix> workspace;
  void* workspace_place = nullptr;
  size_t workspace_bytes = 0;
  mutable cublasStatus_t status = CUBLAS_STATUS_SUCCESS;  // of the last results()
};

template <class Value>
Value config_of(const cublasLtMatmulAlgo_t& algorithm, cublasLtMatmulAlgoConfigAttributes_t name) {
  Value value{};
  size_t written = 0;
  EXPECT_EQ(cublasLtMatmulAlgoConfigGetAttribute(&algorithm, name, &value, sizeof(value), &written),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(written, sizeof(value));
  return value;
}
inline int32_t splits_of(const cublasLtMatmulAlgo_t& algorithm) {
  return config_of<int32_t>(algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM);
}
inline uint32_t scheme_of(const cublasLtMatmulAlgo_t& algorithm) {
  return config_of<uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME);
}

}  // namespace troupe::cublas_lt_testing
