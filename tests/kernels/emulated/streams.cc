#include "tests/kernels/emulated/streams.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "tests/kernels/emulated/emulator.h"
#include "tests/kernels/emulated/host.h"

namespace troupe::emulated {
namespace {

std::atomic<bool> is_late = false;

// A stream's work. An event may outlive the stream it was recorded in.
class Queue {
 public:
  void push(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
  }
  uint64_t end() const {
    const std::lock_guard lock(mutex_);
    return done_ + work_.size();
  }
  // What comes before the `end`th.
  void run_to(uint64_t end) {
    const std::lock_guard lock(mutex_);
    for (; done_ < end && !work_.empty(); ++done_) {
      const std::function<void()> work = std::move(work_.front());
      work_.pop_front();
      work();
    }
  }
  void run() { run_to(~uint64_t{0}); }

 private:
  mutable std::mutex mutex_;
  std::deque<std::function<void()>> work_;
  uint64_t done_ = 0;
};

// The process's.
struct Queues {
  std::mutex mutex;
  std::vector<std::shared_ptr<Queue>> all;
};

Queues& queues() {
  static Queues own;
  return own;
}

}  // namespace

void set_late(bool late) {
  is_late = late;
}

}  // namespace troupe::emulated

using troupe::emulated::Queue;

// Opaque handles: their own allocations, so that the leak checker sees one that is not given back.
struct CUstream_st {
  std::shared_ptr<Queue> queue = std::make_shared<Queue>();
};
struct CUevent_st {
  std::shared_ptr<Queue> queue;  // null: never recorded, or in the default stream
  uint64_t end = 0;
};

namespace troupe::emulated {

void enqueue(cudaStream_t stream, std::function<void()> work) {
  if (stream == nullptr) return work();
  stream->queue->push(std::move(work));
  if (!is_late) stream->queue->run();
}

void run_all() {
  std::vector<std::shared_ptr<Queue>> all;
  {
    const std::lock_guard lock(queues().mutex);
    all = queues().all;
  }
  for (const auto& queue : all) queue->run();
}

}  // namespace troupe::emulated

using namespace troupe::emulated;

namespace {

cudaError_t wait_for(cudaEvent_t event) {
  if (event == nullptr) return noted(cudaErrorInvalidResourceHandle);
  if (event->queue != nullptr) event->queue->run_to(event->end);
  return cudaSuccess;
}

}  // namespace

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  *stream = new CUstream_st;
  const std::lock_guard lock(queues().mutex);
  queues().all.push_back((*stream)->queue);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return cudaStreamCreate(stream);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  if (stream == nullptr) return noted(cudaErrorInvalidResourceHandle);
  stream->queue->run();
  {
    const std::lock_guard lock(queues().mutex);
    std::erase(queues().all, stream->queue);
  }
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (stream != nullptr) stream->queue->run();
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return cudaStreamSynchronize(stream);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t event, unsigned) {
  return wait_for(event);
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = new CUevent_st;
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return cudaEventCreate(event);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  if (event == nullptr) return noted(cudaErrorInvalidResourceHandle);
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (event == nullptr) return noted(cudaErrorInvalidResourceHandle);
  event->queue = stream == nullptr ? nullptr : stream->queue;
  event->end = stream == nullptr ? 0 : stream->queue->end();
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return wait_for(event);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return wait_for(event);
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  *milliseconds = 0.0f;
  const cudaError_t error = wait_for(begin);
  return error == cudaSuccess ? wait_for(end) : error;
}
