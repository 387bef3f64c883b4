#pragma once

// Weights as ops multiply by them, and the check of those that Backend::pack() accepts. Read-only once
// packed: any thread may share one. A weight that cannot be packed is a Status, for it comes from a file.

#include <cstdint>

#include "common/core/status.h"
#include "kernels/tensor.h"

namespace troupe {

// How the values of a weight are stored in memory. kInt8: a byte a value and a scale an output feature; its
// operand is rounded to 8 bits as well, with a scale a row (int8.h). Half of bfloat16's bytes, at about a
// percent of error a product.
enum class WeightFormat : uint8_t { kActivation, kInt8 };

// A weight in the backend's own layout. Made by Backend::pack, freed with it.
class PackedWeight {
 public:
  virtual ~PackedWeight() = default;
  virtual int64_t rows() const = 0;     // N: output features
  virtual int64_t columns() const = 0;  // K: input features
  virtual int64_t bytes() const = 0;    // as held, padding not counted
  virtual WeightFormat format() const { return WeightFormat::kActivation; }
};

// A weight `pack` can read: rank 2, float32, bfloat16 or float16, not empty; for int8 of at most
// kInt8DepthMax columns.
Status check_weight(const Tensor& weight, WeightFormat format);

}  // namespace troupe
