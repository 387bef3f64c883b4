#include "kernels/cuda/step/step_arrays.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/core/check.h"
#include "kernels/cuda/device/check_cuda.h"

namespace troupe::cuda {

namespace {

constexpr const char* kOp = "step arrays";

}  // namespace

StepArrays::StepArrays(cudaStream_t stream, Watchdog& watchdog, std::function<void()> before_change)
    : stream_(stream), watchdog_(watchdog), before_change_(std::move(before_change)) {
  for (StepEnd& end : ends_) check_cuda(kOp, cudaEventCreateWithFlags(&end.event, cudaEventDisableTiming));
}

StepArrays::~StepArrays() {
  cudaStreamSynchronize(stream_);
  for (const Slot& slot : slots_) release(slot);
  release_whole();
  for (const StepEnd& end : ends_) cudaEventDestroy(end.event);
}

void StepArrays::begin_step(bool whole) {
  TROUPE_CHECK(!in_step_, "a step begins within another");
  in_step_ = true;
  is_whole_ = whole && whole_capacity_ > 0;
  whole_bytes_ = 0;
  ++step_;
  const StepEnd& end = ends_[step_ % 2];
  watchdog_.wait(kOp, end.event, end.launches);  // at once where it was never recorded
}

void StepArrays::send() {
  is_whole_ = false;
  if (whole_bytes_ == 0) return;
  check_cuda(kOp,
             cudaMemcpyAsync(whole_, whole_turns_[step_ % 2], whole_bytes_, cudaMemcpyHostToDevice, stream_));
  whole_bytes_ = 0;
  ++sent_count_;
}

void StepArrays::end_step() {
  TROUPE_CHECK(in_step_, "a step ends that has not begun");
  in_step_ = false;
  for (Slot& slot : slots_) slot.looked_at = nullptr;
  StepEnd& end = ends_[step_ % 2];
  check_cuda(kOp, cudaEventRecord(end.event, stream_));
  end.launches = watchdog_.launch_count();
}

const void* StepArrays::bytes_of(StepArray which, const void* values, size_t bytes) {
  Slot& slot = slots_[static_cast<size_t>(which)];
  // No memory; but the place that some values would have, or a step that has some would be another graph.
  if (bytes == 0) return is_whole_ ? whole_ + whole_end() : slot.device;
  if (in_step_ && slot.looked_at == values && slot.looked_bytes == bytes) return slot.found;
  const bool is_other = in_step_ && std::exchange(slot.asked, step_) == step_;
  const void* found = is_whole_ ? add_to_whole(values, bytes) : nullptr;
  if (found == nullptr) {
    if (is_other) before_change_();
    found = send_own(slot, values, bytes);
  }
  if (!in_step_) return found;
  slot.looked_at = values;
  slot.looked_bytes = bytes;
  return slot.found = found;
}

void* StepArrays::bytes_for(StepArray which, size_t bytes) {
  Slot& slot = slots_[static_cast<size_t>(which)];
  if (bytes > slot.capacity) {
    before_change_();
    grow(slot, bytes);
  }
  return slot.device;
}

// Null: there is no more room.
const void* StepArrays::add_to_whole(const void* values, size_t bytes) {
  const size_t begin = whole_end();
  if (bytes > whole_capacity_ || begin > whole_capacity_ - bytes) return nullptr;
  std::memcpy(whole_turns_[step_ % 2] + begin, values, bytes);
  whole_bytes_ = begin + bytes;
  return whole_ + begin;
}

// Sends to the array's own memory, unless that already holds just these values.
const void* StepArrays::send_own(Slot& slot, const void* values, size_t bytes) {
  if (slot.bytes == bytes && std::memcmp(slot.turns[slot.last].memory, values, bytes) == 0)
    return slot.device;
  if (bytes > slot.capacity) grow(slot, bytes);
  slot.last = 1 - slot.last;
  slot.bytes = bytes;
  Pinned& turn = slot.turns[slot.last];
  // An array that changed within a step, or is none's, comes round before begin_step() waited for its step.
  if (turn.step + 2 > step_) watchdog_.wait(kOp, stream_);
  turn.step = step_;
  std::memcpy(turn.memory, values, bytes);
  check_cuda(kOp, cudaMemcpyAsync(slot.device, turn.memory, bytes, cudaMemcpyHostToDevice, stream_));
  if (!in_step_) watchdog_.wait(kOp, stream_);
  ++sent_count_;
  return slot.device;
}

int64_t StepArrays::reserve_whole(int64_t bytes) {
  if (static_cast<size_t>(bytes) > whole_capacity_) {
    check_cuda(kOp, cudaStreamSynchronize(stream_));
    release_whole();
    whole_capacity_ = static_cast<size_t>(bytes);
    check_cuda(kOp, cudaMalloc(&whole_, whole_capacity_));
    for (char*& turn : whole_turns_) check_cuda(kOp, cudaMallocHost(&turn, whole_capacity_));
  }
  return static_cast<int64_t>(whole_capacity_);
}

void StepArrays::release_whole() {
  cudaFree(whole_);
  for (char* turn : whole_turns_) cudaFreeHost(turn);
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
