#pragma once

// The launches of a step, written down instead of made. A step's graph is captured from the list alone
// (step_graphs.h), so two steps whose lists are equal have the same graph: kernel, grid, attributes, bytes of
// every parameter, and for a library's product all that the library is given are in it, or they would not be
// launched. One piece of bytes, compared as such: there is no item that a comparison could leave out. Bits of
// a parameter that belong to none of its members are zeros.
//
// Values that launches read in device memory (a step's small arrays) are not in it: they are read anew.

#include <cuda_runtime.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <type_traits>
#include <vector>

namespace troupe::cuda {

// Driven by the backend's one thread.
class LaunchList {
 public:
  // Makes a launch in `stream` of the values that it was written down with, and of nothing else that could be
  // another one later. `op` names it in errors.
  using Issue = void (*)(cudaStream_t stream, const char* op, const unsigned char* values);

  // One more launch, of `bytes` values at the returned place, zeros until they are written: before the next
  // one is added. REQUIRES of op: a literal.
  unsigned char* add(const char* op, Issue made_by, size_t bytes);
  // One whose values are T, of which every bit counts.
  template <typename T>
  void add(const char* op, Issue made_by, const T& values) {
    static_assert(std::has_unique_object_representations_v<T>);
    std::memcpy(add(op, made_by, sizeof(T)), &values, sizeof(T));
  }

  // Makes all of them, in order.
  void issue(cudaStream_t stream) const;

  void clear() { bytes_.clear(); }
  size_t byte_count() const { return bytes_.size(); }
  bool operator==(const LaunchList& other) const;

 private:
  struct Head {
    Issue issue;
    const char* op;
    size_t bytes;  // of the values behind it, as far as the next head
  };
  static_assert(std::has_unique_object_representations_v<Head>);
  std::vector<unsigned char> bytes_;
};

// T of the bytes of one.
template <typename T>
T read_values(const unsigned char* from) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::array<unsigned char, sizeof(T)> bytes;
  std::memcpy(bytes.data(), from, sizeof(T));
  return std::bit_cast<T>(bytes);
}

// Writes `value`'s bytes, zeros where it has padding: what is there differs from copy to copy.
template <typename T>
void write_values(unsigned char* to, T value) {
  static_assert(std::is_trivially_copyable_v<T>);
#if defined(__has_builtin)
#if __has_builtin(__builtin_clear_padding)
  if constexpr (!std::has_unique_object_representations_v<T>) __builtin_clear_padding(&value);
#endif
#endif
  std::memcpy(to, &value, sizeof(T));
}

}  // namespace troupe::cuda
