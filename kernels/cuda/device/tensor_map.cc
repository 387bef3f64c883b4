#include "kernels/cuda/device/tensor_map.h"

#include <cuda_runtime.h>

#include <tuple>

#include "absl/strings/str_cat.h"

namespace troupe::cuda {

namespace {

constexpr cuuint64_t kElementBytes = 2;

// A function of the driver, which the module is not linked with.
decltype(&cuTensorMapEncodeTiled) find_encoder() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  constexpr unsigned kSince = 12000;
  const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, kSince,
                                                             cudaEnableDefault, &result);
  if (error != cudaSuccess || result != cudaDriverEntryPointSuccess) return nullptr;
  return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
}

}  // namespace

bool BoxedMatrix::operator<(const BoxedMatrix& other) const {
  const auto facts = [](const BoxedMatrix& m) {
    return std::tuple(m.data, m.columns, m.rows, m.box_rows, m.planes);
  };
  return facts(*this) < facts(other);
}

StatusOr<CUtensorMap> make_tensor_map(const std::string& what, const BoxedMatrix& matrix) {
  const auto encode = find_encoder();
  if (encode == nullptr) return absl::UnavailableError("the driver has no cuTensorMapEncodeTiled");
  CUtensorMap map;
  const auto columns = static_cast<cuuint64_t>(matrix.columns), rows = static_cast<cuuint64_t>(matrix.rows);
  const auto planes = static_cast<cuuint64_t>(matrix.planes);
  const cuuint32_t rank = planes == 1 ? 2 : 3;
  const cuuint64_t sizes[] = {columns, rows, planes};
  const cuuint64_t strides[] = {columns * kElementBytes, rows * columns * kElementBytes};  // but the first's
  const cuuint32_t box[] = {kBoxColumns, static_cast<cuuint32_t>(matrix.box_rows),
                            static_cast<cuuint32_t>(planes)};
  const cuuint32_t steps[] = {1, 1, 1};
  const CUresult result =
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, rank, const_cast<void*>(matrix.data), sizes, strides,
             box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    return absl::UnavailableError(
        absl::StrCat("the driver refuses a map of ", what, ": cuTensorMapEncodeTiled, CUresult ", result));
  }
  return map;
}

}  // namespace troupe::cuda
