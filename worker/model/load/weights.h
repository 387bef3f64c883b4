#pragma once

// Converts a source's tensors to a backend's weights. Everything is copied or packed, so mapped files can be
// closed when the model is built.

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/core/status.h"
#include "kernels/kernels.h"
#include "worker/model/load/weight_source.h"

namespace troupe {

// As --quantization names them.
inline constexpr std::pair<std::string_view, WeightFormat> kQuantizationNames[] = {
    {"none", WeightFormat::kActivation}, {"int8", WeightFormat::kInt8}};

// A tensor in the backend's memory, with its owner.
struct DeviceTensor {
  std::unique_ptr<DeviceBuffer> buffer;
  Tensor tensor;
};

// A module with a weight (rows, columns) and an optional bias (rows), under name.weight and name.bias.
struct LinearPart {
  std::string name;
  int64_t rows = 0;
};

class WeightLoader {
 public:
  // Both must outlive the loader; the backend must outlive what it
  // loads. `format` applies to the weights of products.
  WeightLoader(WeightSource* source, Backend* backend, WeightFormat format)
      : source_(*source), backend_(*backend), format_(format) {}

  // Stacks the parts' weights by rows into one: q|k|v is one product instead of three.
  StatusOr<std::unique_ptr<PackedWeight>> linear(std::span<const LinearPart> parts, int64_t columns);
  // Concatenates the parts' biases: (rows of all) float32.
  StatusOr<DeviceTensor> bias(std::span<const LinearPart> parts);
  // Loads the part's weight with every row scaled to length 1 (a row of zeros stays so).
  StatusOr<std::unique_ptr<PackedWeight>> unit_rows(const LinearPart& part, int64_t columns);
  // Loads (size) as float32, whatever the source holds: norms are computed in float32.
  StatusOr<DeviceTensor> vector(const std::string& name, int64_t size);
  // Loads (rows, columns) in the source's type: the embedding table, which is looked up, not multiplied.
  StatusOr<DeviceTensor> table(const std::string& name, int64_t rows, int64_t columns);

  // Whether the source holds both modules' weights (rows, columns), and they are other numbers.
  StatusOr<bool> differ(const std::string& a, const std::string& b, std::array<int64_t, 2> shape);

  int64_t parameter_count() const { return parameter_count_; }
  int64_t byte_count() const { return byte_count_; }  // as packed and copied

 private:
  StatusOr<std::unique_ptr<PackedWeight>> pack(const std::string& name, const Tensor& whole);
  Status append_vector(const std::string& name, int64_t size, std::vector<float>& values);
  StatusOr<DeviceTensor> upload(const Tensor& host);

  WeightSource& source_;
  Backend& backend_;
  WeightFormat format_;
  int64_t parameter_count_ = 0;
  int64_t byte_count_ = 0;
};

}  // namespace troupe
