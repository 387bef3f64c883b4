#include "kernels/cuda/cascade_timing.h"

#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/check_cuda.h"
#include "kernels/cuda/launch_timer.h"

namespace troupe::cuda {

namespace {

constexpr const char* kOp = "attention";
constexpr int32_t kOwnKeys = 256;  // of each request, behind what is shared

// Whose tables begin alike and go on apart.
struct Decodes {
  std::vector<int32_t> starts, contexts, tables;
  int32_t stride = 0;

  Decodes(int32_t requests, int32_t shared_blocks, int32_t own_blocks, int32_t block_size)
      : starts(static_cast<size_t>(requests) + 1), stride(shared_blocks + own_blocks) {
    std::iota(starts.begin(), starts.end(), 0);
    contexts.assign(static_cast<size_t>(requests), stride * block_size);
    for (int32_t r = 0; r < requests; ++r) {
      for (int32_t b = 0; b < stride; ++b) tables.push_back(b < shared_blocks ? b : b + r * own_blocks);
    }
  }
};

}  // namespace

std::optional<double> seconds_of_decodes(const DecodeTiming& timing, int32_t requests, int32_t shared_keys,
                                         bool cascade) {
  const KvLayout& layout = timing.kv.layout;
  const int32_t block_size = layout.block_size;
  const int32_t shared = shared_keys / block_size, own = (kOwnKeys + block_size - 1) / block_size;
  const bool fits = shared_keys % block_size == 0 && requests <= timing.limits.requests &&
                    (shared + own) * int64_t{block_size} <= timing.limits.positions &&
                    shared + int64_t{requests} * own <= timing.kv.block_count;
  if (!fits) return std::nullopt;
  const Decodes decodes(requests, shared, own, block_size);
  AttentionShape shape{decodes.starts, decodes.contexts,
                       static_cast<int32_t>(timing.limits.heads / layout.kv_heads)};
  shape.piece_keys = timing.piece_keys;
  shape.gate = CascadeGate::always();
  shape.block_size = block_size;
  shape.block_table_stride = decodes.stride;
  if (cascade) shape.block_tables = decodes.tables;
  AttentionPlan plan;
  plan_attention(shape, plan);

  const int64_t heads = timing.limits.heads;
  const auto bytes = static_cast<size_t>(requests * heads * layout.head_dim) * dtype_size(DType::kBFloat16);
  const DeviceScratch q(bytes), out(bytes);
  if (q.data() == nullptr || out.data() == nullptr) return std::nullopt;
  check_cuda(kOp, cudaMemsetAsync(q.data(), 0, bytes, timing.stream));
  AttentionParams params;
  params.q = Tensor::make(q.data(), DType::kBFloat16, {requests, heads, layout.head_dim});
  params.query_starts = decodes.starts;
  params.context_counts = decodes.contexts;
  params.block_tables = decodes.tables;
  params.block_table_stride = decodes.stride;
  params.out = Tensor::make(out.data(), DType::kBFloat16, {requests, heads * layout.head_dim});
  const AttentionIndices indices = indices_on_device(timing.arrays, params);
  float* const partials = timing.partials(partial_floats(plan, timing.kv));
  const PlannedAttention planned = plan_on_device(timing.arrays, plan, partials);
  return seconds_of_launch(kOp, timing.stream,
                           [&] { tile_attention(timing.stream, params, timing.kv, indices, planned); });
}

CascadeGate choose_gate(const DecodeTiming& timing, const std::string& device, Tuning& tuning) {
  const KvLayout& layout = timing.kv.layout;
  const std::string key = absl::StrCat(device, ", cascade, ", timing.limits.heads, " heads of ",
                                       layout.head_dim, ", ", layout.kv_heads, " of keys, blocks of ",
                                       layout.block_size, ", pieces of ", timing.piece_keys, ", up to ",
                                       timing.limits.requests, " requests of ", timing.limits.positions);
  if (const std::string* text = tuning.find(key); text != nullptr) {
    if (const auto known = CascadeGate::parse(*text)) return *known;
  }
  double last = 0;
  const CascadeGate gate = measure_cascade_gate([&](int32_t requests, int32_t keys, bool cascade) {
    const auto seconds = seconds_of_decodes(timing, requests, keys, cascade);
    last = seconds.value_or(last);
    return seconds;
  });
  tuning.put(key, gate.text(), last * 1e6);
  return gate;
}

}  // namespace troupe::cuda
