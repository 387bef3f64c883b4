// out (T, N) = x (T, K) · weightᵀ. cuBLASLt counts in columns: a row-major (T, K) is its (K, T), so it is
// asked for outᵀ (N, T) = weight (as K × N, transposed) · xᵀ (K, T), and nothing is moved.

#include "kernels/cuda/library_products.h"

#include <cublasLt.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

#include "kernels/cuda/check_cuda.h"

namespace troupe::cuda {
namespace {

// What NVIDIA's documentation advises for Hopper.
constexpr size_t kWorkspaceBytes = size_t{32} << 20;
// Features of a product with a bias: the library wants it in out's type, so it is rounded here for each
// launch.
constexpr int64_t kBiasFeaturesMax = int64_t{1} << 18;

void check_blas(cublasStatus_t status) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    check_failed("matmul", std::string("cuBLASLt: ") + cublasLtGetStatusString(status));
  }
}

cudaDataType_t type_of(DType dtype) {
  return dtype == DType::kBFloat16 ? CUDA_R_16BF : CUDA_R_32F;
}

struct LayoutDeleter {
  void operator()(cublasLtMatrixLayout_t layout) const { cublasLtMatrixLayoutDestroy(layout); }
};
using Layout = std::unique_ptr<cublasLtMatrixLayoutOpaque_t, LayoutDeleter>;
struct DescDeleter {
  void operator()(cublasLtMatmulDesc_t desc) const { cublasLtMatmulDescDestroy(desc); }
};
using Desc = std::unique_ptr<cublasLtMatmulDescOpaque_t, DescDeleter>;
struct PreferenceDeleter {
  void operator()(cublasLtMatmulPreference_t preference) const {
    cublasLtMatmulPreferenceDestroy(preference);
  }
};
using Preference = std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, PreferenceDeleter>;

Layout make_layout(DType dtype, int64_t rows, int64_t columns) {
  cublasLtMatrixLayout_t layout = nullptr;
  check_blas(cublasLtMatrixLayoutCreate(&layout, type_of(dtype), static_cast<uint64_t>(rows),
                                        static_cast<uint64_t>(columns), rows));
  return Layout(layout);
}

// What an algorithm is chosen by. Alignments too: an algorithm may count on 16 bytes.
using Shape = std::tuple<DType, DType, int64_t, int64_t, int64_t, bool, uint32_t>;

uint32_t alignment_of(const void* pointer) {
  const auto place = reinterpret_cast<uintptr_t>(pointer);
  uint32_t alignment = 256;
  while (place % alignment != 0) alignment /= 2;
  return alignment;
}

// One shape's problem, described.
struct Problem {
  Desc desc;
  Layout weight, x, out;
};

class CublasProducts final : public LibraryProducts {
 public:
  CublasProducts(cublasLtHandle_t handle, void* workspace, cudaStream_t stream)
      : handle_(handle), workspace_(workspace), stream_(stream) {}
  ~CublasProducts() override {
    cudaFree(workspace_);
    cublasLtDestroy(handle_);
  }
  CublasProducts(const CublasProducts&) = delete;
  CublasProducts& operator=(const CublasProducts&) = delete;

  bool launch(const ProductOperands& o) override {
    const int64_t tokens = o.x.shape[0];
    const int64_t features = o.weight.shape[0];
    const bool rounds_bias = !o.bias.empty() && o.out.dtype == DType::kBFloat16;
    if (rounds_bias && features > kBiasFeaturesMax) return false;
    Tensor bias = o.bias;
    if (rounds_bias) bias = Tensor::make(rounded_bias(), DType::kBFloat16, {features});
    const uint32_t alignment =
        std::min({alignment_of(o.x.data), alignment_of(o.weight.data), alignment_of(o.out.data)});
    const Problem problem = describe(o, bias);
    const Shape shape{o.x.dtype, o.out.dtype, tokens, features, o.x.shape[1], !o.bias.empty(), alignment};
    const auto [entry, is_new] = algorithms_.try_emplace(shape);
    if (is_new) entry->second = choose(problem, alignment);
    if (!entry->second.exists) return false;
    if (rounds_bias) round_vector(stream_, o.bias, bias);
    const float one = 1.0f;
    const float beta = o.accumulate ? 1.0f : 0.0f;
    check_blas(cublasLtMatmul(handle_, problem.desc.get(), &one, o.weight.data, problem.weight.get(),
                              o.x.data, problem.x.get(), &beta, o.out.data, problem.out.get(), o.out.data,
                              problem.out.get(), &entry->second.algorithm, workspace_, kWorkspaceBytes,
                              stream_));
    return true;
  }

 private:
  struct Choice {
    bool exists = false;
    cublasLtMatmulAlgo_t algorithm{};
  };

  void* rounded_bias() const { return static_cast<char*>(workspace_) + kWorkspaceBytes; }

  static Problem describe(const ProductOperands& o, const Tensor& bias) {
    cublasLtMatmulDesc_t desc = nullptr;
    check_blas(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    Problem problem{Desc(desc), make_layout(o.weight.dtype, o.weight.shape[1], o.weight.shape[0]),
                    make_layout(o.x.dtype, o.x.shape[1], o.x.shape[0]),
                    make_layout(o.out.dtype, o.out.shape[1], o.out.shape[0])};
    const cublasOperation_t transposed = CUBLAS_OP_T;
    check_blas(
        cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof(transposed)));
    if (!bias.empty()) {
      const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
      const cudaDataType_t type = type_of(bias.dtype);
      const auto set = [&](cublasLtMatmulDescAttributes_t name, const auto& value) {
        check_blas(cublasLtMatmulDescSetAttribute(desc, name, &value, sizeof(value)));
      };
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias.data);
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type);
    }
    return problem;
  }

  // The library's own first guess.
  Choice choose(const Problem& problem, uint32_t alignment) const {
    cublasLtMatmulPreference_t made = nullptr;
    check_blas(cublasLtMatmulPreferenceCreate(&made));
    const Preference preference(made);
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t name, const auto& value) {
      check_blas(cublasLtMatmulPreferenceSetAttribute(made, name, &value, sizeof(value)));
    };
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment);
    cublasLtMatmulHeuristicResult_t found{};
    int count = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle_, problem.desc.get(), problem.weight.get(), problem.x.get(),
                                       problem.out.get(), problem.out.get(), made, 1, &found, &count);
    if (status != CUBLAS_STATUS_SUCCESS || count == 0) return {};  // not a type or shape of the library's
    return {true, found.algo};
  }

  cublasLtHandle_t handle_;
  void* workspace_;
  cudaStream_t stream_;
  // A step has any number of tokens: bounded by max_num_batched_tokens times the products of a layer.
  std::map<Shape, Choice> algorithms_;
};

}  // namespace

StatusOr<std::unique_ptr<LibraryProducts>> make_library_products(cudaStream_t stream) {
  cublasLtHandle_t handle = nullptr;
  const cublasStatus_t made = cublasLtCreate(&handle);
  if (made != CUBLAS_STATUS_SUCCESS) {
    return absl::UnavailableError(std::string("cuBLASLt does not start: ") + cublasLtGetStatusString(made));
  }
  void* workspace = nullptr;
  if (const cudaError_t error = cudaMalloc(&workspace, kWorkspaceBytes + kBiasFeaturesMax * 2);
      error != cudaSuccess) {
    cublasLtDestroy(handle);
    return absl::ResourceExhaustedError(std::string("cuBLASLt's workspace of 32 MiB: ") +
                                        cudaGetErrorString(error));
  }
  return std::make_unique<CublasProducts>(handle, workspace, stream);
}

}  // namespace troupe::cuda
