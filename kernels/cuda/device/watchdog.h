#pragma once

// The host's waits for the device, with an end. A kernel that never ends would have the process wait for ever
// without a word, alive to all that watch it; and no call gets a device back from that. After the limit the
// process ends, as after any error of the device (check_cuda.h), naming the ops of which one hangs: those
// launched since the last wait that ended, up to what is waited for.

#include <cuda_runtime.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>

namespace troupe::cuda {

// One stream's. Driven by the backend's one thread.
class Watchdog {
 public:
  // 0: waits for ever.
  explicit Watchdog(std::chrono::milliseconds limit) : limit_(limit) {}
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // `op` was launched, or captured for a graph that will be. REQUIRES: a literal.
  void launched(const char* op) { ops_[launch_count_++ % kOpsMax] = op; }
  uint64_t launch_count() const { return launch_count_; }

  // Waits for `event`, recorded behind the first `launches` of all; `op` names the wait in errors.
  void wait(const char* op, cudaEvent_t event, uint64_t launches);
  // For all of the stream so far.
  void wait(const char* op, cudaStream_t stream);

 private:
  // Two steps' launches: the one waited for and the one launched meanwhile. A step of 80 layers launches some
  // 600.
  static constexpr size_t kOpsMax = 2048;

  void poll(const char* op, uint64_t launches, const std::function<cudaError_t()>& query);
  [[noreturn]] void fail(const char* op, uint64_t launches) const;

  const std::chrono::milliseconds limit_;
  std::array<const char*, kOpsMax> ops_{};  // of launch i at i modulo their number
  uint64_t launch_count_ = 0;
  uint64_t done_count_ = 0;  // of those launches: waited for
};

}  // namespace troupe::cuda
