// All bodies in the order they need, and the table that names them: included inside namespace
// troupe::cpu::<set>, so no include guard.

// clang-format off
#include "kernels/cpu/math_body.h"
#include "kernels/cpu/rows_body.h"
#include "kernels/cpu/panels_body.h"
#include "kernels/cpu/attention_scores_body.h"
#include "kernels/cpu/attention_body.h"
// clang-format on

// Four byte products without VNNI (quads_body.h).
struct QuadDot {
  static constexpr int32_t kOffset = 0;
  static IntVec dot(IntVec sums, IntVec x, IntVec weights) { return dot_signed(sums, x, weights); }
};
#include "kernels/cpu/quads_body.h"

inline constexpr VectorOps kOps{kPanelColumns,   rms_norm,      silu_mul, rotate,       to_float, attention,
                                merge_attention, panel_product, quantize, quad_product, nullptr};
