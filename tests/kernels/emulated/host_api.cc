#include "tests/kernels/emulated/host_api.h"

#include "tests/kernels/emulated/host.h"

struct CUstream_st {};
struct CUevent_st {};

namespace troupe::emulated {
namespace {

thread_local constinit cudaError_t last_error = cudaSuccess;

}  // namespace

cudaError_t noted(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

}  // namespace troupe::emulated

namespace {

using namespace troupe::emulated;

// An opaque handle: its own allocation, so that the leak checker sees one that is not given back.
template <class T>
cudaError_t make(T** handle) {
  *handle = new T;
  return cudaSuccess;
}

template <class T>
cudaError_t destroy(T* handle) {
  if (handle == nullptr) return noted(cudaErrorInvalidResourceHandle);
  delete handle;
  return cudaSuccess;
}

cudaError_t use(cudaEvent_t event) {
  return event == nullptr ? noted(cudaErrorInvalidResourceHandle) : cudaSuccess;
}

}  // namespace

// --- errors

namespace {

struct ErrorText {
  cudaError_t error;
  const char* name;
  const char* text;
};
constexpr ErrorText kErrors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

ErrorText text_of(cudaError_t error) {
  for (const ErrorText& known : kErrors) {
    if (known.error == error) return known;
  }
  return {error, "unrecognized error code", "unrecognized error code"};
}

}  // namespace

const char* cudaGetErrorName(cudaError_t error) {
  return text_of(error).name;
}

const char* cudaGetErrorString(cudaError_t error) {
  return text_of(error).text;
}

cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}

cudaError_t cudaPeekAtLastError() {
  return troupe::emulated::last_error;
}

// --- streams and events: everything has happened already

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return make(stream);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return make(stream);
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return make(event);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return make(event);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return destroy(stream);
}

cudaError_t cudaStreamSynchronize(cudaStream_t) {
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t) {
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t event, unsigned) {
  return use(event);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return destroy(event);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  return use(event);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return use(event);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return use(event);
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  *milliseconds = 0.0f;
  return use(begin) == cudaSuccess ? use(end) : cudaErrorInvalidResourceHandle;
}
