#include "worker/model/load/memory_budget.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace troupe {

namespace {

std::string gib(int64_t bytes) {
  return absl::StrFormat("%.2f GiB", static_cast<double>(bytes) / static_cast<double>(int64_t{1} << 30));
}

}  // namespace

StatusOr<int64_t> kv_blocks_that_fit(const MemoryRequest& request) {
  const int64_t taken = request.device.total_bytes - request.device.free_bytes;
  const auto usable =
      static_cast<int64_t>(static_cast<double>(request.device.total_bytes) * request.utilization);
  const int64_t left = usable - taken - kStepReserveBytes;
  if (left >= request.block_bytes) return left / request.block_bytes;
  return absl::ResourceExhaustedError(absl::StrCat(
      "no room for KV: of the device's ", gib(request.device.total_bytes), ", gpu_memory_utilization ",
      request.utilization, " allows ", gib(usable), "; weights, activations and other processes take ",
      gib(taken), ", steps up to ", gib(kStepReserveBytes), ", and one block of KV is ",
      gib(request.block_bytes),
      ". A smaller max_num_batched_tokens or max_num_seqs needs less, dtype bfloat16 half of float32"));
}

}  // namespace troupe
