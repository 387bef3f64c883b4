#pragma once

// Hopper's own instructions (PTX ISA 9.0, sm_90a): barriers in shared memory, copies by the tensor copy
// engine that complete on them, and products of a warpgroup, four consecutive warps of which the first one's
// index is divisible by four. tests/kernels/emulated has a header of the same name and functions. Code that
// uses them is compiled only where TROUPE_HAS_WARPGROUPS.
//
// Tiles that they read lie in shared memory in rows of 128 bytes, kSwizzled elements, eight rows after each
// other; of row r the 16 bytes c are at place c ^ (r % 8) ("128-Byte swizzling"; swizzled_at()). Tiles begin
// at multiples of 1024 bytes.

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/device/ptx.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define TROUPE_HAS_WARPGROUPS 1
#else
#define TROUPE_HAS_WARPGROUPS 0
#endif

namespace troupe::cuda {

inline constexpr int kWarpgroup = 128;  // threads
inline constexpr int kSwizzled = 64;    // elements of 2 bytes
inline constexpr int kSwizzleAlignment = 1024;

// Place of the 16 bytes `chunk` of a row, in elements.
__device__ __forceinline__ int swizzled_at(int row, int chunk) {
  return row * kSwizzled + ((chunk ^ (row % 8)) * 8);
}

// --- order between the two ways to memory

// Lets the copy engine and the tensor cores read, behind a barrier, what this thread wrote to shared memory.
__device__ __forceinline__ void fence_async_proxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
// A store that fence_async_proxy() is for: 16 bytes of a tile. (The device needs no store of its own for it;
// the emulated copy engine and tensor cores see no other one.)
__device__ __forceinline__ void store_to_tile(void* to, uint4 value) {
  *static_cast<uint4*>(to) = value;
}

// The threads of whole warps that come to barrier `id`, 1 to 15 (0 is __syncthreads'), `threads` of them.
__device__ __forceinline__ void named_barrier(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
// Counts among those, too, and goes on at once.
__device__ __forceinline__ void arrive_named_barrier(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// --- a barrier of phases: one ends when as many have arrived as it was made for and all bytes that were
// announced have come

struct alignas(8) PhaseBarrier {
  uint64_t state;
};

__device__ __forceinline__ void init_barrier(PhaseBarrier& barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&barrier)), "r"(arrivals)
               : "memory");
}
// Behind all init_barrier(), before the block's threads meet.
__device__ __forceinline__ void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  fence_async_proxy();
}
__device__ __forceinline__ void arrive(PhaseBarrier& barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&barrier)) : "memory");
}
__device__ __forceinline__ void arrive_and_expect(PhaseBarrier& barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&barrier)),
               "r"(bytes)
               : "memory");
}
// Waits for the end of the phase of this parity: the first has parity 0, and the one before it has ended.
__device__ __forceinline__ void wait(PhaseBarrier& barrier, int parity) {
  uint32_t ended = 0;
  do {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.b32 %0, 1, 0, p;\n"
        "}"
        : "=r"(ended)
        : "r"(shared_address(&barrier)), "r"(parity)
        : "memory");
  } while (ended == 0);
}

// --- copies

// Copies the box of `map` whose first element is `column` of `row`; zeros where that is outside. `barrier`
// expects its bytes.
__device__ __forceinline__ void copy_box(void* shared, const CUtensorMap& map, int column, int row,
                                         PhaseBarrier& barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], "
      "[%4];" ::"r"(shared_address(shared)),
      "l"(&map), "r"(column), "r"(row), "r"(shared_address(&barrier))
      : "memory");
}
// The same of a map of planes: of each plane the box whose first element is `column` of `row`, one behind the
// other.
__device__ __forceinline__ void copy_planes(void* shared, const CUtensorMap& map, int column, int row,
                                            PhaseBarrier& barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], "
      "[%5];" ::"r"(shared_address(shared)),
      "l"(&map), "r"(column), "r"(row), "r"(0), "r"(shared_address(&barrier))
      : "memory");
}
__device__ __forceinline__ void prefetch_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// --- registers: of a thread of this warpgroup, from here on

template <int kRegisters>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// --- products of a warpgroup: 64 rows

// A tile in shared memory as the tensor cores find it (PTX ISA, "Matrix Descriptor Format"). `stride`: bytes
// from eight rows to the next eight. `leading`: where the rows are the product's depth (N-major), bytes from
// 64 columns to the next 64.
__device__ __forceinline__ uint64_t tile_descriptor(const void* tile, int stride, int leading = 16) {
  constexpr uint64_t kSwizzle128 = 1;
  return uint64_t{(shared_address(tile) & 0x3ffff) >> 4} |
         uint64_t{static_cast<uint32_t>(leading) >> 4} << 16 |
         uint64_t{static_cast<uint32_t>(stride) >> 4} << 32 | kSwizzle128 << 62;
}
// The same, `bytes` further, as far as the address does not wrap.
__device__ __forceinline__ uint64_t advanced(uint64_t descriptor, int bytes) {
  return descriptor + (static_cast<uint32_t>(bytes) >> 4);
}

// Before the first product, and where registers that one reads or adds to were written since the last.
__device__ __forceinline__ void fence_products() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
// Ends a group: the products started since the last one.
__device__ __forceinline__ void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until at most N groups are under way. Their registers and tiles are not to be touched before.
template <int N>
__device__ __forceinline__ void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

// Behind wait_products(), of all that a product gave, or that its left operand is to be made of: to the
// compiler these registers have their values from here on, so it moves no arithmetic with them before it.
// Costs no instruction.
template <int kEights>
__device__ __forceinline__ void fence_operand(float (&sums)[kEights][4]) {
#pragma unroll
  for (int i = 0; i < kEights; ++i) {
    asm volatile("" : "+f"(sums[i][0]), "+f"(sums[i][1]), "+f"(sums[i][2]), "+f"(sums[i][3])::"memory");
  }
}

#define TROUPE_SUMS_1(d, i) "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
#define TROUPE_SUMS_2(d, i) TROUPE_SUMS_1(d, i), TROUPE_SUMS_1(d, i + 1)
#define TROUPE_SUMS_4(d, i) TROUPE_SUMS_2(d, i), TROUPE_SUMS_2(d, i + 2)
#define TROUPE_PLACES_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define TROUPE_PLACES_12 TROUPE_PLACES_8 ", %8, %9, %10, %11"
#define TROUPE_PLACES_16 TROUPE_PLACES_12 ", %12, %13, %14, %15"
#define TROUPE_PLACES_20 TROUPE_PLACES_16 ", %16, %17, %18, %19"
#define TROUPE_PLACES_24 TROUPE_PLACES_20 ", %20, %21, %22, %23"
#define TROUPE_PLACES_28 TROUPE_PLACES_24 ", %24, %25, %26, %27"
#define TROUPE_PLACES_32 TROUPE_PLACES_28 ", %28, %29, %30, %31"
#define TROUPE_PLACES_64                                                                    \
  TROUPE_PLACES_32                                                                          \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, " \
  "%49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

// d (64, 8n) = a (64, 16) · bᵀ, b (8n, 16), both with 16 neighbouring elements of the depth in a row; +=
// where `adds`. A lane has of d what mma_m16n8k16's lane has (ptx.cuh), its warp's 16 rows by 8 columns each.
#define TROUPE_MULTIPLY_TILES(eights, columns, places, a_place, b_place, adds_place, ...)                   \
  __device__ __forceinline__ void multiply_tiles(float(&d)[eights][4], uint64_t a, uint64_t b, bool adds) { \
    asm volatile(                                                                                           \
        "{\n"                                                                                               \
        ".reg .pred p;\n"                                                                                   \
        "setp.ne.b32 p, " adds_place                                                                        \
        ", 0;\n"                                                                                            \
        "wgmma.mma_async.sync.aligned.m64n" columns "k16.f32.bf16.bf16 {" places "}, " a_place ", " b_place \
        ", p, 1, 1, 0, 0;\n"                                                                                \
        "}"                                                                                                 \
        : __VA_ARGS__                                                                                       \
        : "l"(a), "l"(b), "r"(static_cast<uint32_t>(adds)));                                                \
  }
TROUPE_MULTIPLY_TILES(2, "16", TROUPE_PLACES_8, "%8", "%9", "%10", TROUPE_SUMS_2(d, 0))
TROUPE_MULTIPLY_TILES(3, "24", TROUPE_PLACES_12, "%12", "%13", "%14", TROUPE_SUMS_2(d, 0),
                      TROUPE_SUMS_1(d, 2))
TROUPE_MULTIPLY_TILES(4, "32", TROUPE_PLACES_16, "%16", "%17", "%18", TROUPE_SUMS_4(d, 0))
TROUPE_MULTIPLY_TILES(5, "40", TROUPE_PLACES_20, "%20", "%21", "%22", TROUPE_SUMS_4(d, 0),
                      TROUPE_SUMS_1(d, 4))
TROUPE_MULTIPLY_TILES(6, "48", TROUPE_PLACES_24, "%24", "%25", "%26", TROUPE_SUMS_4(d, 0),
                      TROUPE_SUMS_2(d, 4))
TROUPE_MULTIPLY_TILES(7, "56", TROUPE_PLACES_28, "%28", "%29", "%30", TROUPE_SUMS_4(d, 0),
                      TROUPE_SUMS_2(d, 4), TROUPE_SUMS_1(d, 6))
TROUPE_MULTIPLY_TILES(8, "64", TROUPE_PLACES_32, "%32", "%33", "%34", TROUPE_SUMS_4(d, 0),
                      TROUPE_SUMS_4(d, 4))
TROUPE_MULTIPLY_TILES(16, "128", TROUPE_PLACES_64, "%64", "%65", "%66", TROUPE_SUMS_4(d, 0),
                      TROUPE_SUMS_4(d, 4), TROUPE_SUMS_4(d, 8), TROUPE_SUMS_4(d, 12))

// d (64, 8n) += a (64, 16) · b, b (16, 8n) with neighbouring columns in a row. `a`: as mma_m16n8k16's.
__device__ __forceinline__ void add_products(float (&d)[16][4], const uint32_t (&a)[4], uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" TROUPE_PLACES_64
               "}, {%64, %65, %66, %67}, %68, 1, 1, 1, 1;"
               : TROUPE_SUMS_4(d, 0), TROUPE_SUMS_4(d, 4), TROUPE_SUMS_4(d, 8), TROUPE_SUMS_4(d, 12)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
__device__ __forceinline__ void add_products(float (&d)[8][4], const uint32_t (&a)[4], uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" TROUPE_PLACES_32
               "}, {%32, %33, %34, %35}, %36, 1, 1, 1, 1;"
               : TROUPE_SUMS_4(d, 0), TROUPE_SUMS_4(d, 4)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

#undef TROUPE_MULTIPLY_TILES
#undef TROUPE_SUMS_1
#undef TROUPE_SUMS_2
#undef TROUPE_SUMS_4
#undef TROUPE_PLACES_8
#undef TROUPE_PLACES_12
#undef TROUPE_PLACES_16
#undef TROUPE_PLACES_20
#undef TROUPE_PLACES_24
#undef TROUPE_PLACES_28
#undef TROUPE_PLACES_32
#undef TROUPE_PLACES_64

}  // namespace troupe::cuda
