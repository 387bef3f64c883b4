#include "kernels/cuda/device/watchdog.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/status.h"
#include "kernels/cuda/device/check_cuda.h"

namespace troupe::cuda {

void Watchdog::wait(const char* op, cudaEvent_t event, uint64_t launches) {
  if (limit_.count() == 0) return check_cuda(op, cudaEventSynchronize(event));
  poll(op, launches, [event] { return cudaEventQuery(event); });
}

void Watchdog::wait(const char* op, cudaStream_t stream) {
  if (limit_.count() == 0) return check_cuda(op, cudaStreamSynchronize(stream));
  poll(op, launch_count_, [stream] { return cudaStreamQuery(stream); });
}

// Asks again and again, as cudaEventSynchronize does by default.
void Watchdog::poll(const char* op, uint64_t launches, const std::function<cudaError_t()>& query) {
  const auto end = std::chrono::steady_clock::now() + limit_;
  for (;;) {
    // The time first: a process that was stopped for long asks once more.
    const bool is_late = std::chrono::steady_clock::now() >= end;
    const cudaError_t error = query();
    if (error != cudaErrorNotReady) {
      check_cuda(op, error);
      break;
    }
    if (is_late) fail(op, launches);
  }
  cudaGetLastError();  // it is forgotten: not ready
  done_count_ = std::max(done_count_, launches);
}

void Watchdog::fail(const char* op, uint64_t launches) const {
  const uint64_t kept_from = launch_count_ - std::min<uint64_t>(launch_count_, kOpsMax);
  std::vector<std::string_view> order;
  std::map<std::string_view, int> counts;
  for (uint64_t i = std::max(done_count_, kept_from); i < launches; ++i) {
    const std::string_view name = ops_[i % kOpsMax];
    if (counts[name]++ == 0) order.push_back(name);
  }
  const std::string names = absl::StrJoin(order, ", ", [&](std::string* out, std::string_view name) {
    absl::StrAppend(out, counts[name], " x ", to_absl(name));
  });
  check_failed(op, absl::StrCat("the device hangs: not done after ", limit_.count() / 1000.0, " s. ",
                                order.empty() ? "Nothing was launched since the last wait"
                                              : "It is in one of the launches since the last wait: ",
                                names));
}

}  // namespace troupe::cuda
