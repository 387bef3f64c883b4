#include "kernels/cuda/attention/kv_map.h"

#include <cuda_runtime.h>

#include <bit>
#include <limits>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/attention/attention_kernels.h"
#include "kernels/cuda/device/check_cuda.h"
#include "kernels/tensor.h"

namespace troupe::cuda {

namespace {

constexpr int kBoxDims = 64;

bool is_hopper() {
  int device = 0, major = 0, minor = 0;
  check_cuda("kv_map", cudaGetDevice(&device));
  check_cuda("kv_map", cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  check_cuda("kv_map", cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  return major == 9 && minor == 0;
}

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

StatusOr<std::optional<CUtensorMap>> make_kv_map(const BoundKv& kv) {
  const KvLayout& layout = kv.layout;
  const auto dims = static_cast<cuuint64_t>(layout.head_dim);
  const auto rows = static_cast<cuuint64_t>(kv.block_count * layout.block_elements() / layout.head_dim);
  const bool takes =
      (layout.head_dim == 64 || layout.head_dim == 128) && layout.block_size >= kLeastKvBlock &&
      layout.block_size <= kLargestKvBlock && std::has_single_bit(static_cast<unsigned>(layout.block_size)) &&
      rows > 0 && rows <= cuuint64_t{std::numeric_limits<int>::max()} && is_hopper() && has_warpgroup_code();
  if (!takes) return std::optional<CUtensorMap>();
  const auto encode = find_encoder();
  if (encode == nullptr) return absl::UnavailableError("the driver has no cuTensorMapEncodeTiled");
  CUtensorMap map;
  const cuuint64_t sizes[] = {dims, rows};
  const cuuint64_t strides[] = {dims * dtype_size(DType::kBFloat16)};  // of all but the first
  const cuuint32_t box[] = {kBoxDims, static_cast<cuuint32_t>(layout.block_size)};
  const cuuint32_t steps[] = {1, 1};
  const CUresult result = encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, kv.data, sizes, strides, box,
                                 steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    return absl::UnavailableError(
        absl::StrCat("the driver refuses a map of the KV memory: cuTensorMapEncodeTiled, CUresult ", result));
  }
  return std::optional<CUtensorMap>(map);
}

}  // namespace troupe::cuda
