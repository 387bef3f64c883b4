#pragma once

// The instructions that CUDA C++ has no name for (PTX ISA 9.0). tests/kernels/emulated has a header of the
// same name and functions that does the same on the CPU.
//
// Fragments of mma_m16n8k16, with g = lane / 4 and q = lane % 4 (PTX ISA, "Matrix Fragments for
// mma.m16n8k16"); a pair is two neighbouring k in one register, the lower k in the lower half:
//   a[0] row g, k 2q..   a[1] row g + 8, k 2q..   a[2] row g, k 2q + 8..   a[3] row g + 8, k 2q + 8..
//   b[0] column g, k 2q..   b[1] column g, k 2q + 8..
//   d[0], d[1] row g, columns 2q, 2q + 1   d[2], d[3] row g + 8

#include <cuda_runtime.h>

#include <cstdint>

namespace troupe::cuda {

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// d += a · b, bfloat16 operands, float32 sums. All lanes of the warp together.
__device__ __forceinline__ void mma_m16n8k16_bf16(float (&d)[4], const uint32_t (&a)[4],
                                                  const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Four 8 × 8 tiles of 16-bit elements from shared memory: lane 8i + j names row j of tile i (16 bytes,
// aligned); r[i] of lane l is elements 2(l % 4), + 1 of row l / 4 of tile i. _trans: of column l / 4.
__device__ __forceinline__ void ldmatrix_x4(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}
__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}

// 16 bytes from global to shared memory behind the thread's back; zeros where not `valid` (`global` is then
// not read). Visible to the thread after cp_async_wait, to the others after a barrier behind that.
__device__ __forceinline__ void cp_async_16(void* shared, const void* global, bool valid) {
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global),
               "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void cp_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits until at most N groups of this thread are under way.
template <int N>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// 16 bytes that are read once: they leave no line in L1.
__device__ __forceinline__ uint4 load_streaming(const uint4* pointer) {
  uint4 value;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(pointer));
  return value;
}

// Sends so many bytes, a multiple of 16, on their way to L2, for any reader. Before sm_90 nothing happens.
__device__ __forceinline__ void prefetch_to_l2(const void* pointer, uint32_t bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(pointer), "r"(bytes) : "memory");
#endif
}

// Waits for the end of the launch before this one in the stream, and sees its writes; the launch behind this
// one may begin from now on. Both hold from the start unless the launch overlaps (LaunchStream). Every thread
// calls it, before it reads or writes any memory that a kernel writes, and before it returns. Memory that
// only copies write (weights, a step's arrays) may be read before it, and a short kernel's slowest read
// should be: a copy does not overlap, so all launches behind it come to the device when it has ended.
__device__ __forceinline__ void await_launch_before() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// 2^x within 2 ulp; results below 2^-126 are 0.
__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace troupe::cuda
