#include "kernels/ops/copy_blocks.h"

#include <string>

#include "kernels/check.h"
#include "kernels/ops/expect.h"

namespace troupe {

void check_copies(std::span<const BlockCopy> copies, const BoundKv& kv) {
  constexpr const char* kOp = "copy_blocks";
  expect_bound(kOp, kv, 0);
  for (const BlockCopy& copy : copies) {
    expect::index(kOp, "from", copy.from, kv.block_count);
    expect::index(kOp, "to", copy.to, kv.block_count);
    if (copy.from == copy.to) check_failed(kOp, "block " + std::to_string(copy.to) + " onto itself");
  }
}

}  // namespace troupe
