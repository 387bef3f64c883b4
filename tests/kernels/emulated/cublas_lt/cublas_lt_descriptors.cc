// The stand-in's handles, descriptors and algorithms, and their attributes.

#include "tests/kernels/emulated/cublas_lt/cublas_lt_contents.h"

struct cublasLtContext {};

namespace troupe::emulated {
namespace {

constexpr size_t kLtVersion = 130002;

}  // namespace
}  // namespace troupe::emulated

using namespace troupe::emulated;

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  if (handle == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *handle = new cublasLtContext;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion() {
  return kLtVersion;
}

const char* cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "success";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "the library was not initialized";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "the resource allocation failed";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "an unsupported value or parameter was passed to the function";
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return "the function requires a feature absent from the device architecture";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "the function failed to launch on the GPU";
    case CUBLAS_STATUS_INTERNAL_ERROR:
      return "an internal operation failed";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "the functionality requested is not supported";
  }
  return "<unknown>";
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type, uint64_t rows,
                                          uint64_t columns, int64_t ld) {
  return create(layout, LtMatrix{type, CUBLASLT_ORDER_COL, static_cast<int64_t>(rows),
                                 static_cast<int64_t>(columns), ld});
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t name, const void* value,
                                                size_t bytes) {
  switch (name) {
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
      return set(layout, &LtMatrix::order, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_LD:
      return set(layout, &LtMatrix::ld, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute_type,
                                        cudaDataType_t scale_type) {
  return create(desc, LtOperation{compute_type, scale_type, 0, CUBLAS_OP_N, CUBLAS_OP_N,
                                  CUBLASLT_EPILOGUE_DEFAULT, -1, nullptr});
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  delete desc;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t name,
                                              const void* value, size_t bytes) {
  switch (name) {
    case CUBLASLT_MATMUL_DESC_POINTER_MODE:
      return set(desc, &LtOperation::pointer_mode, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return set(desc, &LtOperation::transpose_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return set(desc, &LtOperation::transpose_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return set(desc, &LtOperation::epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return set(desc, &LtOperation::bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return set(desc, &LtOperation::bias_type, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return create(preference, kLtDefaultPreference);
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t name,
                                                    const void* value, size_t bytes) {
  switch (name) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return set(preference, &LtPreference::workspace_bytes, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return set(preference, &LtPreference::reduction_mask, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return set(preference, &LtPreference::a, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return set(preference, &LtPreference::b, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return set(preference, &LtPreference::c, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return set(preference, &LtPreference::d, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

// --- algorithms

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algorithm,
                                                    cublasLtMatmulAlgoConfigAttributes_t name, void* value,
                                                    size_t bytes, size_t* written) {
  const auto read = algorithm == nullptr ? std::nullopt : lt_read(*algorithm);
  if (!read) return CUBLAS_STATUS_INVALID_VALUE;
  const LtKernel& kernel = *read->kernel;
  switch (name) {
    case CUBLASLT_ALGO_CONFIG_ID:
      return get(kernel.id, value, bytes, written);
    case CUBLASLT_ALGO_CONFIG_TILE_ID:
      return get(static_cast<uint32_t>(kernel.tile), value, bytes, written);
    case CUBLASLT_ALGO_CONFIG_SPLITK_NUM:
      return get(read->splits, value, bytes, written);
    case CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME:
      return get(read->reduction, value, bytes, written);
    case CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION:
      return get(uint32_t{read->counted}, value, bytes, written);
    case CUBLASLT_ALGO_CONFIG_STAGES_ID:
      return get(static_cast<uint32_t>(kernel.stages), value, bytes, written);
    case CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID:
      return get(static_cast<uint16_t>(kernel.cluster_shape), value, bytes, written);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulAlgoCapGetAttribute(const cublasLtMatmulAlgo_t* algorithm,
                                                 cublasLtMatmulAlgoCapAttributes_t name, void* value,
                                                 size_t bytes, size_t* written) {
  const auto read = algorithm == nullptr ? std::nullopt : lt_read(*algorithm);
  if (!read) return CUBLAS_STATUS_INVALID_VALUE;
  switch (name) {
    case CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_B_BYTES:
      return get(read->kernel->alignment, value, bytes, written);
    case CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_D_BYTES:
      return get(read->kernel->out_alignment, value, bytes, written);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}
