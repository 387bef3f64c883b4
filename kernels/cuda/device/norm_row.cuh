#pragma once

// RMS norm of one row by a block, of up to kNormColumnsMax columns in whole pieces of 16 bytes: read once,
// all of it at once, and kept in registers. The squares are added up as kNormThreads threads would, however
// many there are: the same bits in rms_norm.cu and where a product norms its own rows (skinny_gemm.cu).

#include "kernels/cuda/device/device.cuh"

namespace troupe::cuda {

inline constexpr int kNormThreads = 512;
inline constexpr int kNormWide = 4;       // columns of a piece
inline constexpr int kNormPiecesMax = 4;  // of one of those threads
inline constexpr int64_t kNormColumnsMax = int64_t{kNormPiecesMax} * kNormThreads * kNormWide;

// The least of 2 and kNormPiecesMax that hold so many columns; 0: none, or they are no whole pieces.
inline int norm_pieces(int64_t columns) {
  if (columns % kNormWide != 0 || columns > kNormColumnsMax) return 0;
  return columns <= kNormColumnsMax / 2 ? kNormPiecesMax / 2 : kNormPiecesMax;
}
// Whether rows are whole pieces where they lie.
inline bool norm_aligned(const Tensor& tensor) {
  return reinterpret_cast<uintptr_t>(tensor.data) % sizeof(Piece<float, kNormWide>) == 0;
}

__device__ __forceinline__ float norm_scale(float squares, int64_t columns, float epsilon) {
  return 1.0f / sqrtf(squares / static_cast<float>(columns) + epsilon);
}

template <int kThreads, int kPieces>
class NormRow {
 public:
  // Floats that a block's threads share.
  static constexpr int kScratch = kNormThreads / kWarp;

  // Starts the loads that normalize() waits for.
  __device__ __forceinline__ void load_weight(const float* weight, int columns) {
    load(weight, columns, weight_);
  }
  // All threads of the block call it; they need not have met since the last row, and have when it returns,
  // but not since it wrote `out`, which is aligned as its pieces.
  template <typename T>
  __device__ __forceinline__ void normalize(const float* row, int columns, float epsilon, T* out,
                                            float* scratch) const {
    Pieces x;
    load(row, columns, x);
#pragma unroll
    for (int share = 0; share < kShares; ++share) {
      float squares = 0;
#pragma unroll
      for (int i = 0; i < kPieces; ++i) {
#pragma unroll
        for (int c = 0; c < kNormWide; ++c) squares += x[share][i].values[c] * x[share][i].values[c];
      }
      squares = warp_reduce(squares, Sum());
      if (threadIdx.x % kWarp == 0) scratch[(share * kThreads + threadIdx.x) / kWarp] = squares;
    }
    __syncthreads();
    float squares = scratch[0];
#pragma unroll
    for (int w = 1; w < kScratch; ++w) squares += scratch[w];
    __syncthreads();  // it is the next row's
    const float scale = norm_scale(squares, columns, epsilon);
#pragma unroll
    for (int share = 0; share < kShares; ++share) {
#pragma unroll
      for (int i = 0; i < kPieces; ++i) {
        if (place(share, i) >= columns / kNormWide) continue;
        Piece<T, kNormWide> piece;
#pragma unroll
        for (int c = 0; c < kNormWide; ++c)
          piece.values[c] = from_f32<T>(x[share][i].values[c] * scale * weight_[share][i].values[c]);
        reinterpret_cast<Piece<T, kNormWide>*>(out)[place(share, i)] = piece;
      }
    }
  }

 private:
  static_assert(kNormThreads % kThreads == 0, "each thread stands for as many");
  static constexpr int kShares = kNormThreads / kThreads;
  using Pieces = Piece<float, kNormWide>[kShares][kPieces];

  __device__ __forceinline__ static int place(int share, int i) {
    return i * kNormThreads + share * kThreads + static_cast<int>(threadIdx.x);
  }
  __device__ __forceinline__ static void load(const float* from, int columns, Pieces& to) {
#pragma unroll
    for (int share = 0; share < kShares; ++share) {
#pragma unroll
      for (int i = 0; i < kPieces; ++i) {
        to[share][i] = {};
        if (place(share, i) >= columns / kNormWide) continue;
        to[share][i] = reinterpret_cast<const Piece<float, kNormWide>*>(from)[place(share, i)];
      }
    }
  }

  Pieces weight_;
};

}  // namespace troupe::cuda
