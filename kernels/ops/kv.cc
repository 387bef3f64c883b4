#include "kernels/ops/kv.h"

#include <string>

#include "kernels/check.h"
#include "kernels/ops/expect.h"

namespace troupe {

void check_kv(const BoundKv& kv) {
  const KvLayout& layout = kv.layout;
  const bool positive =
      layout.layers > 0 && layout.kv_heads > 0 && layout.head_dim > 0 && layout.block_size > 0;
  if (positive && layout.head_dim % 2 == 0 && kv.data != nullptr && kv.block_count > 0) return;
  check_failed("bind_kv", "layers " + std::to_string(layout.layers) + ", kv_heads " +
                              std::to_string(layout.kv_heads) + ", head_dim " +
                              std::to_string(layout.head_dim) + " (even), block_size " +
                              std::to_string(layout.block_size) + ", block_count " +
                              std::to_string(kv.block_count) + " and data must all be given");
}

void expect_bound(const char* op, const BoundKv& kv, int layer) {
  if (kv.data == nullptr) check_failed(op, "bind_kv was not called");
  expect::index(op, "layer", layer, kv.layout.layers);
}

}  // namespace troupe
