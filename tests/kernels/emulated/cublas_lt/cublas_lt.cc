// cuBLASLt's functions on the host, after NVIDIA's documentation of them. They take matrices of bfloat16 and
// float32 in columns, multiplied in float32 with scalars of the host's, and D as it is or with a bias. They
// refuse what the library refuses, and what it takes beyond that: batches, other types, orders and epilogues.
//
// Left open there, and made to differ here, so that a test sees a caller that relies on it: which algorithm
// is the best guess for a shape; results between others whose state is not success; the bits of a sum, by
// algorithm; the contents of the workspace behind a product.

#include <cublasLt.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "tests/kernels/emulated/cublas_lt/cublas_lt_algorithms.h"
#include "tests/kernels/emulated/cublas_lt/cublas_lt_contents.h"
#include "tests/kernels/emulated/cublas_lt/cublas_lt_product.h"
#include "tests/kernels/emulated/host.h"

namespace troupe::emulated {
namespace {

constexpr size_t kWorkspaceAlignment = 16;

// --- problems

bool is_operation(int32_t value) {
  return value == CUBLAS_OP_N || value == CUBLAS_OP_T || value == CUBLAS_OP_C;
}

bool takes_types(const LtProblem& p) {
  const LtOperation& o = p.operation;
  const bool types = p.a.type == p.b.type && p.c.type == p.d.type &&
                     ((p.a.type == CUDA_R_16BF && (p.d.type == CUDA_R_16BF || p.d.type == CUDA_R_32F)) ||
                      (p.a.type == CUDA_R_32F && p.d.type == CUDA_R_32F));
  return types && o.compute_type == CUBLAS_COMPUTE_32F && o.scale_type == CUDA_R_32F;
}

// Where C has no layout, it has D's.
cublasStatus_t read_problem(cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                            cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, LtProblem& p) {
  if (desc == nullptr || a == nullptr || b == nullptr || d == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  p.operation = contents_of<LtOperation>(desc);
  p.a = contents_of<LtMatrix>(a);
  p.b = contents_of<LtMatrix>(b);
  p.c = contents_of<LtMatrix>(c == nullptr ? d : c);
  p.d = contents_of<LtMatrix>(d);
  const LtOperation& o = p.operation;
  if (!is_operation(o.transpose_a) || !is_operation(o.transpose_b)) return CUBLAS_STATUS_INVALID_VALUE;
  for (const LtMatrix* matrix : {&p.a, &p.b, &p.c, &p.d}) {
    if (matrix->order != CUBLASLT_ORDER_COL) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (matrix->rows <= 0 || matrix->columns <= 0 || matrix->ld < matrix->rows) {
      return CUBLAS_STATUS_INVALID_VALUE;
    }
  }
  const auto turned = [](const LtMatrix& matrix, int32_t operation) {
    return operation == CUBLAS_OP_N ? std::pair(matrix.rows, matrix.columns)
                                    : std::pair(matrix.columns, matrix.rows);
  };
  const auto [m, depth] = turned(p.a, o.transpose_a);
  const auto [b_depth, n] = turned(p.b, o.transpose_b);
  if (b_depth != depth || p.d.rows != m || p.d.columns != n || p.c.rows != m || p.c.columns != n) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  p.m = m;
  p.n = n;
  p.depth = depth;
  if (!takes_types(p) || o.pointer_mode != 0) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (o.epilogue != CUBLASLT_EPILOGUE_DEFAULT && !p.adds_bias()) return CUBLAS_STATUS_NOT_SUPPORTED;
  const bool bias_as_out = o.bias_type == -1 || o.bias_type == p.d.type;
  return p.adds_bias() && !bias_as_out ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
}

// --- algorithms for a problem

cublasLtMatmulHeuristicResult_t result_of(const LtAlgorithm& algorithm, const LtProblem& problem) {
  cublasLtMatmulHeuristicResult_t result{};
  result.algo = lt_words(algorithm, problem);
  result.workspaceSize = lt_workspace_bytes(algorithm, problem);
  result.state = CUBLAS_STATUS_SUCCESS;
  result.wavesCount = lt_waves(algorithm, problem);
  return result;
}

// Among several results, the place of one whose state is not success.
constexpr int kFailedResult = 1;

cublasLtMatmulHeuristicResult_t failed_result() {
  cublasLtMatmulHeuristicResult_t result{};
  for (uint64_t& word : result.algo.data) word = ~uint64_t{0};
  result.state = CUBLAS_STATUS_NOT_SUPPORTED;
  return result;
}

std::vector<LtAlgorithm> guesses(const LtProblem& problem, const LtPreference& preference) {
  std::vector<LtAlgorithm> all = lt_algorithms(problem.a.type);
  std::erase_if(all, [&](const LtAlgorithm& algorithm) {
    const LtKernel& kernel = *algorithm.kernel;
    return !lt_takes(algorithm, problem) || kernel.alignment > preference.a ||
           kernel.alignment > preference.b || kernel.out_alignment > preference.c ||
           kernel.out_alignment > preference.d ||
           lt_workspace_bytes(algorithm, problem) > preference.workspace_bytes ||
           (algorithm.splits > 1 && (algorithm.reduction & preference.reduction_mask) == 0);
  });
  std::stable_sort(all.begin(), all.end(), [&](const LtAlgorithm& a, const LtAlgorithm& b) {
    return lt_estimate(a, problem) < lt_estimate(b, problem);
  });
  return all;
}

// Success where the words are an algorithm that takes the problem.
cublasStatus_t read_algorithm(const cublasLtMatmulAlgo_t* words, const LtProblem& problem,
                              LtAlgorithm& algorithm) {
  if (words == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  const std::optional<LtAlgorithm> read = lt_read(*words);
  if (!read || !lt_is_of(*words, problem)) return CUBLAS_STATUS_INVALID_VALUE;
  algorithm = *read;
  return lt_takes(algorithm, problem) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

bool is_aligned(const void* pointer, size_t alignment) {
  return reinterpret_cast<uintptr_t>(pointer) % alignment == 0;
}

cublasStatus_t check_places(const LtAlgorithm& algorithm, const LtProblem& problem, const LtPlaces& places,
                            size_t workspace_bytes) {
  const size_t alignment = std::max<size_t>(algorithm.kernel->alignment, lt_bytes_of(problem.a.type));
  const size_t out_alignment = std::max<size_t>(algorithm.kernel->out_alignment, lt_bytes_of(problem.d.type));
  if (!is_aligned(places.a, alignment) || !is_aligned(places.b, alignment) ||
      !is_aligned(places.c, out_alignment) || !is_aligned(places.d, out_alignment)) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  const size_t needed = lt_workspace_bytes(algorithm, problem);
  const bool has_room = needed == 0 || (places.workspace != nullptr && workspace_bytes >= needed);
  return has_room && is_aligned(places.workspace, kWorkspaceAlignment) ? CUBLAS_STATUS_SUCCESS
                                                                       : CUBLAS_STATUS_INVALID_VALUE;
}

}  // namespace
}  // namespace troupe::emulated

using namespace troupe::emulated;

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t results[], int* returned) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (preference == nullptr || requested <= 0 || results == nullptr || returned == nullptr) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  *returned = 0;
  LtProblem problem;
  if (const cublasStatus_t status = read_problem(desc, a, b, c, d, problem);
      status != CUBLAS_STATUS_SUCCESS) {
    return status;
  }
  for (const LtAlgorithm& algorithm : guesses(problem, contents_of<LtPreference>(preference))) {
    if (*returned == requested) break;
    if (*returned == kFailedResult && requested > kFailedResult + 1) results[(*returned)++] = failed_result();
    results[(*returned)++] = result_of(algorithm, problem);
  }
  return *returned > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t* algorithm,
                                       cublasLtMatmulHeuristicResult_t* result) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (result == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  LtProblem problem;
  LtAlgorithm own{};
  cublasStatus_t status = read_problem(desc, a, b, c, d, problem);
  if (status == CUBLAS_STATUS_SUCCESS) status = read_algorithm(algorithm, problem, own);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const cublasLtMatmulAlgo_t untouched = result->algo;
  *result = result_of(own, problem);
  result->algo = untouched;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace, size_t workspace_bytes,
                              cudaStream_t stream) {
  count_call(&DriverCalls::products);
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (alpha == nullptr || beta == nullptr || a == nullptr || b == nullptr || d == nullptr) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  LtProblem problem;
  cublasStatus_t status = read_problem(desc, a_layout, b_layout, c_layout, d_layout, problem);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const float alpha_value = *static_cast<const float*>(alpha), beta_value = *static_cast<const float*>(beta);
  if ((c == nullptr && beta_value != 0) || (c == d && problem.c != problem.d) ||
      (problem.adds_bias() && problem.operation.bias == nullptr)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  LtAlgorithm own{};
  if (algorithm == nullptr) {
    const std::vector<LtAlgorithm> found = guesses(problem, kLtDefaultPreference);
    if (found.empty()) return CUBLAS_STATUS_NOT_SUPPORTED;
    own = found.front();
  } else if (status = read_algorithm(algorithm, problem, own); status != CUBLAS_STATUS_SUCCESS) {
    return status;
  }
  LtPlaces places{a, b, c, d, workspace};
  status = check_places(own, problem, places, workspace_bytes);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  if (beta_value == 0) places.c = nullptr;
  lt_enqueue(stream, own, problem, places, alpha_value, beta_value);
  return CUBLAS_STATUS_SUCCESS;
}
