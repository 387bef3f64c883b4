#pragma once

// Source of a model's tensors: a checkpoint's files, or random weights for the names and shapes.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "common/core/status.h"
#include "kernels/tensor.h"

namespace troupe {

// A tensor, with its memory if the source does not keep it. Not necessarily aligned to its type.
struct SourceTensor {
  Tensor tensor;
  std::unique_ptr<std::byte[]> memory;  // null: the view is valid as long as the source
};

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  // Whether it holds a tensor of that name and shape, apart from any that it makes up.
  virtual bool has(const std::string& name, std::span<const int64_t> shape) const = 0;
  // Marks the tensor as used. Errors: missing, of another shape, of a type that no backend reads.
  virtual StatusOr<SourceTensor> take(const std::string& name, std::span<const int64_t> shape) = 0;
  // Fails if a tensor was not taken: the model would not apply it (biases, adapters) and answers would be
  // silently wrong. `ignored` names the tensors known to be harmless.
  virtual Status check_all_taken(bool (*ignored)(std::string_view name)) const = 0;
  // For errors that concern a tensor after take(): "<file>: tensor 'x'".
  virtual std::string where(const std::string& name) const = 0;
};

}  // namespace troupe
