// out[t][n] = Σ_k x[t][k] · weight[n][k] + bias[n] (+ out[t][n]) for up to 32 tokens: decode. And, in the
// same launch, gated: out[t][f] = silu(gate) · up, of the products with rows f and F + f of a weight of 2F;
// and of one or two tokens, normed: x[t] is the RMS norm of a float32 row.
//
// x (T, K) bfloat16 · weight (N, K) bfloat16 · out (T, N) bfloat16 or float32 · T ≤ 32, K a multiple of 32
// A block of 8 warps takes 16 features, whatever T: its warps share K in turns of 128 columns and add up
// through shared memory, always in the same order, so that a token's bits do not depend on the batch. Gated,
// the 16 are 8 of the gate and the 8 of up that belong to them, so the block has both where it adds up; it
// rounds where product and silu_mul would. Normed, each block norms the rows for itself, to the bits of
// rms_norm, while its first weights come; but for the first blocks they are in L1. What is saved is a launch
// that waits for memory twice, some 2 of the 110 µs that a layer of 7B takes at one token; counted, not
// measured.
//
// The weight is the tensor cores' left operand. A lane reads 16 bytes of row g = lane / 4 at column 8q,
// q = lane % 4, as the memory has them, and calls its four pairs the registers of two m16n8k16 products:
// which k a register stands for does not matter as long as both operands agree, and x is read the same way.
// So nothing passes through shared memory and every access is a whole 16 bytes.
//
// Bytes: 2 · N · K, read once past L1, the floor of decode; x (2 · T · K) comes from L2 for each of N/16
// blocks: a T-th/16 of the weight's bytes there. In flight: 8 loads of 16 bytes a lane, 32 KB a block, each
// asked for anew as soon as its registers are multiplied, the first of them while the launch before still
// runs; so is the bias, and what is added to comes while the sums are made. Blocks a processor: 3 of one
// tile, 2 of more (registers). Behind attention, which leaves memory idle where few decode, more of the
// weight comes to L2 meanwhile (SkinnyGemmForm). Measured on an H200: .90 of a copy's rate for 28,672 ×
// 4,096, .84, .76 and .69 for the layer's others, whose ramps count for more. What comes to L2 ahead gains
// nothing there, nor do two turns under way together; shared memory preferred to L1, as attention has it,
// costs a fifth at 8 rows, which L1 holds.

#include <algorithm>

#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/device/norm_row.cuh"
#include "kernels/cuda/device/ptx.cuh"
#include "kernels/cuda/gemm/gemm_kernels.h"

namespace troupe::cuda {
namespace {

constexpr int kFeatures = 16;  // of a block: the rows of an mma
constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;
constexpr int kStep = 32;   // columns that a warp's four lanes of a row read as one
constexpr int kSteps = 4;   // under way together
constexpr int kTokens = 8;  // the columns of an mma
constexpr int kTurnColumns = kStep * kSteps;
constexpr int kToNextTurn = kWarps * kTurnColumns;  // of a warp

// Bytes of a weight that come to L2 ahead: half of what Hopper has, so that they may stay until they are
// read.
constexpr int64_t kPrefetchedBytes = int64_t{24} << 20;

template <typename Out>
struct SkinnyGemm {
  const __nv_bfloat16* x;
  const __nv_bfloat16* weight;
  Out* out;
  const float* bias;  // or null
  int tokens;
  int64_t features, depth;
  bool accumulate;
  int prefetched;  // columns behind the first turns'
  // Normed; x is null then.
  const float* normed;
  const float* norm_weight;
  float epsilon;
};

// A lane's reads, from its column of a turn on: its two rows of the weight, and of each tile its token's row
// of x. Steps are at constant distances from these, which an instruction has room for.
template <int kTiles>
struct LaneRows {
  const __nv_bfloat16 *low, *high, *x;
  int tokens[kTiles];  // their places behind x; half the registers of pointers

  __device__ __forceinline__ void advance(int columns) {
    low += columns;
    high += columns;
    x += columns;
  }
};

// The weights of its rows that a lane has under way.
using Turn = uint4[kSteps][2];

template <int kTiles>
__device__ __forceinline__ void load_step(const LaneRows<kTiles>& from, int column, uint4 (&rows)[2]) {
  rows[0] = load_streaming(reinterpret_cast<const uint4*>(from.low + column));
  rows[1] = load_streaming(reinterpret_cast<const uint4*>(from.high + column));
}

template <int kTiles>
__device__ __forceinline__ void multiply_step(const LaneRows<kTiles>& from, int column,
                                              const uint4 (&rows)[2], float (&sums)[kTiles][4]) {
  const uint32_t near[4] = {rows[0].x, rows[1].x, rows[0].y, rows[1].y};
  const uint32_t far[4] = {rows[0].z, rows[1].z, rows[0].w, rows[1].w};
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    const uint4 piece = *reinterpret_cast<const uint4*>(from.x + from.tokens[tile] + column);
    const uint32_t near_x[2] = {piece.x, piece.y};
    const uint32_t far_x[2] = {piece.z, piece.w};
    mma_m16n8k16_bf16(sums[tile], near, near_x);
    mma_m16n8k16_bf16(sums[tile], far, far_x);
  }
}

// Multiplies a turn; kMore: also loads the warp's next one, step by step.
template <bool kMore, int kTiles>
__device__ __forceinline__ void multiply_turn(LaneRows<kTiles>& from, Turn& rows, float (&sums)[kTiles][4]) {
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    multiply_step(from, s * kStep, rows[s], sums);
    if (kMore) load_step(from, kToNextTurn + s * kStep, rows[s]);
  }
  from.advance(kToNextTurn);
}

// A block's outputs: of thread i number i, i + kThreads, …
template <typename Out, int kTiles, bool kGated>
struct Outputs {
  static constexpr int kWide = kGated ? kFeatures / 2 : kFeatures;
  static constexpr int kCount = kWide * kTiles * kTokens;
  static constexpr int kOfThread = (kCount + kThreads - 1) / kThreads;

  int64_t first;  // feature
  // Added at the end only: an addition waits for its load.
  float bias[kOfThread] = {}, up_bias[kOfThread] = {}, before[kOfThread] = {};

  __device__ __forceinline__ static int feature(int i) { return i % kWide; }
  __device__ __forceinline__ static int token(int i) { return i / kWide; }
  __device__ __forceinline__ bool inside(const SkinnyGemm<Out>& p, int i) const {
    return i < kCount && token(i) < p.tokens && first + feature(i) < p.features;
  }
  __device__ __forceinline__ Out* place(const SkinnyGemm<Out>& p, int i) const {
    return p.out + token(i) * p.features + first + feature(i);
  }

  __device__ __forceinline__ void load_bias(const SkinnyGemm<Out>& p) {
    if (p.bias == nullptr) return;
#pragma unroll
    for (int o = 0; o < kOfThread; ++o) {
      const int i = static_cast<int>(threadIdx.x) + o * kThreads;
      if (!inside(p, i)) continue;
      bias[o] = p.bias[first + feature(i)];
      if (kGated) up_bias[o] = p.bias[p.features + first + feature(i)];
    }
  }
  __device__ __forceinline__ void load_before(const SkinnyGemm<Out>& p) {
    if (!p.accumulate) return;
#pragma unroll
    for (int o = 0; o < kOfThread; ++o) {
      const int i = static_cast<int>(threadIdx.x) + o * kThreads;
      if (inside(p, i)) before[o] = to_f32(*place(p, i));
    }
  }
  __device__ __forceinline__ void write(const SkinnyGemm<Out>& p,
                                        const float (&parts)[kWarps][kFeatures][kTiles * kTokens]) const {
#pragma unroll
    for (int o = 0; o < kOfThread; ++o) {
      const int i = static_cast<int>(threadIdx.x) + o * kThreads;
      if (!inside(p, i)) continue;
      float value = 0, up = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) {
        value += parts[w][feature(i)][token(i)];
        if (kGated) up += parts[w][kFeatures / 2 + feature(i)][token(i)];
      }
      value += bias[o];
      value += before[o];
      if (kGated) value = silu_times(to_f32(from_f32<Out>(value)), to_f32(from_f32<Out>(up + up_bias[o])));
      *place(p, i) = from_f32<Out>(value);
    }
  }
};

// Rows in shared memory begin 64 bytes apart in its banks (where K is a multiple of 64): eight lanes read two
// of them at once.
constexpr int kNormPad = 32;

// Blocks a processor, by registers: Blackwell's code needs some more.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
constexpr int kBlocksOfNormed = 2, kBlocksOfFourTiles = __CUDA_ARCH__ >= 1200 ? 1 : 2;
#else
constexpr int kBlocksOfNormed = 3, kBlocksOfFourTiles = 2;
#endif
template <int kTiles, int kNormPieces>
constexpr int kBlocksOfProcessor = kTiles == 4                       ? kBlocksOfFourTiles
                                   : kNormPieces == 2                ? kBlocksOfNormed
                                   : kTiles == 1 && kNormPieces == 0 ? 3
                                                                     : 2;

// kTiles: of 8 tokens each. kNormPieces: 0, or normed by so many pieces a thread (norm_row.cuh).
template <typename Out, int kTiles, bool kGated, int kNormPieces = 0>
__global__ void __launch_bounds__(kThreads, kBlocksOfProcessor<kTiles, kNormPieces>)
    multiply_rows(SkinnyGemm<Out> p) {
  TROUPE_DYNAMIC_SHARED(memory);
  __shared__ float parts[kWarps][kFeatures][kTiles * kTokens];
  using O = Outputs<Out, kTiles, kGated>;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int g = static_cast<int>(threadIdx.x) % kWarp / 4;
  const int q = static_cast<int>(threadIdx.x) % 4;
  O outputs{int64_t{blockIdx.x} * O::kWide};
  // Features and tokens past the last read its row instead; their sums are not written.
  const int64_t last = p.features - 1;
  const int64_t low = outputs.first + g, high = kGated ? low : low + kFeatures / 2;
  const int64_t to_high = kGated ? p.features : 0;
  auto* const normed = reinterpret_cast<__nv_bfloat16*>(memory);
  const int x_stride = static_cast<int>(p.depth) + (kNormPieces > 0 ? kNormPad : 0);
  LaneRows<kTiles> from;
  from.x = (kNormPieces > 0 ? normed : p.x) + 8 * q;
  from.low = p.weight + (low < last ? low : last) * p.depth + 8 * q;
  from.high = p.weight + (to_high + (high < last ? high : last)) * p.depth + 8 * q;
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    const int t = tile * kTokens + g < p.tokens ? tile * kTokens + g : p.tokens - 1;
    from.tokens[tile] = t * x_stride;
  }

  float sums[kTiles][4] = {};
  Turn rows;
  int left = static_cast<int>(p.depth) - warp * kTurnColumns;  // columns, from the warp's turn on
  from.advance(warp * kTurnColumns);
  const bool has_whole = left >= kTurnColumns;
  constexpr int kAhead = kNormPieces > 0 ? kSteps - 1 : kSteps;  // norms need registers, too
  if (has_whole) {
#pragma unroll
    for (int s = 0; s < kAhead; ++s) load_step(from, s * kStep, rows[s]);
  }
  constexpr bool kEarly = kTiles <= 2;  // four have no registers to keep it in
  constexpr bool kPrefetches = kTiles <= 2 && !kGated && kNormPieces == 0;
  if (kPrefetches && p.prefetched > 0 && threadIdx.x < kFeatures) {
    const int64_t row = outputs.first + threadIdx.x;
    prefetch_to_l2(p.weight + (row < last ? row : last) * p.depth + kToNextTurn,
                   static_cast<uint32_t>(p.prefetched * sizeof(__nv_bfloat16)));
  }
  if (kEarly) outputs.load_bias(p);
  if constexpr (kNormPieces > 0) {
    using Norm = NormRow<kThreads, kNormPieces>;
    const auto columns = static_cast<int>(p.depth);
    __shared__ float scratch[Norm::kScratch];
    Norm norm;
    norm.load_weight(p.norm_weight, columns);
    await_launch_before();
#pragma unroll 1
    for (int t = 0; t < p.tokens; ++t)
      norm.normalize(p.normed + t * p.depth, columns, p.epsilon, normed + t * x_stride, scratch);
    __syncthreads();
  } else {
    await_launch_before();  // weights and biases are constant, x is not
  }
  if (kEarly) outputs.load_before(p);
  if (has_whole) {
#pragma unroll
    for (int s = kAhead; s < kSteps; ++s) load_step(from, s * kStep, rows[s]);
#pragma unroll 1
    for (; left >= kToNextTurn + kTurnColumns; left -= kToNextTurn) multiply_turn<true>(from, rows, sums);
    multiply_turn<false>(from, rows, sums);
    left -= kToNextTurn;
  }
  // The warp to which the end falls may have less than a turn; none where K is a multiple of 128.
#pragma unroll 1
  for (int column = 0; column < left; column += kStep) {
    load_step(from, column, rows[0]);
    multiply_step(from, column, rows[0], sums);
  }

#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    const int t = tile * kTokens + 2 * q;
    parts[warp][g][t] = sums[tile][0];
    parts[warp][g][t + 1] = sums[tile][1];
    parts[warp][g + 8][t] = sums[tile][2];
    parts[warp][g + 8][t + 1] = sums[tile][3];
  }
  if (!kEarly) {
    outputs.load_bias(p);
    outputs.load_before(p);
  }
  __syncthreads();
  outputs.write(p, parts);
}

// The driver is told once how much shared memory it may have: what any launch needs, as a graph may hold
// several.
template <typename Out, bool kGated, int kNormPieces>
auto* normed_kernel() {
  constexpr auto kMost = kNormedRowsMax * (kNormColumnsMax + kNormPad) * int64_t{sizeof(__nv_bfloat16)};
  const auto kernel = multiply_rows<Out, 1, kGated, kNormPieces>;
  static const cudaError_t told =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kMost));
  check_cuda("row_product", told);
  return kernel;
}

template <typename Out, bool kGated>
void launch_rows(const LaunchStream& stream, const ProductOperands& o, const SkinnyGemmForm& form) {
  const RmsNormParams* const norm = form.norm;
  const int64_t depth = o.weight.shape[1];
  SkinnyGemm<Out> p{o.x.as<const __nv_bfloat16>(),
                    o.weight.as<const __nv_bfloat16>(),
                    o.out.as<Out>(),
                    o.bias.as<const float>(),
                    static_cast<int>(o.x.shape[0]),
                    o.out.shape[1],
                    depth,
                    o.accumulate,
                    0,
                    nullptr,
                    nullptr,
                    0.0f};
  Grid grid{dim3(blocks_for(p.features, Outputs<Out, 1, kGated>::kWide)), kThreads};
  if (form.prefetches && stream.overlaps) {
    const int64_t all = std::max<int64_t>(depth - kToNextTurn, 0);
    const int64_t room = kPrefetchedBytes / (p.features * static_cast<int64_t>(sizeof(__nv_bfloat16)));
    p.prefetched = static_cast<int>(std::min(all, room / kStep * kStep));
  }
  auto* kernel = p.tokens <= kTokens       ? multiply_rows<Out, 1, kGated>
                 : p.tokens <= 2 * kTokens ? multiply_rows<Out, 2, kGated>
                                           : multiply_rows<Out, 4, kGated>;
  if (norm != nullptr) {
    p.x = nullptr;
    p.normed = norm->x.as<const float>();
    p.norm_weight = norm->weight.as<const float>();
    p.epsilon = norm->epsilon;
    kernel = norm_pieces(depth) == 2 ? normed_kernel<Out, kGated, 2>() : normed_kernel<Out, kGated, 4>();
    grid.shared_bytes = static_cast<size_t>(p.tokens * (depth + kNormPad)) * sizeof(__nv_bfloat16);
  }
  launch("row_product", kernel, grid, stream, p);
}

bool whole_pieces(const Tensor& tensor) {
  return reinterpret_cast<uintptr_t>(tensor.data) % sizeof(uint4) == 0;
}

}  // namespace

bool row_product_takes(const ProductOperands& o, const RmsNormParams* norm) {
  const bool takes = o.x.dtype == DType::kBFloat16 && o.x.shape[0] <= kRowProductRowsMax &&
                     o.weight.shape[1] % kStep == 0 && whole_pieces(o.x) && whole_pieces(o.weight);
  if (norm == nullptr) return takes;
  return takes && o.x.shape[0] <= kNormedRowsMax && norm_pieces(norm->x.shape[1]) > 0 &&
         norm_aligned(norm->x) && norm_aligned(norm->weight);
}

void skinny_gemm(const LaunchStream& stream, const ProductOperands& operands, const SkinnyGemmForm& form) {
  if (!row_product_takes(operands, form.norm)) {
    check_failed("row_product",
                 "x is " + operands.x.shape_text() + ", weight " + operands.weight.shape_text());
  }
  if (operands.out.elements() == 0) return;
  if (form.gated) return launch_rows<__nv_bfloat16, true>(stream, operands, form);
  if (operands.out.dtype == DType::kFloat32) return launch_rows<float, false>(stream, operands, form);
  launch_rows<__nv_bfloat16, false>(stream, operands, form);
}

}  // namespace troupe::cuda
