// The inner loops (vector_ops.h) for avx512.
//
// Headers of the library come first: what they define must not be compiled for this target, or the linker
// could pick that copy for machines without it.

#include <immintrin.h>

#include "kernels/cpu/vector_ops.h"
#include "kernels/int8.h"
#include "kernels/tensor.h"

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl"))), \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")
#endif

#include "kernels/cpu/vec_avx512.h"

namespace troupe::cpu::avx512 {

#include "kernels/cpu/ops_body.h"

}  // namespace troupe::cpu::avx512

// g++ adds to the target in force; clang keeps the first target a function is given, so there the list is
// whole.
#ifdef __clang__
#pragma clang attribute pop
#pragma clang attribute push(                                                                          \
    __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16"))), \
    apply_to = function)
#else
#pragma GCC target("avx512vnni,avx512bf16")
#endif

#include "kernels/cpu/pair_panels_avx512.h"
#include "kernels/cpu/pair_scores_avx512.h"
#include "kernels/cpu/quad_panels_avx512.h"

#ifdef __clang__
#pragma clang attribute pop
#pragma clang attribute push(                                                            \
    __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni," \
                          "avx512bf16,amx-tile,amx-bf16,amx-int8"))),                    \
    apply_to = function)
#else
#pragma GCC target("amx-tile,amx-bf16,amx-int8")
#endif

#include "kernels/cpu/tile_decode_amx.h"
#include "kernels/cpu/tile_panels_amx.h"
#include "kernels/cpu/tile_prefill_amx.h"

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace troupe::cpu {
namespace {

constexpr VectorOps kBf16Ops = [] {
  VectorOps ops = avx512::kOps;
  ops.attention = avx512::attention_pairs;
  ops.quad_product = avx512::vnni::quad_product;
  ops.pair_product = avx512::pair_product;
  return ops;
}();

constexpr TileOps kTileOps{avx512::arrange_rows, avx512::tile_product,      avx512::tile_row,
                           avx512::tile_gated,   avx512::tile_quad_product, avx512::tile_quad_row};

constexpr VectorOps kAmxOps = [] {
  VectorOps ops = kBf16Ops;
  ops.attention = avx512::attention_tiles;
  ops.prefill = avx512::prefill_tiles;
  ops.tiles = &kTileOps;
  return ops;
}();

}  // namespace

const VectorOps& avx512_vector_ops() {
  return avx512::kOps;
}

const VectorOps& avx512_bf16_vector_ops() {
  return kBf16Ops;
}

const VectorOps& amx_vector_ops() {
  return kAmxOps;
}

}  // namespace troupe::cpu
