#pragma once

// Tensors as non-owning views: a pointer, a type, a shape, row-major. Ownership stays with the allocator.

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace troupe {

enum class DType : uint8_t { kFloat32, kBFloat16, kFloat16, kInt32 };
size_t dtype_size(DType dtype);
std::string_view dtype_name(DType dtype);

// bfloat16 as its bits; round to nearest even.
struct BFloat16 {
  uint16_t bits = 0;
};
inline float to_float(BFloat16 value) {
  return std::bit_cast<float>(uint32_t{value.bits} << 16);
}
inline BFloat16 to_bfloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return {static_cast<uint16_t>((bits >> 16) | 0x40)};  // keep it a (quiet) NaN
  return {static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16)};
}
float half_to_float(uint16_t half_bits);

struct Tensor {
  void* data = nullptr;
  DType dtype = DType::kFloat32;
  int rank = 0;
  std::array<int64_t, 4> shape{};

  static Tensor make(void* data, DType dtype, std::initializer_list<int64_t> shape);
  bool empty() const { return data == nullptr; }  // an operand that is left out
  int64_t elements() const;
  size_t bytes() const { return static_cast<size_t>(elements()) * dtype_size(dtype); }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data);
  }
  std::string shape_text() const;  // "[3, 256] bfloat16"
};

// One element of a float tensor of any type, by its flat index: for plain loops and tests, not for speed.
// set_element rounds to nearest even; it writes float32 and bfloat16 only.
float element(const Tensor& tensor, int64_t index);
void set_element(const Tensor& tensor, int64_t index, float value);

}  // namespace troupe
