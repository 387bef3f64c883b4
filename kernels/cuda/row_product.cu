// out[t][n] = Σ_k x[t][k] · weight[n][k] + bias[n] (+ out[t][n]) for up to 32 tokens: decode.
//
// x (T, K) bfloat16 · weight (N, K) bfloat16 · out (T, N) bfloat16 or float32 · T ≤ 32, K a multiple of 32
// A block of 8 warps takes 16 features, whatever T: its warps share K in turns of 128 columns and add up
// through shared memory, always in the same order, so that a token's bits do not depend on the batch.
// The weight is the tensor cores' left operand. A lane reads 16 bytes of row g = lane / 4 at column 8q,
// q = lane % 4, as the memory has them, and calls its four pairs the registers of two m16n8k16 products:
// which k a register stands for does not matter as long as both operands agree, and x is read the same way.
// So nothing passes through shared memory and every access is a whole 16 bytes.
//
// Bytes: 2 · N · K, read once past L1, the floor of decode; x (2 · T · K) comes from L2 for each of N/16
// blocks: a T-th/16 of the weight's bytes there. In flight: 8 loads of 16 bytes a lane, 32 KB a block, the
// first of them while the launch before still runs. Blocks a processor: 3 of one tile, 2 of more (registers).
// Not yet measured on a GPU.

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/ptx.cuh"

namespace troupe::cuda {
namespace {

constexpr int kFeatures = 16;  // of a block: the rows of an mma
constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;
constexpr int kStep = 32;   // columns that a warp's four lanes of a row read as one
constexpr int kSteps = 4;   // under way together
constexpr int kTokens = 8;  // the columns of an mma

template <typename Out>
struct RowProduct {
  const __nv_bfloat16* x;
  const __nv_bfloat16* weight;
  Out* out;
  const float* bias;  // or null
  int tokens;
  int64_t features, depth;
  bool accumulate;
};

__device__ __forceinline__ uint4 zero_16_bytes() {
  return make_uint4(0, 0, 0, 0);
}

// What a lane reads, from column 8q on: its two rows of the weight, and of each tile its token's row of x.
template <int kTiles>
struct LaneRows {
  const __nv_bfloat16 *low, *high, *x;
  int tokens[kTiles];  // their places behind x; half the registers of pointers
};

// A turn's weights, from column k on. kWhole: all its columns are inside; else zeros past the end.
template <bool kWhole, int kTiles>
__device__ __forceinline__ void load_weights(const LaneRows<kTiles>& from, int64_t k, int64_t depth,
                                             uint4 (&rows)[kSteps][2]) {
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    const int64_t column = k + s * kStep;
    const bool inside = kWhole || column < depth;
    rows[s][0] = inside ? load_streaming(reinterpret_cast<const uint4*>(from.low + column)) : zero_16_bytes();
    rows[s][1] =
        inside ? load_streaming(reinterpret_cast<const uint4*>(from.high + column)) : zero_16_bytes();
  }
}

template <bool kWhole, int kTiles>
__device__ __forceinline__ void multiply_turn(const LaneRows<kTiles>& from, int64_t k, int64_t depth,
                                              const uint4 (&rows)[kSteps][2], float (&sums)[kTiles][4]) {
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    const int64_t column = k + s * kStep;
    if (!kWhole && column >= depth) break;  // the same for the whole warp
    const uint32_t near[4] = {rows[s][0].x, rows[s][1].x, rows[s][0].y, rows[s][1].y};
    const uint32_t far[4] = {rows[s][0].z, rows[s][1].z, rows[s][0].w, rows[s][1].w};
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const uint4 piece = *reinterpret_cast<const uint4*>(from.x + from.tokens[tile] + column);
      const uint32_t near_x[2] = {piece.x, piece.y};
      const uint32_t far_x[2] = {piece.z, piece.w};
      mma_m16n8k16_bf16(sums[tile], near, near_x);
      mma_m16n8k16_bf16(sums[tile], far, far_x);
    }
  }
}

// kTiles: of 8 tokens each.
template <int kTiles, typename Out>
__global__ void __launch_bounds__(kThreads, kTiles == 1 ? 3 : 2) multiply_rows(RowProduct<Out> p) {
  static_assert(kFeatures * kTiles * kTokens <= 2 * kThreads, "an output or two a thread");
  __shared__ float parts[kWarps][kFeatures][kTiles * kTokens];
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int g = static_cast<int>(threadIdx.x) % kWarp / 4;
  const int q = static_cast<int>(threadIdx.x) % 4;
  const int64_t first = int64_t{blockIdx.x} * kFeatures;
  // Features and tokens past the last read its row instead; their sums are not written.
  const int64_t last = p.features - 1;
  LaneRows<kTiles> from;
  from.x = p.x + 8 * q;
  from.low = p.weight + (first + g < last ? first + g : last) * p.depth + 8 * q;
  from.high = p.weight + (first + g + 8 < last ? first + g + 8 : last) * p.depth + 8 * q;
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    const int t = tile * kTokens + g < p.tokens ? tile * kTokens + g : p.tokens - 1;
    from.tokens[tile] = t * static_cast<int>(p.depth);
  }

  constexpr int64_t kTurn = kStep * kSteps;  // columns
  float sums[kTiles][4] = {};
  uint4 rows[kSteps][2];
  int64_t k = warp * kTurn;
  if (k + kTurn <= p.depth) load_weights<true>(from, k, p.depth, rows);
  await_launch_before();  // weights are constant, x is not
  while (k + kTurn <= p.depth) {
    // Four tiles: a branch before each step keeps the compiler from asking for all of x at once, for which
    // two blocks a processor have no registers.
    multiply_turn<kTiles <= 2>(from, k, p.depth, rows, sums);
    k += kWarps * kTurn;
    if (k + kTurn <= p.depth) load_weights<true>(from, k, p.depth, rows);
  }
  if (k < p.depth) {  // the warp to which the end falls
    load_weights<false>(from, k, p.depth, rows);
    multiply_turn<false>(from, k, p.depth, rows, sums);
  }

#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    const int t = tile * kTokens + 2 * q;
    parts[warp][g][t] = sums[tile][0];
    parts[warp][g][t + 1] = sums[tile][1];
    parts[warp][g + 8][t] = sums[tile][2];
    parts[warp][g + 8][t + 1] = sums[tile][3];
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kFeatures * kTiles * kTokens; i += kThreads) {
    const int t = i / kFeatures;
    const int64_t n = first + i % kFeatures;
    if (t >= p.tokens || n >= p.features) continue;
    float value = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) value += parts[w][i % kFeatures][t];
    Out* const to = p.out + t * p.features + n;
    if (p.bias != nullptr) value += p.bias[n];
    if (p.accumulate) value += to_f32(*to);
    *to = from_f32<Out>(value);
  }
}

template <typename Out>
void launch_rows(const LaunchStream& stream, const ProductOperands& o) {
  const RowProduct<Out> p{o.x.as<const __nv_bfloat16>(),
                          o.weight.as<const __nv_bfloat16>(),
                          o.out.as<Out>(),
                          o.bias.as<const float>(),
                          static_cast<int>(o.x.shape[0]),
                          o.weight.shape[0],
                          o.weight.shape[1],
                          o.accumulate};
  const Grid grid{dim3(blocks_for(p.features, kFeatures)), kThreads};
  if (p.tokens <= kTokens) return launch("row_product", multiply_rows<1, Out>, grid, stream, p);
  if (p.tokens <= 2 * kTokens) return launch("row_product", multiply_rows<2, Out>, grid, stream, p);
  launch("row_product", multiply_rows<4, Out>, grid, stream, p);
}

bool whole_pieces(const Tensor& tensor) {
  return reinterpret_cast<uintptr_t>(tensor.data) % sizeof(uint4) == 0;
}

}  // namespace

bool row_product_takes(const ProductOperands& o) {
  return o.x.dtype == DType::kBFloat16 && o.x.shape[0] <= kRowProductRowsMax &&
         o.weight.shape[1] % kStep == 0 && whole_pieces(o.x) && whole_pieces(o.weight);
}

void row_product(const LaunchStream& stream, const ProductOperands& operands) {
  if (!row_product_takes(operands)) {
    check_failed("row_product",
                 "x is " + operands.x.shape_text() + ", weight " + operands.weight.shape_text());
  }
  if (operands.out.elements() == 0) return;
  if (operands.out.dtype == DType::kFloat32) return launch_rows<float>(stream, operands);
  launch_rows<__nv_bfloat16>(stream, operands);
}

}  // namespace troupe::cuda
