// out[t] = table[ids[t]]: rows of the embedding as float32; rows of the residual stream for gather_rows.
//
// table (V, D) float32, bfloat16 or float16 · ids (T); -1 - s: drawn[s] · drawn (S), its address behind the
// ids (device_draws.h) · out (T, D) float32
// A block a row and 1,024 columns; neighbouring threads read neighbouring elements.
// Bytes: T · D · (size of the table's type + 4). A step reads a few rows: launch time is all it costs.

#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/device/ptx.cuh"
#include "kernels/cuda/ops/ops.h"

namespace troupe::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kColumnsPerThread = 4;

template <typename T>
__global__ void __launch_bounds__(kThreads)
    take_rows(const T* table, const int32_t* rows, float* out, int64_t columns) {
  await_launch_before();
  int32_t row = rows[blockIdx.x];
  if (row < 0) {
    const int32_t* const drawn = *reinterpret_cast<const int32_t* const*>(rows + (gridDim.x + 1) / 2 * 2);
    row = max(drawn[-1 - row], 0);  // kNoDraw: its row is for nothing
  }
  const T* const from = table + int64_t{row} * columns;
  float* const to = out + int64_t{blockIdx.x} * columns;
  const int64_t first = int64_t{blockIdx.y} * kThreads * kColumnsPerThread + threadIdx.x;
#pragma unroll
  for (int i = 0; i < kColumnsPerThread; ++i) {
    const int64_t column = first + i * kThreads;
    if (column < columns) to[column] = to_f32(from[column]);
  }
}

struct Rows {
  const Tensor& table;
  const int32_t* indices;
  const Tensor& out;
};

template <typename T>
void launch_rows(const char* op, const LaunchStream& stream, const Rows& rows) {
  const int64_t columns = rows.out.shape[1];
  const dim3 blocks(static_cast<unsigned>(rows.out.shape[0]),
                    blocks_for(columns, kThreads * kColumnsPerThread));
  launch(op, take_rows<T>, {blocks, kThreads}, stream, rows.table.as<const T>(), rows.indices,
         rows.out.as<float>(), columns);
}

}  // namespace

void embed(const LaunchStream& stream, const EmbedParams& params, const int32_t* ids) {
  if (params.out.elements() == 0) return;
  const Rows rows{params.table, ids, params.out};
  switch (params.table.dtype) {
    case DType::kFloat32:
      return launch_rows<float>("embed", stream, rows);
    case DType::kBFloat16:
      return launch_rows<__nv_bfloat16>("embed", stream, rows);
    case DType::kFloat16:
      return launch_rows<__half>("embed", stream, rows);
    case DType::kInt32:
      break;
  }
  check_failed("embed", "table is " + params.table.shape_text());
}

void gather_rows(const LaunchStream& stream, const GatherRowsParams& params, const int32_t* rows) {
  if (params.out.elements() == 0) return;
  launch_rows<float>("gather_rows", stream, {params.x, rows, params.out});
}

}  // namespace troupe::cuda
