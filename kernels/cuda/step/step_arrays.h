#pragma once

// The small arrays of a step (ids, positions, slots, block tables, …) in device memory. The model's layers
// ask for the same ones again and again: an array that has not changed since its last use is not sent again,
// so a step of 32 layers sends each array once; and between begin_step() and end_step() it is not even
// compared.
//
// They are sent from pinned memory, two turns of it: from any other the driver may wait for the stream first,
// and a step could not be launched while the one before it is computed. A turn is written again when the step
// that read it is done, which begin_step() waits for: the one before the last. A step that is launched whole
// (step_graphs.h) has all of them in one piece of memory, sent by one copy: a dozen small ones would be as
// many pauses of the device before every step.

#include <cuda_runtime.h>

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <type_traits>
#include <vector>

#include "kernels/cuda/device/watchdog.h"

namespace troupe::cuda {

enum class StepArray : uint8_t {
  kIds,
  kRows,
  kPositions,
  kSlots,
  kQueryStarts,
  kContextCounts,
  kBlockTables,
  kTokenRequests,
  kAttentionTiles,
  kAttentionShared,
  kAttentionSharedRows,
  kAttentionPieces,
  kAttentionMerges,
  kAlibiSlopes,
  kCopies,
  kDraws,
  kChains,
  kMus,  // no values are sent: memory()
  kMasks,
  kLogitEdits,
};
inline constexpr size_t kStepArrayCount = size_t{static_cast<uint8_t>(StepArray::kLogitEdits)} + 1;

// Driven by the backend's one thread. Errors end the process (device.cuh): memory beside KV is kept for steps
// (worker/model/load/memory_budget.h), of which masks take 8 MiB at most, a bit a token and row, as the first
// requests with a grammar come.
class StepArrays {
 public:
  static constexpr size_t kAlignment = 256;  // of each array, as cudaMalloc's

  // `watchdog`: of `stream`. `before_change` is called before an array that this step has used gets other
  // values: launches that use it must be on their way by then.
  StepArrays(cudaStream_t stream, Watchdog& watchdog, std::function<void()> before_change);
  ~StepArrays();
  StepArrays(const StepArrays&) = delete;
  StepArrays& operator=(const StepArrays&) = delete;

  // `values` on the device, valid for launches made before the same array gets other values.
  template <typename T>
  const T* of(StepArray which, std::span<const T> values) {
    static_assert(std::is_trivially_copyable_v<T>);
    return static_cast<const T*>(bytes_of(which, values.data(), values.size_bytes()));
  }
  template <typename T>
  const T* of(StepArray which, const std::vector<T>& values) {
    return of(which, std::span<const T>(values));
  }

  // The same of values that lie where another call of this step's may have had others.
  template <typename T>
  const T* of_scratch(StepArray which, const std::vector<T>& values) {
    slots_[static_cast<size_t>(which)].looked_at = nullptr;
    return of(which, values);
  }

  // Room for so many values that kernels write, and of() never has; what it holds may be lost at each call.
  template <typename T>
  T* memory(StepArray which, size_t count) {
    return static_cast<T*>(bytes_for(which, count * sizeof(T)));
  }

  // Memory for arrays of so many bytes, at once. Returns what was taken of the device's.
  int64_t reserve(StepArray which, int64_t bytes);
  // And for those of one step, all together.
  int64_t reserve_whole(int64_t bytes);

  bool in_step() const { return in_step_; }
  // `whole`: arrays are on the device when send() was called, as far as there is memory for all together.
  void begin_step(bool whole);
  void send();  // nothing where there is nothing to send
  void end_step();

  int64_t sent_count() const { return sent_count_; }  // of copies to the device so far

 private:
  struct Pinned {
    void* memory = nullptr;
    uint64_t step = 0;  // that reads it
  };
  struct Slot {
    std::array<Pinned, 2> turns;
    size_t last = 0;   // of turns: what the device holds
    size_t bytes = 0;  // of that
    void* device = nullptr;
    size_t capacity = 0;
    uint64_t asked = 0;  // the step of its last use
    // This step's: the values of its last use, and their place.
    const void* looked_at = nullptr;
    size_t looked_bytes = 0;
    const void* found = nullptr;
  };
  const void* bytes_of(StepArray which, const void* values, size_t bytes);
  void* bytes_for(StepArray which, size_t bytes);
  size_t whole_end() const { return (whole_bytes_ + kAlignment - 1) / kAlignment * kAlignment; }
  const void* add_to_whole(const void* values, size_t bytes);
  const void* send_own(Slot& slot, const void* values, size_t bytes);
  void grow(Slot& slot, size_t bytes);
  void release(const Slot& slot);
  void release_whole();

  cudaStream_t stream_;
  Watchdog& watchdog_;
  const std::function<void()> before_change_;
  std::array<Slot, kStepArrayCount> slots_;
  // The memory of a step that is launched whole.
  std::array<char*, 2> whole_turns_{};
  char* whole_ = nullptr;
  size_t whole_capacity_ = 0;
  size_t whole_bytes_ = 0;  // that send() has to send
  bool is_whole_ = false;   // until then
  struct StepEnd {
    cudaEvent_t event = nullptr;
    uint64_t launches = 0;  // before it
  };
  std::array<StepEnd, 2> ends_;  // of the last two steps
  uint64_t step_ = 1;
  bool in_step_ = false;
  int64_t sent_count_ = 0;
};

}  // namespace troupe::cuda
