#pragma once

// The stand-in for the wrappers of single PTX instructions: same signatures, same layout of fragments (PTX
// ISA, "Matrix Fragments for mma.m16n8k16" and "ldmatrix"), in plain C++.

#include <cstdint>

#include "tests/kernels/emulated/cuda_runtime.h"

namespace troupe::emulated {

void multiply(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], const Place& where);
// `matrices` 8 x 8 matrices of 16-bit elements; the lanes from 8 i on give the rows of matrix i.
void load_matrices(uint32_t* registers, const void* row, int matrices, bool transposed, const Place& where);
void copy_async(void* shared, const void* global, bool valid, const Place& where);
void commit_copies();
// Makes visible all but the newest `groups_left` committed groups.
void wait_for_copies(int groups_left);

}  // namespace troupe::emulated

namespace troupe::cuda {

// d += a b in m16n8k16, bfloat16 with float sums.
inline void mma_m16n8k16_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                              const emulated::Place& where = emulated::Place::current()) {
  emulated::multiply(d, a, b, where);
}

inline void ldmatrix_x4(uint32_t (&r)[4], const void* row,
                        const emulated::Place& where = emulated::Place::current()) {
  emulated::load_matrices(r, row, 4, false, where);
}
inline void ldmatrix_x4_trans(uint32_t (&r)[4], const void* row,
                              const emulated::Place& where = emulated::Place::current()) {
  emulated::load_matrices(r, row, 4, true, where);
}
inline void ldmatrix_x2(uint32_t (&r)[2], const void* row,
                        const emulated::Place& where = emulated::Place::current()) {
  emulated::load_matrices(r, row, 2, false, where);
}
inline void ldmatrix_x2_trans(uint32_t (&r)[2], const void* row,
                              const emulated::Place& where = emulated::Place::current()) {
  emulated::load_matrices(r, row, 2, true, where);
}

// 16 bytes; not valid: zeros, and `global` is not read. What is copied lands at cp_async_wait, and the place
// holds 0xFF until then.
inline void cp_async_16(void* shared, const void* global, bool valid,
                        const emulated::Place& where = emulated::Place::current()) {
  emulated::copy_async(shared, global, valid, where);
}
inline void cp_async_commit() {
  emulated::commit_copies();
}
template <int N>
void cp_async_wait() {
  emulated::wait_for_copies(N);
}

inline uint4 load_streaming(const uint4* p) {
  return *emulated::aligned(p);
}

// Nothing changes but the time; what it names must be there all the same.
inline void prefetch_to_l2(const void* p, uint32_t bytes) {
  const auto* const words = static_cast<const uint4*>(p);
  for (uint32_t i = 0; i < bytes / sizeof(uint4); ++i) {
    [[maybe_unused]] volatile unsigned word = emulated::aligned(words + i)->x;
  }
}

inline void await_launch_before(const emulated::Place& where = emulated::Place::current()) {
  emulated::await_launch(where);
}

// ex2.approx.ftz: what is too small for a normal float is zero, on the way in and out.
inline float exp2_approx(float x) {
  if (fabsf(x) < 0x1p-126f) x = 0.0f;
  const float power = exp2f(x);
  return power < 0x1p-126f ? 0.0f : power;
}

}  // namespace troupe::cuda
