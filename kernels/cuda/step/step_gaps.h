#pragma once

// Measures how long the device stood still between steps: from the end of one's last launch to the begin of
// the next one's first, by events in the stream. An event costs the stream about a microsecond, so they are
// recorded only on request. Work in between that belongs to no step (tokens on their way to the host) counts
// as standing still.

#include <cuda_runtime.h>

#include <cstddef>
#include <vector>

namespace troupe::cuda {

// Driven by the backend's one thread.
class StepGaps {
 public:
  static constexpr size_t kStepsMax = 4096;  // later ones before take() are not counted

  // `stream`: of all steps.
  explicit StepGaps(cudaStream_t stream) : stream_(stream) {}
  ~StepGaps();
  StepGaps(const StepGaps&) = delete;
  StepGaps& operator=(const StepGaps&) = delete;

  // Around all launches of a step.
  void begin_step();
  void end_step();
  // Seconds between each two steps since the last call; waits for them to end.
  std::vector<double> take();

 private:
  struct Step {
    cudaEvent_t begin = nullptr, end = nullptr;
  };
  cudaStream_t stream_;
  std::vector<Step> steps_;  // kept for the next ones
  size_t count_ = 0;         // of them that have ended
  bool in_step_ = false;
};

}  // namespace troupe::cuda
