#pragma once

// The plain packed weight, for backends that read rows as they are. Owns its memory; read-only, so any thread
// may share it.

#include <memory>
#include <utility>

#include "kernels/kernels.h"

namespace troupe {

// A weight as backends without a layout of their own hold it: (N, K) row-major in the activation type,
// rounded once.
class DenseWeight final : public PackedWeight {
 public:
  DenseWeight(Tensor values, std::unique_ptr<DeviceBuffer> storage)
      : values_(values), storage_(std::move(storage)) {}
  int64_t rows() const override { return values_.shape[0]; }
  int64_t columns() const override { return values_.shape[1]; }
  int64_t bytes() const override { return static_cast<int64_t>(values_.bytes()); }
  const Tensor& values() const { return values_; }

 private:
  Tensor values_;
  std::unique_ptr<DeviceBuffer> storage_;
};

}  // namespace troupe
