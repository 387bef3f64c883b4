#include "kernels/cuda/step_arrays.h"

#include <algorithm>
#include <cstring>

#include "kernels/cuda/check_cuda.h"

namespace troupe::cuda {

StepArrays::~StepArrays() {
  for (const Slot& slot : slots_) cudaFree(slot.device);
}

const void* StepArrays::bytes_of(StepArray which, const void* values, size_t bytes) {
  constexpr const char* kOp = "step arrays";
  Slot& slot = slots_[static_cast<size_t>(which)];
  const bool is_known = slot.sent.size() == bytes && slot.looked_at == values && values != nullptr;
  if (in_step_) slot.looked_at = values;
  if (bytes == 0 || is_known) return slot.device;
  if (slot.sent.size() == bytes && std::memcmp(slot.sent.data(), values, bytes) == 0) return slot.device;
  if (bytes > slot.capacity) {
    // Kernels under way may still read the old memory.
    check_cuda(kOp, cudaStreamSynchronize(stream_));
    check_cuda(kOp, cudaFree(slot.device));
    slot.capacity = std::max(bytes, 2 * slot.capacity);
    check_cuda(kOp, cudaMalloc(&slot.device, slot.capacity));
  }
  slot.sent.assign(static_cast<const char*>(values), static_cast<const char*>(values) + bytes);
  // From pageable memory: CUDA has read the source when this returns (CUDA runtime API, "API synchronization
  // behavior"), so it may change at once; the write keeps the stream's order.
  check_cuda(kOp, cudaMemcpyAsync(slot.device, slot.sent.data(), bytes, cudaMemcpyHostToDevice, stream_));
  ++sent_count_;
  return slot.device;
}

}  // namespace troupe::cuda
