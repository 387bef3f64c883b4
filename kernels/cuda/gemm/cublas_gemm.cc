// out (T, N) = x (T, K) · weightᵀ. cuBLASLt counts in columns: a row-major (T, K) is its (K, T), so it is
// asked for outᵀ (N, T) = weight (as K × N, transposed) · xᵀ (K, T), and nothing is moved.

#include "kernels/cuda/gemm/cublas_gemm.h"

#include <cublasLt.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "kernels/cuda/device/check_cuda.h"
#include "kernels/cuda/gemm/rounded_biases.h"

namespace troupe::cuda {
namespace {

// The size that NVIDIA's documentation advises for Hopper.
constexpr size_t kWorkspaceBytes = size_t{32} << 20;
// Biases kept in out's type, as the library wants them (2 MiB in all): a product with more is not taken.
constexpr int64_t kBiasFeaturesMax = int64_t{1} << 20;

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

// The facts by which an algorithm is chosen, and the wanted one. Alignments too: an algorithm may count on 16
// bytes.
using Shape = std::tuple<DType, DType, int64_t, int64_t, int64_t, bool, uint32_t, int>;

uint32_t alignment_of(const void* pointer) {
  const auto place = reinterpret_cast<uintptr_t>(pointer);
  uint32_t alignment = 256;
  while (place % alignment != 0) alignment /= 2;
  return alignment;
}

// All that a product is launched with, beside what is the same for every one. Every bit counts: a step's list
// has it (launch_list.h).
struct Call {
  cublasLtHandle_t handle;
  void* workspace;
  const void *weight, *x;
  void* out;
  const void* bias;  // in out's type, or null
  int64_t rows, features, depth;
  uint64_t type, out_type;  // DType
  uint64_t accumulate;      // 1 or 0
  cublasLtMatmulAlgo_t algorithm;

  DType dtype() const { return static_cast<DType>(type); }
  DType out_dtype() const { return static_cast<DType>(out_type); }
};

// One shape's problem, described.
struct Problem {
  Desc desc;
  Layout weight, x, out;
};

class CublasGemm final : public LibraryGemm {
 public:
  CublasGemm(cublasLtHandle_t handle, void* workspace)
      : handle_(handle),
        workspace_(workspace),
        biases_(static_cast<char*>(workspace) + kWorkspaceBytes, kBiasFeaturesMax) {}
  ~CublasGemm() override {
    cudaFree(workspace_);
    cublasLtDestroy(handle_);
  }
  CublasGemm(const CublasGemm&) = delete;
  CublasGemm& operator=(const CublasGemm&) = delete;

  std::string version() const override {
    return "cuBLASLt " + std::to_string(cublasLtGetVersion()) + " float32 sums";
  }

  void forget_biases(const void* memory, size_t bytes) override { biases_.forget(memory, bytes); }

  std::vector<int> algorithms(const ProductOperands& o, int count) override {
    if (!takes(o)) return {};
    std::vector<int> numbers;
    for (const cublasLtMatmulAlgo_t& algorithm : guesses(describe_any(o), alignment_of(o), count)) {
      numbers.push_back(number_of(algorithm));
    }
    return numbers;
  }

  std::string text_of(int algorithm) const override {
    std::string text;
    for (const uint64_t word : algorithms_[static_cast<size_t>(algorithm)].data) {
      text += absl::StrCat(text.empty() ? "" : ".", absl::Hex(word));
    }
    return text;
  }

  int algorithm_of(const std::string& text) override {
    cublasLtMatmulAlgo_t algorithm{};
    const std::vector<std::string> words = absl::StrSplit(text, '.');
    if (words.size() != std::size(algorithm.data)) return -1;
    for (size_t i = 0; i < words.size(); ++i) {
      if (!absl::SimpleHexAtoi(words[i], &algorithm.data[i])) return -1;
    }
    return number_of(algorithm);
  }

  bool launch(const LaunchStream& stream, const ProductOperands& o, int algorithm) override {
    if (!takes(o)) return false;
    const Shape shape{o.x.dtype,    o.out.dtype,     o.x.shape[0],    o.weight.shape[0],
                      o.x.shape[1], !o.bias.empty(), alignment_of(o), algorithm};
    const auto [entry, is_new] = usable_.try_emplace(shape, -1);
    if (is_new) entry->second = usable(describe_any(o), shape);
    if (entry->second < 0) return false;
    const Call call{.handle = handle_,
                    .workspace = workspace_,
                    .weight = o.weight.data,
                    .x = o.x.data,
                    .out = o.out.data,
                    .bias = rounds_bias(o) ? rounded(stream, o.bias) : o.bias.data,
                    .rows = o.x.shape[0],
                    .features = o.weight.shape[0],
                    .depth = o.x.shape[1],
                    .type = static_cast<uint64_t>(o.x.dtype),
                    .out_type = static_cast<uint64_t>(o.out.dtype),
                    .accumulate = o.accumulate ? uint64_t{1} : uint64_t{0},
                    .algorithm = algorithms_[static_cast<size_t>(entry->second)]};
    if (stream.list != nullptr) {
      stream.list->add("matmul", issue, call);
    } else {
      multiply(stream.handle, call);
    }
    return true;
  }

 private:
  // LaunchList::Issue of a call.
  static void issue(cudaStream_t stream, const char* /*op*/, const unsigned char* values) {
    multiply(stream, read_values<Call>(values));
  }
  static void multiply(cudaStream_t stream, const Call& call) {
    const Problem problem = describe(call);
    const float one = 1.0f;
    const float beta = call.accumulate != 0 ? 1.0f : 0.0f;
    check_blas(cublasLtMatmul(call.handle, problem.desc.get(), &one, call.weight, problem.weight.get(),
                              call.x, problem.x.get(), &beta, call.out, problem.out.get(), call.out,
                              problem.out.get(), &call.algorithm, call.workspace, kWorkspaceBytes, stream));
  }

  // It does not overlap with the launch before it, as the product behind it does not.
  const void* rounded(const LaunchStream& stream, const Tensor& bias) {
    LaunchStream apart = stream;
    apart.overlaps = false;
    return biases_.of(apart, bias).data;
  }
  static bool rounds_bias(const ProductOperands& o) {
    return !o.bias.empty() && o.out.dtype == DType::kBFloat16;
  }
  static bool takes(const ProductOperands& o) {
    return !rounds_bias(o) || o.weight.shape[0] <= kBiasFeaturesMax;
  }
  // A rounded bias is aligned as memory is.
  static uint32_t alignment_of(const ProductOperands& o) {
    const void* const bias = rounds_bias(o) ? nullptr : o.bias.data;
    return std::min({cuda::alignment_of(o.x.data), cuda::alignment_of(o.weight.data),
                     cuda::alignment_of(o.out.data), cuda::alignment_of(bias)});
  }

  int number_of(const cublasLtMatmulAlgo_t& algorithm) {
    const auto same = [&](const cublasLtMatmulAlgo_t& other) {
      return std::memcmp(&other, &algorithm, sizeof(algorithm)) == 0;
    };
    const auto found = std::find_if(algorithms_.begin(), algorithms_.end(), same);
    const auto number = static_cast<int>(found - algorithms_.begin());
    if (found == algorithms_.end()) algorithms_.push_back(algorithm);  // behind this no iterator holds
    return number;
  }

  // With a bias of some values.
  Problem describe_any(const ProductOperands& o) const {
    if (!rounds_bias(o)) return describe(o, o.bias);
    void* const biases = static_cast<char*>(workspace_) + kWorkspaceBytes;
    return describe(o, Tensor::make(biases, DType::kBFloat16, {o.weight.shape[0]}));
  }

  static Problem describe(const Call& call) {
    const auto tensor = [](const void* data, DType dtype, int64_t rows, int64_t columns) {
      return Tensor::make(const_cast<void*>(data), dtype, {rows, columns});
    };
    const Tensor bias = call.bias == nullptr
                            ? Tensor{}
                            : Tensor::make(const_cast<void*>(call.bias), call.out_dtype(), {call.features});
    return describe({.x = tensor(call.x, call.dtype(), call.rows, call.depth),
                     .weight = tensor(call.weight, call.dtype(), call.features, call.depth),
                     .out = tensor(call.out, call.out_dtype(), call.rows, call.features)},
                    bias);
  }

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

  // The wanted algorithm, where it takes this very problem; -1: none does.
  int usable(const Problem& problem, const Shape& shape) {
    const int algorithm = std::get<int>(shape);
    if (algorithm < 0) {
      const auto found = guesses(problem, std::get<uint32_t>(shape), 1);
      return found.empty() ? -1 : number_of(found.front());
    }
    cublasLtMatmulHeuristicResult_t result{};
    const cublasStatus_t status = cublasLtMatmulAlgoCheck(
        handle_, problem.desc.get(), problem.weight.get(), problem.x.get(), problem.out.get(),
        problem.out.get(), &algorithms_[static_cast<size_t>(algorithm)], &result);
    const bool takes =
        status == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= kWorkspaceBytes &&
        alignment_needed(algorithms_[static_cast<size_t>(algorithm)]) <= std::get<uint32_t>(shape);
    return takes ? algorithm : -1;
  }

  // The library's check does not see where the matrices lie. (One that does not say needs nothing.)
  static uint32_t alignment_needed(const cublasLtMatmulAlgo_t& algorithm) {
    uint32_t most = 1;
    for (const auto name :
         {CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_A_BYTES, CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_C_BYTES, CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_D_BYTES}) {
      uint32_t needed = 0;
      size_t written = 0;
      const cublasStatus_t status =
          cublasLtMatmulAlgoCapGetAttribute(&algorithm, name, &needed, sizeof(needed), &written);
      if (status == CUBLAS_STATUS_SUCCESS) most = std::max(most, needed);
    }
    return most;
  }

  std::vector<cublasLtMatmulAlgo_t> guesses(const Problem& problem, uint32_t alignment, int count) const {
    cublasLtMatmulPreference_t made = nullptr;
    check_blas(cublasLtMatmulPreferenceCreate(&made));
    const Preference preference(made);
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t name, const auto& value) {
      check_blas(cublasLtMatmulPreferenceSetAttribute(made, name, &value, sizeof(value)));
    };
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
    // Sums that are split over the depth may else be added in the output's type.
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment);
    std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<size_t>(count));
    int found_count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        handle_, problem.desc.get(), problem.weight.get(), problem.x.get(), problem.out.get(),
        problem.out.get(), made, count, found.data(), &found_count);
    if (status != CUBLAS_STATUS_SUCCESS) return {};  // not a type or shape of the library's
    std::vector<cublasLtMatmulAlgo_t> algorithms;
    for (int i = 0; i < found_count; ++i) {
      const cublasLtMatmulHeuristicResult_t& result = found[static_cast<size_t>(i)];
      if (result.state == CUBLAS_STATUS_SUCCESS) algorithms.push_back(result.algo);
    }
    return algorithms;
  }

  cublasLtHandle_t handle_;
  void* workspace_;  // and the biases
  RoundedBiases biases_;
  std::vector<cublasLtMatmulAlgo_t> algorithms_;  // by their numbers
  // A step has any number of tokens: bounded by max_num_batched_tokens times the products of a layer.
  std::map<Shape, int> usable_;
};

}  // namespace

StatusOr<std::unique_ptr<LibraryGemm>> make_library_products() {
  cublasLtHandle_t handle = nullptr;
  const cublasStatus_t made = cublasLtCreate(&handle);
  if (made != CUBLAS_STATUS_SUCCESS) {
    return absl::UnavailableError(std::string("cuBLASLt does not start: ") + cublasLtGetStatusString(made));
  }
  void* workspace = nullptr;
  if (const cudaError_t error = cudaMalloc(&workspace, kWorkspaceBytes + kBiasFeaturesMax * 2);
      error != cudaSuccess) {
    cublasLtDestroy(handle);
    return absl::ResourceExhaustedError(std::string("cuBLASLt's workspace of 34 MiB: ") +
                                        cudaGetErrorString(error));
  }
  return std::make_unique<CublasGemm>(handle, workspace);
}

}  // namespace troupe::cuda
