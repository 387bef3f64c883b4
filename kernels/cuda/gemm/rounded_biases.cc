#include "kernels/cuda/gemm/rounded_biases.h"

#include <iterator>

#include "kernels/check.h"
#include "kernels/cuda/gemm/gemm_kernels.h"

namespace troupe::cuda {

Tensor RoundedBiases::of(const LaunchStream& stream, const Tensor& bias) {
  const int64_t count = bias.shape[0];
  if (count > features_) check_failed("matmul", "bias is " + bias.shape_text());
  const char* const begin = bias.as<const char>();
  const auto found = known_.find(begin);
  if (found != known_.end() && found->second.shape[0] == count) return found->second;
  if (used_ + count > features_) {
    known_.clear();
    used_ = 0;
  }
  void* const place = static_cast<char*>(memory_) + used_ * static_cast<int64_t>(sizeof(BFloat16));
  const Tensor rounded = Tensor::make(place, DType::kBFloat16, {count});
  round_vector(stream, bias, rounded);
  used_ += (count + kAlignment - 1) / kAlignment * kAlignment;
  known_.insert_or_assign(begin, rounded);
  return rounded;
}

void RoundedBiases::forget(const void* memory, size_t bytes) {
  const char* const begin = static_cast<const char*>(memory);
  auto at = known_.lower_bound(begin);
  // The one before may reach into it.
  if (at != known_.begin() &&
      std::prev(at)->first + std::prev(at)->second.shape[0] * static_cast<int64_t>(sizeof(float)) > begin) {
    --at;
  }
  while (at != known_.end() && at->first < begin + bytes) at = known_.erase(at);
}

}  // namespace troupe::cuda
