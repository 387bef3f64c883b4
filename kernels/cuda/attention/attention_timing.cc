#include "kernels/cuda/attention/attention_timing.h"

#include <algorithm>
#include <span>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/attention/kv_map.h"
#include "kernels/cuda/device/check_cuda.h"
#include "kernels/cuda/step/launch_timer.h"

namespace troupe::cuda {

namespace {

constexpr const char* kOp = "attention";
constexpr const char* kLanesName = "lanes";
constexpr const char* kTilesName = "tiles";
constexpr const char* kWarpgroupsName = "warpgroups";
constexpr const char* kInTurnName = "warpgroups in turn";
// Counts up when the kernels change, or what is timed of them: what was measured of others is no answer.
constexpr int kKernels = 3;
constexpr int32_t kPromptKeys = 2048;
constexpr int32_t kOwnKeys = 256;  // of each request of a cascade

// Requests whose tables begin alike and go on apart.
struct Tables {
  std::vector<int32_t> starts, contexts, tables;
  int32_t stride = 0;

  Tables(int32_t requests, int32_t queries, int32_t shared_blocks, int32_t own_blocks, int32_t block_size)
      : stride(shared_blocks + own_blocks) {
    contexts.assign(static_cast<size_t>(requests), stride * block_size);
    for (int32_t r = 0; r <= requests; ++r) starts.push_back(r * queries);
    for (int32_t r = 0; r < requests; ++r) {
      for (int32_t b = 0; b < stride; ++b) tables.push_back(b < shared_blocks ? b : b + r * own_blocks);
    }
  }
};

std::string key_of(const char* what, const AttentionTiming& timing, const std::string& device) {
  const KvLayout& layout = timing.kv.layout;
  return absl::StrCat(device, ", ", what, ", ", timing.limits.heads, " heads of ", layout.head_dim, ", ",
                      layout.kv_heads, " of keys, blocks of ", layout.block_size, ", pieces of ",
                      timing.piece_keys, ", up to ", timing.limits.requests, " requests of ",
                      timing.limits.positions, ", kernels ", kKernels);
}

}  // namespace

std::optional<double> seconds_of(const AttentionTiming& timing, const TimedAttention& what) {
  const KvLayout& layout = timing.kv.layout;
  const int32_t block_size = layout.block_size;
  const int32_t shared = what.shared_keys / block_size, own = (what.own_keys + block_size - 1) / block_size;
  const int64_t tokens = int64_t{what.requests} * what.queries;
  const int64_t keys = (shared + own) * int64_t{block_size};
  const bool fits = what.shared_keys % block_size == 0 && what.requests <= timing.limits.requests &&
                    tokens <= timing.limits.tokens && what.queries <= keys &&
                    keys <= timing.limits.positions &&
                    shared + int64_t{what.requests} * own <= timing.kv.block_count;
  if (!fits) return std::nullopt;
  const Tables tables(what.requests, what.queries, shared, own, block_size);
  AttentionShape shape{tables.starts, tables.contexts,
                       static_cast<int32_t>(timing.limits.heads / layout.kv_heads)};
  shape.piece_keys = timing.piece_keys;
  shape.gate = CascadeGate::always();
  shape.block_size = block_size;
  shape.block_table_stride = tables.stride;
  if (what.cascade) shape.block_tables = tables.tables;
  if (what.kv_map != nullptr) shape.tile_rows = kWarpgroupRows;
  shape.tiles_at_once = tiles_at_once(layout, what.kv_map != nullptr);
  AttentionPlan plan;
  plan_attention(shape, plan);

  const int64_t heads = timing.limits.heads;
  const auto bytes = static_cast<size_t>(tokens * heads * layout.head_dim) * dtype_size(DType::kBFloat16);
  const DeviceScratch q(bytes), out(bytes);
  if (q.data() == nullptr || out.data() == nullptr) return std::nullopt;
  check_cuda(kOp, cudaMemsetAsync(q.data(), 0, bytes, timing.stream));
  AttentionParams params;
  params.q = Tensor::make(q.data(), DType::kBFloat16, {tokens, heads, layout.head_dim});
  params.query_starts = tables.starts;
  params.context_counts = tables.contexts;
  params.block_tables = tables.tables;
  params.block_table_stride = tables.stride;
  params.out = Tensor::make(out.data(), DType::kBFloat16, {tokens, heads * layout.head_dim});
  const AttentionIndices indices = indices_on_device(timing.arrays, params);
  float* const partials = timing.partials(partial_floats(plan, timing.kv));
  PlannedAttention planned = plan_on_device(timing.arrays, plan, partials);
  planned.lanes = what.lanes;
  planned.kv_map = what.kv_map;
  planned.in_turn = what.in_turn;
  return seconds_of_launch(kOp, timing.stream,
                           [&] { attention_mma(timing.stream, params, timing.kv, indices, planned); });
}

namespace {

// The same work by the kernel in question, and by the one that is taken else.
struct Compared {
  TimedAttention asked, otherwise;
};

struct Names {
  const char *asked, *otherwise;
};

// Whether the kernel in question is faster, by the product of the times of all that has room here; as
// `tuning` knows it, or measured now and put there.
bool is_faster(const Names& names, const std::string& key, const AttentionTiming& timing,
               std::span<const Compared> works, Tuning& tuning) {
  if (const std::string* known = tuning.find(key); known != nullptr) return *known == names.asked;
  double asked = 1, otherwise = 1, last = 0;
  for (const Compared& work : works) {
    const auto other = seconds_of(timing, work.otherwise), by_asked = seconds_of(timing, work.asked);
    if (!other || !by_asked) continue;
    asked *= *by_asked;
    otherwise *= *other;
    last = std::min(*by_asked, *other);
  }
  const bool faster = asked < otherwise;
  tuning.put(key, faster ? names.asked : names.otherwise, last * 1e6);
  return faster;
}

bool choose_lanes(const AttentionTiming& timing, const std::string& device, Tuning& tuning) {
  if (!lane_attention_takes(timing.limits.heads, timing.kv.layout)) return false;
  std::vector<Compared> decodes;
  for (const TimedAttention& by_tiles :
       {TimedAttention{.requests = 1, .own_keys = 2048}, TimedAttention{.requests = 8, .own_keys = 1024},
        TimedAttention{.requests = 64, .own_keys = 1024}}) {
    TimedAttention by_lanes = by_tiles;
    by_lanes.lanes = true;
    decodes.push_back({by_lanes, by_tiles});
  }
  return is_faster({kLanesName, kTilesName}, key_of("decode", timing, device), timing, decodes, tuning);
}

// `make(a prompt by warpgroups)` of each that is timed.
template <typename F>
std::vector<Compared> prompts_by_warpgroups(const AttentionTiming& timing, const CUtensorMap& kv_map,
                                            F&& make) {
  const int64_t block_size = timing.kv.layout.block_size;
  const int64_t room =
      std::min<int64_t>({kPromptKeys, timing.limits.positions, timing.kv.block_count * block_size});
  const auto keys = static_cast<int32_t>(room / block_size * block_size);
  const auto queries = static_cast<int32_t>(std::min<int64_t>(keys, timing.limits.tokens));
  std::vector<Compared> prompts;
  for (const int32_t part : {1, 4, 32}) {
    prompts.push_back(
        make(TimedAttention{.queries = std::max(queries / part, 1), .own_keys = keys, .kv_map = &kv_map}));
  }
  return prompts;
}

bool choose_warpgroups(const AttentionTiming& timing, const CUtensorMap& kv_map, const std::string& device,
                       Tuning& tuning) {
  const auto prompts = prompts_by_warpgroups(timing, kv_map, [](const TimedAttention& by_warpgroups) {
    TimedAttention by_tiles = by_warpgroups;
    by_tiles.kv_map = nullptr;
    return Compared{by_warpgroups, by_tiles};
  });
  return is_faster({kWarpgroupsName, kTilesName}, key_of("prefill", timing, device), timing, prompts, tuning);
}

bool choose_turns(const AttentionTiming& timing, const CUtensorMap& kv_map, const std::string& device,
                  Tuning& tuning) {
  const auto prompts = prompts_by_warpgroups(timing, kv_map, [](const TimedAttention& as_it_comes) {
    TimedAttention in_turn = as_it_comes;
    in_turn.in_turn = true;
    return Compared{in_turn, as_it_comes};
  });
  return is_faster({kInTurnName, kWarpgroupsName}, key_of("turns", timing, device), timing, prompts, tuning);
}

CascadeGate choose_gate(const AttentionTiming& timing, bool lanes, const std::string& device,
                        Tuning& tuning) {
  const std::string key = key_of("cascade", timing, device);
  if (const std::string* text = tuning.find(key); text != nullptr) {
    if (const auto known = CascadeGate::parse(*text)) return *known;
  }
  double last = 0;
  const CascadeGate gate = measure_cascade_gate([&](int32_t requests, int32_t keys, bool cascade) {
    const auto seconds = seconds_of(timing, {.requests = requests,
                                             .shared_keys = keys,
                                             .own_keys = kOwnKeys,
                                             .cascade = cascade,
                                             .lanes = lanes});
    last = seconds.value_or(last);
    return seconds;
  });
  tuning.put(key, gate.text(), last * 1e6);
  return gate;
}

}  // namespace

AttentionKernels choose_attention(const AttentionTiming& timing, const BackendOptions& options,
                                  const std::string& device, Tuning& tuning) {
  AttentionKernels kernels;
  if (options.cuda.reference_ops || !tile_attention_takes(options.dtype, timing.kv.layout)) return kernels;
  kernels.lanes = options.cuda.decode == DecodeKernel::kLanes;
  kernels.in_turn = options.cuda.prefill == PrefillKernel::kWarpgroupsInTurn;
  const bool measures = options.cuda.measures && timing.limits.requests > 0;
  const bool has_tiles = options.cuda.prefill == PrefillKernel::kTiles ||
                         (options.cuda.prefill == PrefillKernel::kMeasured && !measures);
  if (!has_tiles) {
    auto map = make_kv_map(timing.kv);
    if (map.ok()) {
      kernels.kv_map = *map;
    } else {
      kernels.shortfall =
          absl::StrCat("prompts by tiles, not by warpgroups, about half as fast: ", map.status().message());
    }
  }
  if (!measures) return kernels;
  if (options.cuda.decode == DecodeKernel::kMeasured) kernels.lanes = choose_lanes(timing, device, tuning);
  const bool measures_tiles = kernels.kv_map && options.cuda.prefill == PrefillKernel::kMeasured;
  if (measures_tiles && !choose_warpgroups(timing, *kernels.kv_map, device, tuning)) kernels.kv_map.reset();
  if (measures_tiles && kernels.kv_map)
    kernels.in_turn = choose_turns(timing, *kernels.kv_map, device, tuning);
  if (options.cuda.cascade) kernels.gate = choose_gate(timing, kernels.lanes, device, tuning);
  return kernels;
}

}  // namespace troupe::cuda
