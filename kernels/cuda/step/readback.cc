#include "kernels/cuda/step/readback.h"

#include <algorithm>
#include <string>

#include "common/core/check.h"
#include "kernels/cuda/device/check_cuda.h"

namespace troupe::cuda {

namespace {

constexpr const char* kOp = "readback";

}  // namespace

std::unique_ptr<PinnedReadback> PinnedReadback::make(cudaStream_t stream, Watchdog& watchdog, size_t bytes) {
  auto readback = std::unique_ptr<PinnedReadback>(new PinnedReadback(stream, watchdog, bytes));
  if (cudaMallocHost(&readback->memory_, std::max<size_t>(bytes, 1)) != cudaSuccess) {
    readback->memory_ = nullptr;
  } else if (cudaEventCreateWithFlags(&readback->there_, cudaEventDisableTiming) != cudaSuccess) {
    readback->there_ = nullptr;
  } else {
    return readback;
  }
  cudaGetLastError();  // it is forgotten
  return nullptr;
}

PinnedReadback::~PinnedReadback() {
  if (there_ != nullptr) {
    cudaEventSynchronize(there_);
    cudaEventDestroy(there_);
  }
  if (memory_ != nullptr) cudaFreeHost(memory_);
}

void PinnedReadback::start(const void* from, size_t bytes) {
  TROUPE_CHECK(bytes <= bytes_, std::to_string(bytes) + " bytes, made for " + std::to_string(bytes_));
  check_cuda(kOp, cudaMemcpyAsync(memory_, from, bytes, cudaMemcpyDeviceToHost, stream_));
  check_cuda(kOp, cudaEventRecord(there_, stream_));
  launches_ = watchdog_.launch_count();
}

const void* PinnedReadback::wait() {
  watchdog_.wait(kOp, there_, launches_);
  return memory_;
}

}  // namespace troupe::cuda
