#pragma once

// The launches of the own products (ops.h has the contract of a launch).

#include <cuda.h>

#include <cstdint>

#include "kernels/cuda/device/launch_stream.h"
#include "kernels/ops/rms_norm.h"
#include "kernels/tensor.h"

namespace troupe::cuda {

// out (N) bfloat16 = x (N) float32
void round_vector(const LaunchStream& stream, const Tensor& x, const Tensor& out);

// A product's operands on the device: weight (N, K) row-major in the activation type.
struct ProductOperands {
  Tensor x;       // (T, K) activation
  Tensor weight;  // (N, K) activation
  Tensor out;     // (T, N) activation or float32
  bool accumulate = false;
  Tensor bias = {};  // (N) float32, or empty
};
// Any shape and type, in plain tiles: the reference op, and the product of shapes that no other takes.
void tiled_gemm(const LaunchStream& stream, const ProductOperands& operands);
// Few rows by a weight that is read once, at memory speed (skinny_gemm.cu).
inline constexpr int64_t kRowProductRowsMax = 32;
// And up to so many rows that it norms itself.
inline constexpr int64_t kNormedRowsMax = 2;
// Further ops done in the same launch, to the bits of the ops by themselves.
struct SkinnyGemmForm {
  // out (T, F) bfloat16 = silu(gate) * up, of gate over up of a weight (2F, K); `accumulate` is not looked
  // at.
  bool gated = false;
  const RmsNormParams* norm = nullptr;  // x is its out, and not read: computed from its x. Or null.
  // The launches before this one leave memory idle: as much of the weight as L2 keeps comes there while they
  // run, if launches overlap. Of up to 16 rows, neither gated nor normed; else nothing does.
  bool prefetches = false;
};
bool row_product_takes(const ProductOperands& operands, const RmsNormParams* norm = nullptr);
void skinny_gemm(const LaunchStream& stream, const ProductOperands& operands,
                 const SkinnyGemmForm& form = {});

// 9 to 64 rows by Hopper's products of warpgroups, with the weight's rows as the tensor cores' 64
// (swap_ab_gemm.cu; swap_ab.h says what it takes).
inline constexpr int64_t kSwapAbRowsMin = 9, kSwapAbRowsMax = 64;
// A turn: so many rows of the weight by so many columns.
inline constexpr int kSwapAbRows = 128, kSwapAbColumns = 64;
struct SwapAbSchedule {
  int tiles = 0;       // of kSwapAbRows rows, as many of the weight's upper and lower half
  int tile_turns = 0;  // of each
  int blocks = 0;      // that share all turns
};
// Numbers that a launch leaves in memory, for each block and for each tile.
inline constexpr int kSwapAbPartials = 2 * kSwapAbRows * static_cast<int>(kSwapAbRowsMax);
inline constexpr int kSwapAbArrivals = 2;
struct SwapAbForm {
  SwapAbSchedule schedule;
  const CUtensorMap& weight;  // boxes of half of kSwapAbRows; gated, of 8 rows of two planes
  const CUtensorMap& x;       // boxes of swap_ab_box_rows()
  float* partials;
  unsigned* arrivals;  // 0, and again so afterwards
  bool gated = false;  // as SkinnyGemmForm's
};
// Columns of the transposed product, which come in eights.
inline int swap_ab_box_rows(int64_t rows) {
  return static_cast<int>((rows + 7) / 8 * 8);
}
// Whether the code that the device has loaded is sm_90a's own: compiled from sm_90's PTX it has no body.
bool has_swap_ab_code();
// Before all launches. The device then has the code of all of them: it has one kernel for each eight rows, of
// which a warm-up has not all, and code that comes with its first launch takes milliseconds.
void load_swap_ab_gemm();
void swap_ab_gemm(const LaunchStream& stream, const ProductOperands& operands, const SwapAbForm& form);

}  // namespace troupe::cuda
