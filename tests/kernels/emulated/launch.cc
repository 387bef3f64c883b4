#include <algorithm>
#include <mutex>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "tests/kernels/emulated/engine.h"
#include "tests/kernels/emulated/host.h"
#include "tests/kernels/emulated/streams.h"

namespace troupe::emulated {
namespace {

constexpr unsigned kBlocksMaxX = 0x7fffffff;
constexpr unsigned kBlocksMaxYZ = 65535;
constexpr unsigned kThreadsMaxZ = 64;
constexpr unsigned kClusterBlocksMax = 8;  // that every device has which has clusters

// The process's.
struct Launches {
  std::mutex mutex;
  Order order = Order::kForward;
  uint32_t seed = 0;
  LaunchRecord last;
  DriverCalls calls;
  std::unordered_set<const void*> kernels;                        // that were launched
  std::unordered_map<const void*, int> dynamic_shared_bytes_max;  // of a kernel that may have more than any
};

Launches& launches() {
  static Launches own;
  return own;
}

bool is_within(const dim3& size, const dim3& max) {
  return size.x >= 1 && size.y >= 1 && size.z >= 1 && size.x <= max.x && size.y <= max.y && size.z <= max.z;
}

bool is_dependent(const cudaLaunchConfig_t& config) {
  const std::span attributes(config.attrs, config.numAttrs);
  return std::any_of(attributes.begin(), attributes.end(), [](const cudaLaunchAttribute& attribute) {
    return attribute.id == cudaLaunchAttributeProgrammaticStreamSerialization &&
           attribute.val.programmaticStreamSerializationAllowed != 0;
  });
}

// 0 x 0 x 0: none.
dim3 cluster_of(const cudaLaunchConfig_t& config) {
  dim3 cluster{0, 0, 0};
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    const auto& value = config.attrs[i].val.clusterDim;
    if (config.attrs[i].id == cudaLaunchAttributeClusterDimension) cluster = {value.x, value.y, value.z};
  }
  return cluster;
}

// Clusters divide the grid.
bool is_cluster_of(const dim3& cluster, const dim3& grid) {
  if (cluster.x == 0 && cluster.y == 0 && cluster.z == 0) return true;
  return is_within(cluster, grid) && grid.x % cluster.x == 0 && grid.y % cluster.y == 0 &&
         grid.z % cluster.z == 0 && cluster.x * cluster.y * cluster.z <= kClusterBlocksMax;
}

// REQUIRES: launches().mutex is held.
size_t dynamic_shared_bytes_max(const void* kernel) {
  const auto& allowed = launches().dynamic_shared_bytes_max;
  const auto own = allowed.find(kernel);
  return static_cast<size_t>(own == allowed.end() ? kSharedBytesOfAnyLaunch : own->second);
}

cudaError_t check_launch(const cudaLaunchConfig_t& config, const void* kernel) {
  const dim3& threads = config.blockDim;
  if (!is_within(config.gridDim, {kBlocksMaxX, kBlocksMaxYZ, kBlocksMaxYZ}) ||
      !is_within(threads, {kThreadsMax, kThreadsMax, kThreadsMaxZ}) ||
      uint64_t{threads.x} * threads.y * threads.z > kThreadsMax) {
    return cudaErrorInvalidConfiguration;
  }
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    const cudaLaunchAttribute& attribute = config.attrs[i];
    if (attribute.id == cudaLaunchAttributeCooperative && attribute.val.cooperative != 0) {
      return cudaErrorNotSupported;
    }
  }
  if (!is_cluster_of(cluster_of(config), config.gridDim)) return cudaErrorInvalidClusterSize;
  return config.dynamicSmemBytes > dynamic_shared_bytes_max(kernel) ? cudaErrorInvalidValue : cudaSuccess;
}

}  // namespace

void set_order(Order order, uint32_t seed) {
  const std::lock_guard lock(launches().mutex);
  launches().order = order;
  launches().seed = seed;
}

LaunchRecord last_launch() {
  const std::lock_guard lock(launches().mutex);
  return launches().last;
}

void count_call(uint64_t DriverCalls::*which) {
  const std::lock_guard lock(launches().mutex);
  ++(launches().calls.*which);
}

DriverCalls driver_calls() {
  const std::lock_guard lock(launches().mutex);
  return launches().calls;
}

uint64_t kernels_launched() {
  const std::lock_guard lock(launches().mutex);
  return launches().kernels.size();
}

void forget_kernels() {
  const std::lock_guard lock(launches().mutex);
  launches().kernels.clear();
}

void note_launch(LaunchRecord launch) {
  const std::lock_guard lock(launches().mutex);
  launch.number = launches().last.number + 1;
  launches().last = launch;
}

cudaError_t launch(const cudaLaunchConfig_t& config, const void* kernel, Entry entry,
                   std::shared_ptr<const void> call) {
  Grid grid{config.gridDim, config.blockDim, config.dynamicSmemBytes, entry, call.get(), Order::kForward, 0};
  grid.dependent = is_dependent(config);
  {
    const std::lock_guard lock(launches().mutex);
    ++launches().calls.launches;
    const cudaError_t error = check_launch(config, kernel);
    if (error != cudaSuccess) return noted(error);
    launches().kernels.insert(kernel);
    grid.order = launches().order;
    grid.seed = launches().seed;
  }
  Work work{kernel, nullptr, nullptr, cluster_of(config)};
  const auto begun_on = std::make_shared<Engine*>(nullptr);
  if (grid.dependent) {
    work.begin = [grid, call, begun_on] {
      *begun_on = &Engine::idle_of_this_thread();
      (*begun_on)->begin(grid);
    };
  }
  work.run = [grid, call = std::move(call), begun_on] {
    Engine* const begun = std::exchange(*begun_on, nullptr);
    const uint64_t switches = (begun != nullptr ? *begun : Engine::idle_of_this_thread()).run(grid);
    note_launch({grid.blocks, grid.threads, grid.dynamic_shared_bytes, 0, switches, grid.dependent});
  };
  enqueue(config.stream, std::move(work));
  return cudaSuccess;
}

cudaError_t set_kernel_attribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  if (value < 0 || value > shared_bytes_of_processor() - kReservedSharedBytes)
    return noted(cudaErrorInvalidValue);
  const std::lock_guard lock(launches().mutex);
  ++launches().calls.attributes;
  launches().dynamic_shared_bytes_max[kernel] = value;
  return cudaSuccess;
}

cudaError_t blocks_of_processor(int* blocks, const void* kernel, int threads, size_t shared_bytes) {
  const std::lock_guard lock(launches().mutex);
  if (threads < 1 || threads > kThreadsMax) return noted(cudaErrorInvalidValue);
  if (shared_bytes > dynamic_shared_bytes_max(kernel)) {
    *blocks = 0;
    return cudaSuccess;
  }
  const auto by_shared =
      shared_bytes_of_processor() / (static_cast<int>(shared_bytes) + kReservedSharedBytes);
  *blocks = std::min({by_shared, kThreadsOfProcessor / threads, kBlocksOfProcessor});
  return cudaSuccess;
}

}  // namespace troupe::emulated
