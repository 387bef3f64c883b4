#include "kernels/cuda/attention/attention_scratch.h"

namespace troupe::cuda {

StatusOr<AttentionScratch::Memory> AttentionScratch::of(int64_t partial_floats, int64_t counter_count) {
  const int64_t partial_bytes = partial_floats * static_cast<int64_t>(sizeof(float));
  if (lacks(partials_, partial_bytes)) TROUPE_RETURN_IF_ERROR(grow(partials_, partial_bytes));
  const int64_t counter_bytes = counter_count * static_cast<int64_t>(sizeof(int));
  if (lacks(counters_, counter_bytes)) {
    TROUPE_RETURN_IF_ERROR(grow(counters_, counter_bytes));
    const cudaError_t error = cudaMemsetAsync(counters_->data(), 0, counters_->bytes(), stream_);
    if (error != cudaSuccess) return cuda_status("clearing device memory", error);
  }
  return Memory{static_cast<float*>(partials_->data()), static_cast<int*>(counters_->data())};
}

int64_t AttentionScratch::bytes() const {
  return static_cast<int64_t>((partials_ ? partials_->bytes() : 0) + (counters_ ? counters_->bytes() : 0));
}

Status AttentionScratch::grow(std::unique_ptr<CudaBuffer>& buffer, int64_t bytes) {
  before_change_();  // with the memory that is given back
  watchdog_.wait("attention", stream_);
  TROUPE_ASSIGN_OR_RETURN(buffer, CudaBuffer::allocate(static_cast<size_t>(bytes)));
  return absl::OkStatus();
}

}  // namespace troupe::cuda
