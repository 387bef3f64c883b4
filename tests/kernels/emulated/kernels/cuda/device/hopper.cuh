#pragma once

// The stand-in for Hopper's own instructions: same functions, same layout of tiles and fragments, in plain
// C++.

#include <cuda.h>

#include <cstdint>

#include "kernels/cuda/device/ptx.cuh"
#include "tests/kernels/emulated/hopper/hopper.h"
#include "tests/kernels/emulated/hopper/warpgroups.h"

#define TROUPE_HAS_WARPGROUPS 1

namespace troupe::cuda {

using emulated::PhaseBarrier;
using emulated::Place;

inline constexpr int kWarpgroup = 128;
inline constexpr int kSwizzled = 64;
inline constexpr int kSwizzleAlignment = 1024;

inline int swizzled_at(int row, int chunk) {
  return row * kSwizzled + ((chunk ^ (row % 8)) * 8);
}

inline uint32_t shared_address(const void* pointer) {
  return emulated::shared_offset(pointer);
}

inline void fence_async_proxy() {
  emulated::fence_stores();
}
inline void store_to_tile(void* to, const uint4& value, const Place& where = Place::current()) {
  emulated::store_to_tile(to, value, where);
}
inline void named_barrier(int id, int threads, const Place& where = Place::current()) {
  emulated::named_barrier(id, threads, where);
}
inline void arrive_named_barrier(int id, int threads) {
  emulated::arrive_named_barrier(id, threads);
}

inline void init_barrier(PhaseBarrier& barrier, int arrivals) {
  emulated::init_phases(barrier, arrivals);
}
inline void fence_barrier_init() {
  emulated::fence_barriers();
}
inline void arrive(PhaseBarrier& barrier, const Place& where = Place::current()) {
  emulated::arrive_at(barrier, 0, where);
}
inline void arrive_and_expect(PhaseBarrier& barrier, int bytes, const Place& where = Place::current()) {
  emulated::arrive_at(barrier, bytes, where);
}
inline void wait(PhaseBarrier& barrier, int parity, const Place& where = Place::current()) {
  emulated::wait_for_phase(barrier, parity, where);
}

inline void copy_box(void* shared, const CUtensorMap& map, int column, int row, PhaseBarrier& barrier,
                     const Place& where = Place::current()) {
  emulated::copy_to_tile(shared, map, {column, row}, barrier, where);
}
inline void copy_planes(void* shared, const CUtensorMap& map, int column, int row, PhaseBarrier& barrier,
                        const Place& where = Place::current()) {
  emulated::copy_to_tile(shared, map, {column, row}, barrier, where);
}
inline void prefetch_map(const CUtensorMap&) {}

template <int kRegisters>
void take_registers(const Place& where = Place::current()) {
  static_assert(kRegisters >= 24 && kRegisters <= 256 && kRegisters % 8 == 0);
  emulated::take_registers(kRegisters, where);
}
template <int kRegisters>
void give_registers(const Place& where = Place::current()) {
  static_assert(kRegisters >= 24 && kRegisters <= 256 && kRegisters % 8 == 0);
  emulated::give_registers(kRegisters, where);
}

inline uint64_t tile_descriptor(const void* tile, int stride, int leading = 16) {
  return uint64_t{shared_address(tile) >> 4} | uint64_t{static_cast<uint32_t>(leading) >> 4} << 16 |
         uint64_t{static_cast<uint32_t>(stride) >> 4} << 32 | uint64_t{1} << 62;
}
inline uint64_t advanced(uint64_t descriptor, int bytes) {
  return descriptor + (static_cast<uint32_t>(bytes) >> 4);
}

inline void fence_products(const Place& where = Place::current()) {
  emulated::fence_products(where);
}
inline void commit_products(const Place& where = Place::current()) {
  emulated::commit_products(where);
}
template <int N>
void wait_products(const Place& where = Place::current()) {
  emulated::wait_products(N, where);
}

template <int kEights>
void fence_operand(float (&)[kEights][4]) {}

template <int kEights>
void multiply_tiles(float (&d)[kEights][4], uint64_t a, uint64_t b, bool adds,
                    const Place& where = Place::current()) {
  static_assert((kEights >= 2 && kEights <= 8) || kEights == 16, "that the device's header has");
  emulated::multiply_tiles({.sums = &d[0][0], .columns = 8 * kEights, .a = a, .b = b, .adds = adds}, where);
}
template <int kEights>
void add_products(float (&d)[kEights][4], const uint32_t (&a)[4], uint64_t b,
                  const Place& where = Place::current()) {
  auto* const held = const_cast<uint32_t*>(&a[0]);  // until the wait
  emulated::multiply_tiles(
      {.sums = &d[0][0], .columns = 8 * kEights, .a_registers = held, .b = b, .adds = true}, where);
}

}  // namespace troupe::cuda
