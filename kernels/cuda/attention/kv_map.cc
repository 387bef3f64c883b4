#include "kernels/cuda/attention/kv_map.h"

#include <bit>
#include <limits>

#include "kernels/cuda/attention/attention_kernels.h"
#include "kernels/cuda/device/find_device.h"
#include "kernels/cuda/device/tensor_map.h"

namespace troupe::cuda {

StatusOr<std::optional<CUtensorMap>> make_kv_map(const BoundKv& kv) {
  const KvLayout& layout = kv.layout;
  const int64_t rows = kv.block_count * layout.block_elements() / layout.head_dim;
  const bool takes = (layout.head_dim == 64 || layout.head_dim == 128) &&
                     layout.block_size >= kLeastKvBlock && layout.block_size <= kLargestKvBlock &&
                     std::has_single_bit(static_cast<unsigned>(layout.block_size)) && rows > 0 &&
                     rows <= std::numeric_limits<int>::max() && is_hopper() && has_warpgroup_code();
  if (!takes) return std::optional<CUtensorMap>();
  TROUPE_ASSIGN_OR_RETURN(const CUtensorMap map, make_tensor_map("the KV memory", {kv.data, layout.head_dim,
                                                                                   rows, layout.block_size}));
  return std::optional<CUtensorMap>(map);
}

}  // namespace troupe::cuda
