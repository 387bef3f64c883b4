#include "kernels/cuda/step_arrays.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/cuda/check_cuda.h"

namespace troupe::cuda {

namespace {

constexpr const char* kOp = "step arrays";

}  // namespace

StepArrays::StepArrays(cudaStream_t stream, std::function<void()> before_change)
    : stream_(stream), before_change_(std::move(before_change)) {
  for (cudaEvent_t& end : ends_) check_cuda(kOp, cudaEventCreateWithFlags(&end, cudaEventDisableTiming));
}

StepArrays::~StepArrays() {
  cudaStreamSynchronize(stream_);
  for (const Slot& slot : slots_) release(slot);
  for (cudaEvent_t end : ends_) cudaEventDestroy(end);
}

void StepArrays::begin_step() {
  in_step_ = true;
  ++step_;
  check_cuda(kOp, cudaEventSynchronize(ends_[step_ % 2]));  // at once where it was never recorded
}

void StepArrays::end_step() {
  in_step_ = false;
  for (Slot& slot : slots_) slot.looked_at = nullptr;
  check_cuda(kOp, cudaEventRecord(ends_[step_ % 2], stream_));
}

const void* StepArrays::bytes_of(StepArray which, const void* values, size_t bytes) {
  Slot& slot = slots_[static_cast<size_t>(which)];
  const bool is_known = slot.bytes == bytes && slot.looked_at == values && values != nullptr;
  if (in_step_) slot.looked_at = values;
  if (bytes == 0 || is_known) return slot.device;
  const uint64_t asked = std::exchange(slot.asked, step_);
  if (slot.bytes == bytes && std::memcmp(slot.turns[slot.last].memory, values, bytes) == 0)
    return slot.device;
  if (in_step_ && asked == step_) before_change_();
  if (bytes > slot.capacity) grow(slot, bytes);
  slot.last = 1 - slot.last;
  slot.bytes = bytes;
  Pinned& turn = slot.turns[slot.last];
  // An array that changed within a step, or is none's, comes round before begin_step() waited for its step.
  if (turn.step + 2 > step_) check_cuda(kOp, cudaStreamSynchronize(stream_));
  turn.step = step_;
  std::memcpy(turn.memory, values, bytes);
  check_cuda(kOp, cudaMemcpyAsync(slot.device, turn.memory, bytes, cudaMemcpyHostToDevice, stream_));
  if (!in_step_) check_cuda(kOp, cudaStreamSynchronize(stream_));
  ++sent_count_;
  return slot.device;
}

int64_t StepArrays::reserve(StepArray which, int64_t bytes) {
  Slot& slot = slots_[static_cast<size_t>(which)];
  if (static_cast<size_t>(bytes) > slot.capacity) grow(slot, static_cast<size_t>(bytes));
  return static_cast<int64_t>(slot.capacity);
}

void StepArrays::grow(Slot& slot, size_t bytes) {
  // Kernels under way may still read the old memory.
  check_cuda(kOp, cudaStreamSynchronize(stream_));
  release(slot);
  slot.bytes = 0;
  slot.capacity = std::max(bytes, 2 * slot.capacity);
  check_cuda(kOp, cudaMalloc(&slot.device, slot.capacity));
  for (Pinned& turn : slot.turns) {
    turn.step = 0;
    check_cuda(kOp, cudaMallocHost(&turn.memory, slot.capacity));
  }
}

void StepArrays::release(const Slot& slot) {
  cudaFree(slot.device);
  for (const Pinned& turn : slot.turns) cudaFreeHost(turn.memory);
}

}  // namespace troupe::cuda
