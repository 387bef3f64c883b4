#include "kernels/cuda/step/step_gaps.h"

#include "kernels/cuda/device/check_cuda.h"

namespace troupe::cuda {

namespace {

constexpr const char* kOp = "step gaps";

}  // namespace

StepGaps::~StepGaps() {
  for (const Step& step : steps_) {
    cudaEventDestroy(step.begin);
    cudaEventDestroy(step.end);
  }
}

void StepGaps::begin_step() {
  if (count_ == kStepsMax) return;
  in_step_ = true;
  if (count_ == steps_.size()) {
    Step& step = steps_.emplace_back();
    check_cuda(kOp, cudaEventCreate(&step.begin));
    check_cuda(kOp, cudaEventCreate(&step.end));
  }
  check_cuda(kOp, cudaEventRecord(steps_[count_].begin, stream_));
}

void StepGaps::end_step() {
  if (!in_step_) return;
  in_step_ = false;
  check_cuda(kOp, cudaEventRecord(steps_[count_++].end, stream_));
}

std::vector<double> StepGaps::take() {
  std::vector<double> gaps;
  if (count_ > 0) check_cuda(kOp, cudaEventSynchronize(steps_[count_ - 1].end));
  for (size_t i = 1; i < count_; ++i) {
    float milliseconds = 0;
    check_cuda(kOp, cudaEventElapsedTime(&milliseconds, steps_[i - 1].end, steps_[i].begin));
    gaps.push_back(double{milliseconds} * 1e-3);
  }
  count_ = 0;
  return gaps;
}

}  // namespace troupe::cuda
