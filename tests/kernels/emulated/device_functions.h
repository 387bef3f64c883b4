#pragma once

// Barriers, warp collectives, atomics and the loads and stores with a cache hint. Every thread of a launch
// runs on one thread of the system and only waits in collectives, so an atomic is a plain read and write.

#include <bit>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tests/kernels/emulated/collectives.h"

inline void __syncthreads(const troupe::emulated::Place& where = troupe::emulated::Place::current()) {
  troupe::emulated::block_barrier(where);
}

inline void __syncwarp(unsigned mask = ~0u,
                       const troupe::emulated::Place& where = troupe::emulated::Place::current()) {
  troupe::emulated::warp_collective(troupe::emulated::kSyncWarp, mask, nullptr, where);
}

inline unsigned __activemask() {
  return troupe::emulated::live_lanes();
}

namespace troupe::emulated {

template <class T>
concept Number = std::is_arithmetic_v<T>;

// Narrow integers travel as int, as they do on the device.
template <Number T>
auto shuffle(const Collective& kind, uint32_t mask, T value, int argument, int width, const Place& where) {
  const auto widened = +value;
  static_assert(sizeof(widened) <= sizeof(uint64_t));
  Shuffle operand{0, 0, argument, width};
  std::memcpy(&operand.value, &widened, sizeof(widened));
  warp_collective(kind, mask, &operand, where);
  auto result = widened;
  std::memcpy(&result, &operand.result, sizeof(result));
  return result;
}

inline uint32_t vote(const Collective& kind, uint32_t mask, bool predicate, const Place& where) {
  Vote operand{predicate, 0};
  warp_collective(kind, mask, &operand, where);
  return operand.result;
}

inline uint32_t reduce(const Collective& kind, uint32_t mask, uint32_t value, const Place& where) {
  Reduction operand{value, 0};
  warp_collective(kind, mask, &operand, where);
  return operand.result;
}

template <class T>
concept Atomic32Or64 = std::same_as<T, int> || std::same_as<T, unsigned> || std::same_as<T, long long> ||
    std::same_as<T, unsigned long long> || std::same_as<T, float> || std::same_as<T, double>;

template <class T>
const T* aligned(const T* address) {
  if (reinterpret_cast<uintptr_t>(address) % alignof(T) != 0) fail_kernel("an address that is not aligned");
  return address;
}

}  // namespace troupe::emulated

template <troupe::emulated::Number T>
auto __shfl_sync(unsigned mask, T value, int lane, int width = troupe::emulated::kLanes,
                 const troupe::emulated::Place& where = troupe::emulated::Place::current()) {
  return troupe::emulated::shuffle(troupe::emulated::kShuffle, mask, value, lane, width, where);
}

template <troupe::emulated::Number T>
auto __shfl_up_sync(unsigned mask, T value, unsigned distance, int width = troupe::emulated::kLanes,
                    const troupe::emulated::Place& where = troupe::emulated::Place::current()) {
  return troupe::emulated::shuffle(troupe::emulated::kShuffleUp, mask, value, static_cast<int>(distance),
                                   width, where);
}

template <troupe::emulated::Number T>
auto __shfl_down_sync(unsigned mask, T value, unsigned distance, int width = troupe::emulated::kLanes,
                      const troupe::emulated::Place& where = troupe::emulated::Place::current()) {
  return troupe::emulated::shuffle(troupe::emulated::kShuffleDown, mask, value, static_cast<int>(distance),
                                   width, where);
}

template <troupe::emulated::Number T>
auto __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = troupe::emulated::kLanes,
                     const troupe::emulated::Place& where = troupe::emulated::Place::current()) {
  return troupe::emulated::shuffle(troupe::emulated::kShuffleXor, mask, value, lane_mask, width, where);
}

inline unsigned __ballot_sync(unsigned mask, int predicate,
                              const troupe::emulated::Place& where = troupe::emulated::Place::current()) {
  return troupe::emulated::vote(troupe::emulated::kBallot, mask, predicate != 0, where);
}
inline int __any_sync(unsigned mask, int predicate,
                      const troupe::emulated::Place& where = troupe::emulated::Place::current()) {
  return troupe::emulated::vote(troupe::emulated::kAny, mask, predicate != 0, where) != 0;
}
inline int __all_sync(unsigned mask, int predicate,
                      const troupe::emulated::Place& where = troupe::emulated::Place::current()) {
  return troupe::emulated::vote(troupe::emulated::kAll, mask, predicate != 0, where) == mask;
}

inline unsigned __match_any_sync(unsigned mask, unsigned value,
                                 const troupe::emulated::Place& where = troupe::emulated::Place::current()) {
  return troupe::emulated::reduce(troupe::emulated::kMatchAny, mask, value, where);
}
inline unsigned __reduce_add_sync(unsigned mask, unsigned value,
                                  const troupe::emulated::Place& where = troupe::emulated::Place::current()) {
  return troupe::emulated::reduce(troupe::emulated::kReduceAdd, mask, value, where);
}
inline int __reduce_add_sync(unsigned mask, int value,
                             const troupe::emulated::Place& where = troupe::emulated::Place::current()) {
  return static_cast<int>(__reduce_add_sync(mask, static_cast<unsigned>(value), where));
}
inline unsigned __reduce_max_sync(unsigned mask, unsigned value,
                                  const troupe::emulated::Place& where = troupe::emulated::Place::current()) {
  return troupe::emulated::reduce(troupe::emulated::kReduceMax, mask, value, where);
}
inline int __reduce_max_sync(unsigned mask, int value,
                             const troupe::emulated::Place& where = troupe::emulated::Place::current()) {
  return static_cast<int>(troupe::emulated::reduce(troupe::emulated::kReduceMaxSigned, mask,
                                                   static_cast<unsigned>(value), where));
}
inline unsigned __reduce_min_sync(unsigned mask, unsigned value,
                                  const troupe::emulated::Place& where = troupe::emulated::Place::current()) {
  return troupe::emulated::reduce(troupe::emulated::kReduceMin, mask, value, where);
}
inline int __reduce_min_sync(unsigned mask, int value,
                             const troupe::emulated::Place& where = troupe::emulated::Place::current()) {
  return static_cast<int>(troupe::emulated::reduce(troupe::emulated::kReduceMinSigned, mask,
                                                   static_cast<unsigned>(value), where));
}

// Each gives back what the address held before.
template <troupe::emulated::Atomic32Or64 T>
T atomicExch(T* address, std::type_identity_t<T> value) {
  const T before = *troupe::emulated::aligned(address);
  *address = value;
  return before;
}
template <troupe::emulated::Atomic32Or64 T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
  return atomicExch(address, *address + value);
}
// The device wraps around; in C++ a signed sum may not.
inline int atomicAdd(int* address, int value) {
  const unsigned sum = static_cast<unsigned>(*address) + static_cast<unsigned>(value);
  return atomicExch(address, static_cast<int>(sum));
}
template <troupe::emulated::Atomic32Or64 T>
requires std::integral<T> T atomicMax(T* address, std::type_identity_t<T> value) {
  return atomicExch(address, *address < value ? value : *address);
}
template <troupe::emulated::Atomic32Or64 T>
requires std::integral<T> T atomicMin(T* address, std::type_identity_t<T> value) {
  return atomicExch(address, value < *address ? value : *address);
}
template <troupe::emulated::Atomic32Or64 T>
requires std::integral<T> T atomicCAS(T* address, std::type_identity_t<T> compare,
                                      std::type_identity_t<T> value) {
  return atomicExch(address, *address == compare ? value : *address);
}

inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}

template <class T>
T __ldg(const T* address) {
  return *troupe::emulated::aligned(address);
}
template <class T>
T __ldcs(const T* address) {
  return *troupe::emulated::aligned(address);
}
template <class T>
T __ldcg(const T* address) {
  return *troupe::emulated::aligned(address);
}
template <class T>
void __stcs(T* address, const std::type_identity_t<T>& value) {
  troupe::emulated::aligned(address);
  *address = value;
}
template <class T>
void __stcg(T* address, const std::type_identity_t<T>& value) {
  troupe::emulated::aligned(address);
  *address = value;
}
