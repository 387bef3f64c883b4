#include "kernels/tensor.h"

#include <cstring>

#include "common/core/check.h"
#include "kernels/check.h"

namespace troupe {

size_t dtype_size(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
    case DType::kInt32:
      return 4;
    case DType::kBFloat16:
    case DType::kFloat16:
      return 2;
  }
  return 0;
}

std::string_view dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "float32";
    case DType::kBFloat16:
      return "bfloat16";
    case DType::kFloat16:
      return "float16";
    case DType::kInt32:
      return "int32";
  }
  return "unknown";
}

float half_to_float(uint16_t half_bits) {
  const uint32_t sign = uint32_t{half_bits} >> 15 << 31;
  const uint32_t exponent = (half_bits >> 10) & 0x1f;
  const uint32_t mantissa = half_bits & 0x3ff;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | mantissa << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  const float subnormal = static_cast<float>(mantissa) * 0x1p-24f;  // exact: 10 bits of mantissa
  return sign != 0 ? -subnormal : subnormal;
}

Tensor Tensor::make(void* data, DType dtype, std::initializer_list<int64_t> shape) {
  Tensor tensor;
  TROUPE_CHECK(shape.size() <= tensor.shape.size(), "a tensor has at most 4 dimensions");
  tensor.data = data;
  tensor.dtype = dtype;
  for (int64_t size : shape) tensor.shape[static_cast<size_t>(tensor.rank++)] = size;
  return tensor;
}

int64_t Tensor::elements() const {
  int64_t product = 1;
  for (int i = 0; i < rank; ++i) product *= shape[static_cast<size_t>(i)];
  return product;
}

std::string Tensor::shape_text() const {
  std::string text = "[";
  for (int i = 0; i < rank; ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape[static_cast<size_t>(i)]);
  }
  text += "] ";
  text += dtype_name(dtype);
  return text;
}

namespace {

// Weights come straight out of a mapped file, where nothing promises alignment.
template <typename T>
T read_unaligned(const Tensor& tensor, int64_t index) {
  T value;
  std::memcpy(&value, tensor.as<const char>() + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

}  // namespace

float element(const Tensor& tensor, int64_t index) {
  switch (tensor.dtype) {
    case DType::kFloat32:
      return read_unaligned<float>(tensor, index);
    case DType::kBFloat16:
      return to_float(read_unaligned<BFloat16>(tensor, index));
    case DType::kFloat16:
      return half_to_float(read_unaligned<uint16_t>(tensor, index));
    case DType::kInt32:
      break;
  }
  check_failed("element", "not a float tensor: " + tensor.shape_text());
}

void set_element(const Tensor& tensor, int64_t index, float value) {
  if (tensor.dtype == DType::kFloat32) {
    tensor.as<float>()[index] = value;
  } else if (tensor.dtype == DType::kBFloat16) {
    tensor.as<BFloat16>()[index] = to_bfloat16(value);
  } else {
    check_failed("set_element", "writes float32 and bfloat16 only, got " + tensor.shape_text());
  }
}

}  // namespace troupe
