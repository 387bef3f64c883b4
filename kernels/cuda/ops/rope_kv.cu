// Splits qkv, norms and rotates q and k, writes k and v into their slots (formulas:
// kernels/ref/attention.cc).
//
// qkv (T, (H + 2G)·C) activation · cos_sin (positions, C) float32 or null · q_out (T, H, C)
// A warp a head of a token: of one token all heads are under way at once, as a decode of few has nothing else
// to hide a wait behind. Lane i holds the pairs (x[c], x[c + C/2]) of columns c = 2i, 2i + 1, 2i + 64, …:
// both halves of a pair meet in one register file, a row's half is read in one piece, and the head's norm is
// a sum over the warp.
//
// Bytes: 2 · T · (H + 2G) · C · size and C floats of the table a head: one read, one write.

#include <algorithm>
#include <initializer_list>

#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/device/head_dim.h"
#include "kernels/cuda/device/ptx.cuh"
#include "kernels/cuda/ops/ops.h"

namespace troupe::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kWide = 2;  // neighbouring columns, moved as one where rows are whole such pieces
constexpr int kPieces = kHeadDimMax / 2 / kWarp / kWide;  // of a lane

template <typename T>
struct RopeHeads {
  const T* qkv;
  const float* cos_sin;  // or null
  const int32_t* positions;
  const int32_t* slots;
  T* q_out;
  T* kv;
  const float* q_norm;  // or null
  const float* k_norm;  // or null
  float norm_epsilon;
  int heads;  // H
  KvPlaces places;
};

// Columns c and c + 1 of a head's half; zeros past its end. kWhole: halves are whole pieces.
template <bool kWhole, typename T>
__device__ __forceinline__ void load_piece(const T* from, int c, int half, float (&to)[kWide]) {
  if (kWhole) {
    Piece<T, kWide> piece = {};
    if (c < half) piece = *reinterpret_cast<const Piece<T, kWide>*>(from + c);
#pragma unroll
    for (int j = 0; j < kWide; ++j) to[j] = to_f32(piece.values[j]);
  } else {
#pragma unroll
    for (int j = 0; j < kWide; ++j) to[j] = c + j < half ? to_f32(from[c + j]) : 0.0f;
  }
}
template <bool kWhole, typename T>
__device__ __forceinline__ void store_piece(T* to, int c, int half, const float (&from)[kWide]) {
  if (kWhole) {
    Piece<T, kWide> piece;
#pragma unroll
    for (int j = 0; j < kWide; ++j) piece.values[j] = from_f32<T>(from[j]);
    if (c < half) *reinterpret_cast<Piece<T, kWide>*>(to + c) = piece;
  } else {
#pragma unroll
    for (int j = 0; j < kWide; ++j) {
      if (c + j < half) to[c + j] = from_f32<T>(from[j]);
    }
  }
}

// (C) of one token's `which` (0 k, 1 v) of head g.
template <typename T>
__device__ __forceinline__ T* slot_of(const RopeHeads<T>& p, int32_t slot, int which, int g) {
  return p.kv + p.places.tile(p.places.block_of(slot), which, g) +
         p.places.in_block(slot) * p.places.head_dim;
}

// The factors that scale and turn a head's two halves, as a lane needs them.
struct Turn {
  float low_norm[kPieces][kWide], high_norm[kPieces][kWide];
  float cosine[kPieces][kWide], sine[kPieces][kWide];
};

template <typename T, bool kWhole>
__global__ void __launch_bounds__(kWarps* kWarp) rope_heads(RopeHeads<T> p) {
  const int64_t t = blockIdx.x;
  const int h = static_cast<int>(blockIdx.y) * kWarps + static_cast<int>(threadIdx.x) / kWarp;
  const int first = static_cast<int>(threadIdx.x) % kWarp * kWide;
  const int half = p.places.head_dim / 2;
  const bool is_head = h < p.heads + 2 * p.places.kv_heads;
  const bool is_q = h < p.heads;
  const bool is_v = h >= p.heads + p.places.kv_heads;
  const float* const norm = is_q ? p.q_norm : is_v ? nullptr : p.k_norm;
  const bool turns = p.cos_sin != nullptr && !is_v;
  const int32_t slot = p.slots[t];
  Turn turn = {};
  if (turns) {
    const float* const angles = p.cos_sin + int64_t{p.positions[t]} * p.places.head_dim;
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      load_piece<kWhole>(angles, first + i * kWarp * kWide, half, turn.cosine[i]);
      load_piece<kWhole>(angles + half, first + i * kWarp * kWide, half, turn.sine[i]);
    }
  }
  if (norm != nullptr) {
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      load_piece<kWhole>(norm, first + i * kWarp * kWide, half, turn.low_norm[i]);
      load_piece<kWhole>(norm + half, first + i * kWarp * kWide, half, turn.high_norm[i]);
    }
  }
  await_launch_before();
  if (!is_head) return;

  const T* const from = p.qkv + (t * (p.heads + 2 * p.places.kv_heads) + h) * p.places.head_dim;
  T* const to = is_q   ? p.q_out + (t * p.heads + h) * p.places.head_dim
                : is_v ? slot_of(p, slot, 1, h - p.heads - p.places.kv_heads)
                       : slot_of(p, slot, 0, h - p.heads);
  float a[kPieces][kWide], b[kPieces][kWide];
  float squares = 0;
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    load_piece<kWhole>(from, first + i * kWarp * kWide, half, a[i]);
    load_piece<kWhole>(from + half, first + i * kWarp * kWide, half, b[i]);
#pragma unroll
    for (int j = 0; j < kWide; ++j) squares += a[i][j] * a[i][j] + b[i][j] * b[i][j];
  }
  float scale = 1.0f;
  if (norm != nullptr) {  // the same for the whole warp
    scale =
        1.0f / sqrtf(warp_reduce(squares, Sum()) / static_cast<float>(p.places.head_dim) + p.norm_epsilon);
  }
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    float low[kWide], high[kWide];
#pragma unroll
    for (int j = 0; j < kWide; ++j) {
      const float x = norm == nullptr ? a[i][j] : a[i][j] * (scale * turn.low_norm[i][j]);
      const float y = norm == nullptr ? b[i][j] : b[i][j] * (scale * turn.high_norm[i][j]);
      // Without a turn nothing is multiplied: an infinite y would make x a NaN.
      low[j] = turns ? x * turn.cosine[i][j] - y * turn.sine[i][j] : x;
      high[j] = turns ? y * turn.cosine[i][j] + x * turn.sine[i][j] : y;
    }
    store_piece<kWhole>(to, first + i * kWarp * kWide, half, low);
    store_piece<kWhole>(to + half, first + i * kWarp * kWide, half, high);
  }
}

// All of these begin at multiples of a piece of T.
template <typename T>
bool whole_pieces(std::initializer_list<const void*> pointers) {
  return std::all_of(pointers.begin(), pointers.end(), [](const void* pointer) {
    return reinterpret_cast<uintptr_t>(pointer) % sizeof(Piece<T, kWide>) == 0;
  });
}

}  // namespace

void rope_kv(const LaunchStream& stream, const RopeKvParams& params, const BoundKv& kv,
             const RopeKvIndices& indices) {
  if (params.q_out.elements() == 0) return;
  check_head_dim("rope_kv", kv.layout);
  with_activation("rope_kv", params.qkv.dtype, [&](auto type) {
    using T = decltype(type);
    RopeHeads<T> p{};
    p.qkv = params.qkv.as<const T>();
    p.cos_sin = params.cos_sin.as<const float>();
    p.positions = indices.positions;
    p.slots = indices.slots;
    p.q_out = params.q_out.as<T>();
    p.kv = static_cast<T*>(kv.data);
    p.q_norm = params.q_norm.as<const float>();
    p.k_norm = params.k_norm.as<const float>();
    p.norm_epsilon = params.norm_epsilon;
    p.heads = static_cast<int>(params.q_out.shape[1]);
    p.places = KvPlaces(kv.layout, params.layer);
    const Grid grid{dim3(static_cast<unsigned>(params.q_out.shape[0]),
                         blocks_for(p.heads + 2 * p.places.kv_heads, kWarps)),
                    kWarps * kWarp};
    const bool whole = kv.layout.head_dim % (2 * kWide) == 0 &&
                       whole_pieces<T>({params.qkv.data, params.q_out.data, kv.data}) &&
                       whole_pieces<float>({params.cos_sin.data, params.q_norm.data, params.k_norm.data});
    launch("rope_kv", whole ? rope_heads<T, true> : rope_heads<T, false>, grid, stream, p);
  });
}

}  // namespace troupe::cuda
