// Block `to` of the KV memory becomes block `from`, all layers, for each pair.
//
// kv (blocks, bytes a block) · copies (count, 2): from, to
// A column of the grid a pair, 1,024 units of it a block of threads. A `to` comes once and is never a `from`
// (kernels.h), so pairs may run in any order.
// Bytes: 2 · count · a block's bytes (2 MiB at 8B, 16 tokens), at the speed of a device copy.

#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/device/ptx.cuh"
#include "kernels/cuda/ops/ops.h"

namespace troupe::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kUnitsPerThread = 4;

template <typename Unit>
__global__ void __launch_bounds__(kThreads)
    copy_units(Unit* kv, const int32_t* copies, int64_t units_per_block) {
  await_launch_before();
  const Unit* const from = kv + int64_t{copies[2 * blockIdx.y]} * units_per_block;
  Unit* const to = kv + int64_t{copies[2 * blockIdx.y + 1]} * units_per_block;
  const int64_t first = int64_t{blockIdx.x} * kThreads * kUnitsPerThread + threadIdx.x;
  Unit held[kUnitsPerThread];  // all reads are under way before the first write waits for one
#pragma unroll
  for (int i = 0; i < kUnitsPerThread; ++i) {
    if (first + i * kThreads < units_per_block) held[i] = from[first + i * kThreads];
  }
#pragma unroll
  for (int i = 0; i < kUnitsPerThread; ++i) {
    if (first + i * kThreads < units_per_block) to[first + i * kThreads] = held[i];
  }
}

template <typename Unit>
void launch_copies(const LaunchStream& stream, const BoundKv& kv, int64_t block_bytes, const int32_t* copies,
                   int64_t count) {
  const int64_t units = block_bytes / static_cast<int64_t>(sizeof(Unit));
  constexpr int64_t kPairsMax = 65535;  // the grid's second dimension
  for (int64_t first = 0; first < count; first += kPairsMax) {
    const auto pairs = static_cast<unsigned>(count - first < kPairsMax ? count - first : kPairsMax);
    const Grid grid{dim3(blocks_for(units, kThreads * kUnitsPerThread), pairs), kThreads};
    launch("copy_blocks", copy_units<Unit>, grid, stream, static_cast<Unit*>(kv.data), copies + 2 * first,
           units);
  }
}

}  // namespace

void copy_blocks(const LaunchStream& stream, const BoundKv& kv, DType dtype, const int32_t* copies,
                 int64_t count) {
  if (count == 0) return;
  const int64_t bytes = kv.layout.block_elements() * static_cast<int64_t>(dtype_size(dtype));
  if (bytes % 16 == 0) return launch_copies<uint4>(stream, kv, bytes, copies, count);
  launch_copies<uint16_t>(stream, kv, bytes, copies, count);
}

}  // namespace troupe::cuda
