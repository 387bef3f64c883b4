#include "kernels/ops/weight.h"

#include <string>

#include "kernels/int8.h"

namespace troupe {

Status check_weight(const Tensor& weight, WeightFormat format) {
  const bool is_float = weight.dtype != DType::kInt32;
  if (weight.rank != 2 || !is_float || weight.data == nullptr || weight.elements() == 0) {
    return invalid_argument("a weight must be (N, K) in float32, bfloat16 or float16, got " +
                            weight.shape_text());
  }
  if (format == WeightFormat::kInt8 && weight.shape[1] > kInt8DepthMax) {
    return invalid_argument("an int8 weight has at most " + std::to_string(kInt8DepthMax) + " columns, got " +
                            weight.shape_text());
  }
  return {};
}

}  // namespace troupe
