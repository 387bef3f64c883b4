#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "tests/kernels/emulated/emulator.h"
#include "tests/kernels/emulated/host.h"
#include "tests/kernels/emulated/streams.h"

namespace troupe::emulated {
namespace {

// Small: a launch that is timed here takes no time, whatever the cache holds, and to flush it takes long.
constexpr int kL2Bytes = 1 << 20;
constexpr size_t kMemoryAlignment = 256;

// The process's device.
struct Device {
  std::mutex mutex;
  DeviceSize size;
  Driver driver;
  std::map<void*, size_t> memory;  // what cudaMalloc gave, and its bytes
  size_t memory_used = 0;
  std::map<const void*, size_t> pinned;  // what cudaMallocHost gave
};

Device& device_state() {
  static Device own;
  return own;
}

// Whether `pointer` is into one of `pieces`.
template <typename Pieces>
bool is_in(const Pieces& pieces, const void* pointer) {
  auto next = pieces.upper_bound(const_cast<void*>(pointer));
  if (next == pieces.begin()) return false;
  const auto& [begin, bytes] = *--next;
  return static_cast<const char*>(pointer) < static_cast<const char*>(begin) + bytes;
}

// The host's memory that the device cannot reach by itself.
bool is_pageable(const void* pointer) {
  Device& device = device_state();
  const std::lock_guard lock(device.mutex);
  return !is_in(device.memory, pointer) && !is_in(device.pinned, pointer);
}

void* allocate(size_t bytes) {
  void* memory = nullptr;
  if (posix_memalign(&memory, kMemoryAlignment, bytes) != 0) return nullptr;
  std::memset(memory, 0xFF, bytes);
  return memory;
}

}  // namespace

void take_graph_memory() {
  const std::lock_guard lock(device_state().mutex);
  device_state().memory_used += kGraphBytes;
}

void give_graph_memory() {
  const std::lock_guard lock(device_state().mutex);
  device_state().memory_used -= kGraphBytes;
}

int shared_bytes_of_processor() {
  const std::lock_guard lock(device_state().mutex);
  return device_state().size.shared_bytes;
}

void set_device_size(const DeviceSize& size) {
  const std::lock_guard lock(device_state().mutex);
  device_state().size = size;
}

void set_driver(const Driver& driver) {
  const std::lock_guard lock(device_state().mutex);
  device_state().driver = driver;
}

}  // namespace troupe::emulated

using namespace troupe::emulated;

// --- devices

cudaError_t cudaGetDeviceCount(int* count) {
  const std::lock_guard lock(device_state().mutex);
  const Driver& driver = device_state().driver;
  *count = driver.devices;
  if (driver.version / 1000 < CUDART_VERSION / 1000) return noted(cudaErrorInsufficientDriver);
  return driver.devices == 0 ? noted(cudaErrorNoDevice) : cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  const std::lock_guard lock(device_state().mutex);
  *version = device_state().driver.version;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  return device == 0 ? cudaSuccess : noted(cudaErrorInvalidDevice);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device != 0) return noted(cudaErrorInvalidDevice);
  const std::lock_guard lock(device_state().mutex);
  *properties = {};
  std::strcpy(properties->name, "emulated");
  properties->totalGlobalMem = device_state().size.memory_bytes;
  properties->sharedMemPerBlock = kSharedBytesOfAnyLaunch;
  const auto shared_bytes = static_cast<size_t>(device_state().size.shared_bytes);
  properties->sharedMemPerBlockOptin = shared_bytes - kReservedSharedBytes;
  properties->sharedMemPerMultiprocessor = shared_bytes;
  properties->reservedSharedMemPerBlock = kReservedSharedBytes;
  properties->major = device_state().driver.major;
  properties->multiProcessorCount = device_state().size.processors;
  properties->maxThreadsPerBlock = kThreadsMax;
  properties->maxThreadsPerMultiProcessor = kThreadsOfProcessor;
  properties->regsPerBlock = 65536;
  properties->warpSize = 32;
  properties->l2CacheSize = kL2Bytes;
  properties->memoryBusWidth = 5120;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp properties;
  const cudaError_t error = cudaGetDeviceProperties(&properties, device);
  if (error != cudaSuccess) return error;
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
      *value = properties.maxThreadsPerBlock;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = kSharedBytesOfAnyLaunch;
      break;
    case cudaDevAttrWarpSize:
      *value = properties.warpSize;
      break;
    case cudaDevAttrMultiProcessorCount:
      *value = properties.multiProcessorCount;
      break;
    case cudaDevAttrL2CacheSize:
      *value = properties.l2CacheSize;
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = properties.major;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = properties.minor;
      break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = static_cast<int>(properties.sharedMemPerMultiprocessor);
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(properties.sharedMemPerBlockOptin);
      break;
    default:
      return noted(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  if (any_captures()) return noted(cudaErrorStreamCaptureUnsupported);
  run_all();
  return cudaSuccess;
}

// --- memory

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  *pointer = nullptr;
  if (bytes == 0) return cudaSuccess;
  Device& device = device_state();
  const std::lock_guard lock(device.mutex);
  if (bytes > device.size.memory_bytes || device.memory_used > device.size.memory_bytes - bytes) {
    return noted(cudaErrorMemoryAllocation);
  }
  *pointer = allocate(bytes);
  if (*pointer == nullptr) return noted(cudaErrorMemoryAllocation);
  device.memory.emplace(*pointer, bytes);
  device.memory_used += bytes;
  return cudaSuccess;
}

cudaError_t cudaFree(void* pointer) {
  if (pointer == nullptr) return cudaSuccess;
  run_all();
  Device& device = device_state();
  const std::lock_guard lock(device.mutex);
  const auto found = device.memory.find(pointer);
  if (found == device.memory.end()) return noted(cudaErrorInvalidValue);
  device.memory_used -= found->second;
  device.memory.erase(found);
  std::free(pointer);
  return cudaSuccess;
}

cudaError_t cudaMallocHost(void** pointer, size_t bytes) {
  *pointer = bytes == 0 ? nullptr : allocate(bytes);
  if (*pointer == nullptr) return bytes == 0 ? cudaSuccess : noted(cudaErrorMemoryAllocation);
  const std::lock_guard lock(device_state().mutex);
  device_state().pinned.emplace(*pointer, bytes);
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* pointer) {
  run_all();
  const std::lock_guard lock(device_state().mutex);
  device_state().pinned.erase(pointer);
  std::free(pointer);
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  Device& device = device_state();
  const std::lock_guard lock(device.mutex);
  *total_bytes = device.size.memory_bytes;
  *free_bytes = device.size.memory_bytes - std::min(device.memory_used, device.size.memory_bytes);
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  if (bytes != 0) std::memmove(to, from, bytes);
  return cudaSuccess;
}

static void enqueue_copy(cudaStream_t stream, std::function<void()> run) {
  enqueue(stream, {nullptr, std::move(run), nullptr, {0, 0, 0}});
}

// Pageable memory is read when the copy is called; a copy to pageable memory is complete when it returns.
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  if (is_pageable(from)) {
    std::vector<char> staged(static_cast<const char*>(from), static_cast<const char*>(from) + bytes);
    enqueue_copy(stream, [=, staged = std::move(staged)] { cudaMemcpy(to, staged.data(), bytes, kind); });
  } else {
    enqueue_copy(stream, [=] { cudaMemcpy(to, from, bytes, kind); });
  }
  return is_pageable(to) ? cudaStreamSynchronize(stream) : cudaSuccess;
}

cudaError_t cudaMemset(void* to, int byte, size_t bytes) {
  if (bytes != 0) std::memset(to, byte, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* to, int byte, size_t bytes, cudaStream_t stream) {
  enqueue_copy(stream, [=] { cudaMemset(to, byte, bytes); });
  return cudaSuccess;
}
