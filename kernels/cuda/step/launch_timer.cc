#include "kernels/cuda/step/launch_timer.h"

#include <algorithm>

#include "kernels/cuda/device/check_cuda.h"
#include "kernels/cuda/device/read_memory.h"

namespace troupe::cuda {

namespace {

constexpr int kTimedLaunches = 5;

class Event {
 public:
  explicit Event(const char* op) { check_cuda(op, cudaEventCreate(&event_)); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

// The cache's last level holds operands only until the next layers' come by: between two launches other
// memory is read, as they do. Were it written, the launch that is timed would pay for writing it back.
size_t cache_bytes(const char* op) {
  int device = 0, bytes = 0;
  check_cuda(op, cudaGetDevice(&device));
  check_cuda(op, cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, device));
  return static_cast<size_t>(bytes);
}

}  // namespace

DeviceScratch::DeviceScratch(size_t bytes) {
  if (cudaMalloc(&data_, std::max<size_t>(bytes, 1)) == cudaSuccess) return;
  data_ = nullptr;
  cudaGetLastError();  // it is forgotten
}

double seconds_of_launch(const char* op, cudaStream_t stream, const std::function<void()>& launch) {
  const size_t flushed = 2 * cache_bytes(op);
  const DeviceScratch cache(flushed), sum(sizeof(uint32_t));
  const bool flushes = cache.data() != nullptr && sum.data() != nullptr;
  if (flushes)
    check_cuda(op, cudaMemsetAsync(cache.data(), 0, flushed, stream));  // for it to be memory at all
  if (flushes) check_cuda(op, cudaMemsetAsync(sum.data(), 0, sizeof(uint32_t), stream));
  const Event begin(op), end(op);
  launch();  // whatever the first one loads
  float milliseconds[kTimedLaunches] = {};
  for (float& time : milliseconds) {
    if (flushes) read_memory(stream, cache.data(), flushed, static_cast<uint32_t*>(sum.data()));
    check_cuda(op, cudaEventRecord(begin.get(), stream));
    launch();
    check_cuda(op, cudaEventRecord(end.get(), stream));
    check_cuda(op, cudaEventSynchronize(end.get()));
    check_cuda(op, cudaEventElapsedTime(&time, begin.get(), end.get()));
  }
  std::nth_element(std::begin(milliseconds), std::begin(milliseconds) + kTimedLaunches / 2,
                   std::end(milliseconds));
  return milliseconds[kTimedLaunches / 2] * 1e-3;
}

}  // namespace troupe::cuda
