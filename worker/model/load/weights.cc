#include "worker/model/load/weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <utility>

namespace troupe {

namespace {

// Reads element `index` of a tensor at any address: safetensors promises no alignment.
float value_at(const Tensor& tensor, int64_t index) {
  const std::byte* const at = tensor.as<std::byte>() + static_cast<size_t>(index) * dtype_size(tensor.dtype);
  if (tensor.dtype == DType::kFloat32) {
    float value = 0;
    std::memcpy(&value, at, sizeof(value));
    return value;
  }
  uint16_t bits = 0;
  std::memcpy(&bits, at, sizeof(bits));
  return tensor.dtype == DType::kBFloat16 ? to_float(BFloat16{bits}) : half_to_float(bits);
}

bool is_aligned(const Tensor& tensor) {
  return reinterpret_cast<uintptr_t>(tensor.data) % dtype_size(tensor.dtype) == 0;
}

// Stacks the parts in their own type if they agree, else in float32. vector<float> is aligned for every type.
std::vector<float> stack(std::span<const Tensor> parts, DType dtype) {
  size_t bytes = 0;
  for (const Tensor& part : parts) bytes += static_cast<size_t>(part.elements()) * dtype_size(dtype);
  std::vector<float> stacked((bytes + sizeof(float) - 1) / sizeof(float));
  std::byte* out = reinterpret_cast<std::byte*>(stacked.data());
  for (const Tensor& part : parts) {
    if (part.dtype == dtype) {
      std::memcpy(out, part.data, part.bytes());
      out += part.bytes();
      continue;
    }
    for (int64_t i = 0; i < part.elements(); ++i, out += sizeof(float)) {
      const float value = value_at(part, i);
      std::memcpy(out, &value, sizeof(value));
    }
  }
  return stacked;
}

}  // namespace

StatusOr<std::unique_ptr<PackedWeight>> WeightLoader::linear(std::span<const LinearPart> parts,
                                                             int64_t columns) {
  std::vector<SourceTensor> taken;
  std::vector<Tensor> tensors;
  int64_t rows = 0;
  bool same_dtype = true;
  for (const LinearPart& part : parts) {
    const std::array<int64_t, 2> shape{part.rows, columns};
    TROUPE_ASSIGN_OR_RETURN(SourceTensor source, source_.take(part.name + ".weight", shape));
    rows += part.rows;
    same_dtype = same_dtype && (tensors.empty() || tensors.front().dtype == source.tensor.dtype);
    tensors.push_back(source.tensor);
    taken.push_back(std::move(source));
  }
  const DType dtype = same_dtype ? tensors.front().dtype : DType::kFloat32;
  std::vector<float> stacked;
  Tensor whole = tensors.front();
  if (tensors.size() > 1 || !is_aligned(whole)) {
    stacked = stack(tensors, dtype);
    whole = Tensor::make(stacked.data(), dtype, {rows, columns});
    taken.clear();
  }
  return pack(parts.front().name, whole);
}

StatusOr<std::unique_ptr<PackedWeight>> WeightLoader::unit_rows(const LinearPart& part, int64_t columns) {
  const std::array<int64_t, 2> shape{part.rows, columns};
  TROUPE_ASSIGN_OR_RETURN(const SourceTensor source, source_.take(part.name + ".weight", shape));
  std::vector<float> values(static_cast<size_t>(source.tensor.elements()));
  for (int64_t row = 0; row < part.rows; ++row) {
    float* const out = values.data() + row * columns;
    double squares = 0;
    for (int64_t i = 0; i < columns; ++i) {
      out[i] = value_at(source.tensor, row * columns + i);
      squares += double{out[i]} * double{out[i]};
    }
    const auto length = static_cast<float>(std::max(std::sqrt(squares), 1e-12));
    for (int64_t i = 0; i < columns; ++i) out[i] /= length;
  }
  return pack(part.name, Tensor::make(values.data(), DType::kFloat32, {part.rows, columns}));
}

StatusOr<std::unique_ptr<PackedWeight>> WeightLoader::pack(const std::string& name, const Tensor& whole) {
  StatusOr<std::unique_ptr<PackedWeight>> packed = backend_.pack(whole, format_);
  if (!packed.ok()) return annotate(packed.status(), source_.where(name + ".weight"));
  parameter_count_ += whole.elements();
  byte_count_ += (*packed)->bytes();
  return packed;
}

Status WeightLoader::append_vector(const std::string& name, int64_t size, std::vector<float>& values) {
  const std::array<int64_t, 1> shape{size};
  TROUPE_ASSIGN_OR_RETURN(const SourceTensor source, source_.take(name, shape));
  for (int64_t i = 0; i < size; ++i) values.push_back(value_at(source.tensor, i));
  return absl::OkStatus();
}

StatusOr<DeviceTensor> WeightLoader::bias(std::span<const LinearPart> parts) {
  std::vector<float> values;
  for (const LinearPart& part : parts) {
    TROUPE_RETURN_IF_ERROR(append_vector(part.name + ".bias", part.rows, values));
  }
  return upload(Tensor::make(values.data(), DType::kFloat32, {static_cast<int64_t>(values.size())}));
}

StatusOr<DeviceTensor> WeightLoader::vector(const std::string& name, int64_t size) {
  std::vector<float> values;
  TROUPE_RETURN_IF_ERROR(append_vector(name, size, values));
  return upload(Tensor::make(values.data(), DType::kFloat32, {size}));
}

StatusOr<DeviceTensor> WeightLoader::table(const std::string& name, int64_t rows, int64_t columns) {
  const std::array<int64_t, 2> shape{rows, columns};
  TROUPE_ASSIGN_OR_RETURN(const SourceTensor source, source_.take(name, shape));
  return upload(source.tensor);
}

StatusOr<bool> WeightLoader::differ(const std::string& a, const std::string& b,
                                    std::array<int64_t, 2> shape) {
  const std::string names[] = {a + ".weight", b + ".weight"};
  if (!source_.has(names[0], shape) || !source_.has(names[1], shape)) return false;
  TROUPE_ASSIGN_OR_RETURN(const SourceTensor one, source_.take(names[0], shape));
  TROUPE_ASSIGN_OR_RETURN(const SourceTensor other, source_.take(names[1], shape));
  if (one.tensor.dtype == other.tensor.dtype)
    return std::memcmp(one.tensor.data, other.tensor.data, one.tensor.bytes()) != 0;
  for (int64_t i = 0; i < one.tensor.elements(); ++i) {
    if (value_at(one.tensor, i) != value_at(other.tensor, i)) return true;
  }
  return false;
}

StatusOr<DeviceTensor> WeightLoader::upload(const Tensor& host) {
  DeviceTensor result;
  TROUPE_ASSIGN_OR_RETURN(result.buffer, backend_.allocate(host.bytes()));
  backend_.upload(result.buffer->data(), host.data, host.bytes());
  result.tensor = host;
  result.tensor.data = result.buffer->data();
  parameter_count_ += host.elements();
  byte_count_ += static_cast<int64_t>(host.bytes());
  return result;
}

}  // namespace troupe
