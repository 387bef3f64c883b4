#pragma once

// int8 products with AVX512-VNNI: one instruction adds four byte products to each lane (quads_body.h).
//
// Included by target_avx512.cc, after the bodies, under a target that adds avx512vnni.

namespace troupe::cpu::avx512::vnni {

struct QuadDot {
  static constexpr int32_t kOffset = 128;
  static IntVec dot(IntVec sums, IntVec x, IntVec weights) {
    return {_mm512_dpbusd_epi32(sums.r, x.r, weights.r)};
  }
};

#include "kernels/cpu/quads_body.h"

}  // namespace troupe::cpu::avx512::vnni
