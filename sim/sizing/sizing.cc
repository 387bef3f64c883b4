// Arithmetic of a step that decodes b streams of c tokens of context while a share of time goes to prefill:
//
// clang-format off
//   step(b)  = max((weights + b · c · kv_bytes) / bandwidth, b · 2 · parameters / flops) + 0.3 ms
//   prefill  = missed tokens · (2 · parameters + attention to their context) / flops
//   rate(b)  = b / (output · step(b) + b · prefill)         b streams keep the node busy all the time
//   TPOT(b)  = step(b) / (1 − rate(b) · prefill)            prefill stretches every step by its share
// clang-format on
//
// The highest rate is that of the largest b that stays inside the TPOT limit, KV memory and 256 streams. It
// agrees within a few per cent with configs/sim's profile of an H200 (tests hold the two together).

#include "sim/sizing/sizing.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/regular_file.h"
#include "common/json/json.h"

namespace troupe::sim {

namespace {

using namespace roofline;

constexpr double kGiB = 1 << 30;
constexpr double kBytes = 2;  // bfloat16
// Sources: the published config.json of the models; of Qwen2.5 those of the instructed ones.
const std::vector<ModelShape>& shapes() {
  static const std::vector<ModelShape> kShapes{
      {"llama-3.1-8b", 128'256, 4096, 14'336, 32, 32, 8, 128, 131'072, false},
      {"llama-3.1-70b", 128'256, 8192, 28'672, 80, 64, 8, 128, 131'072, false},
      {"llama-2-7b", 32'000, 4096, 11'008, 32, 32, 32, 128, 4'096, false},
      {"llama-2-13b", 32'000, 5120, 13'824, 40, 40, 40, 128, 4'096, false},
      {"qwen2.5-7b", 152'064, 3584, 18'944, 28, 28, 4, 128, 32'768, false},
      {"qwen2.5-14b", 152'064, 5120, 13'824, 48, 40, 8, 128, 32'768, false},
      {"qwen2.5-32b", 152'064, 5120, 27'648, 64, 40, 8, 128, 32'768, false},
  };
  return kShapes;
}

// A positive whole number; `fallback` > 0 if the key may be absent.
StatusOr<int64_t> dimension(const bj::object& config, std::string_view key, int64_t fallback) {
  const bj::value* value = config.if_contains(key);
  if ((value == nullptr || value->is_null()) && fallback > 0) return fallback;
  const std::string where = absl::StrCat("config.json: key '", to_absl(key), "'");
  if (value == nullptr) return invalid_argument(absl::StrCat(where, " is missing"));
  const int64_t* number = value->if_int64();
  if (number == nullptr || *number < 1 || *number > 1'000'000)
    return invalid_argument(absl::StrCat(where, ": must be a whole number from 1 to 1000000"));
  return *number;
}

StatusOr<ModelShape> parse_shape(const bj::value& json) {
  if (!json.is_object()) return invalid_argument("config.json: must be an object");
  const bj::object& config = json.as_object();
  for (const char* key : {"num_experts", "num_local_experts", "n_routed_experts", "kv_lora_rank"}) {
    if (config.contains(key))
      return invalid_argument(absl::StrCat("config.json: key '", key,
                                           "': only dense models are sized, no experts and no "
                                           "latent attention"));
  }
  ModelShape m;
  TROUPE_ASSIGN_OR_RETURN(m.vocab, dimension(config, "vocab_size", 0));
  TROUPE_ASSIGN_OR_RETURN(m.hidden, dimension(config, "hidden_size", 0));
  TROUPE_ASSIGN_OR_RETURN(m.intermediate, dimension(config, "intermediate_size", 0));
  TROUPE_ASSIGN_OR_RETURN(m.layers, dimension(config, "num_hidden_layers", 0));
  TROUPE_ASSIGN_OR_RETURN(m.heads, dimension(config, "num_attention_heads", 0));
  TROUPE_ASSIGN_OR_RETURN(m.kv_heads, dimension(config, "num_key_value_heads", m.heads));
  TROUPE_ASSIGN_OR_RETURN(m.head_dim,
                          dimension(config, "head_dim", std::max<int64_t>(1, m.hidden / m.heads)));
  if (const bj::value* limit = config.if_contains("max_position_embeddings"); limit != nullptr) {
    TROUPE_ASSIGN_OR_RETURN(m.context, dimension(config, "max_position_embeddings", 0));
  }
  if (m.kv_heads > m.heads)
    return invalid_argument("config.json: key 'num_key_value_heads': must be at most num_attention_heads");
  const bj::value* tied = config.if_contains("tie_word_embeddings");
  if (tied != nullptr && !tied->is_bool())
    return invalid_argument("config.json: key 'tie_word_embeddings': must be true or false");
  m.tied_embeddings = tied != nullptr && tied->as_bool();
  return m;
}

// A node of `gpus` cards.
struct Machine {
  double bandwidth, flops, kv_bytes;  // bytes/s, FLOP/s, bytes left for KV
};
Machine machine_of(const ModelShape& model, const Gpu& gpu, int gpus) {
  const double together = gpus * (gpus > 1 ? kGroupShare : 1);
  return {gpu.bandwidth_tbps * 1e12 * kBandwidthShare * together,
          gpu.bf16_tflops * 1e12 * kFlopsShare * together,
          gpus * (gpu.memory_gib * kGiB * kMemoryShare - kActivationGib * kGiB) - model.weight_bytes()};
}

// Weights read by a step: the input embedding is looked up, not read whole; the output product reads all.
double weight_bytes_read(const ModelShape& model) {
  return (model.layer_parameters() + static_cast<double>(model.vocab * model.hidden)) * kBytes;
}

// FLOP of attention per pair of a token and an earlier one.
double pair_flops(const ModelShape& model) {
  return 4 * static_cast<double>(model.layers * model.heads * model.head_dim);
}

double step_seconds(const ModelShape& model, const Machine& machine, double streams, double context) {
  const double read = weight_bytes_read(model) + streams * context * model.kv_bytes_per_token();
  const double products = streams * 2 * model.layer_parameters();
  return std::max(read / machine.bandwidth, products / machine.flops) + kOverheadSeconds;
}

// Time to compute `tokens` behind `cached` others.
double prefill_seconds(const ModelShape& model, const Machine& machine, double tokens, double cached) {
  const double pairs = tokens * (cached + tokens / 2);
  return (tokens * 2 * model.layer_parameters() + pair_flops(model) * pairs) / machine.flops;
}

// The largest number of streams for which `inside` holds, which is monotonic.
template <typename Inside>
int64_t most_streams(int64_t most, Inside&& inside) {
  int64_t low = 0, high = std::max<int64_t>(most, 0);
  while (low < high) {
    const int64_t middle = (low + high + 1) / 2;
    if (inside(static_cast<double>(middle))) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

}  // namespace

double ModelShape::layer_parameters() const {
  const int64_t attention = hidden * head_dim * (2 * heads + 2 * kv_heads);
  return static_cast<double>(layers) *
         static_cast<double>(attention + 3 * hidden * intermediate + 2 * hidden);
}

double ModelShape::weight_bytes() const {
  const double table = static_cast<double>(vocab) * static_cast<double>(hidden);
  return kBytes * (layer_parameters() + table * (tied_embeddings ? 1 : 2));
}

double ModelShape::kv_bytes_per_token() const {
  return kBytes * 2 * static_cast<double>(layers * kv_heads * head_dim);
}

std::vector<std::string> model_shape_names() {
  std::vector<std::string> names;
  for (const ModelShape& shape : shapes()) names.push_back(shape.name);
  return names;
}

StatusOr<ModelShape> load_model_shape(const std::string& name_or_dir) {
  for (const ModelShape& shape : shapes()) {
    if (shape.name == name_or_dir) return shape;
  }
  const std::string path = name_or_dir + "/config.json";
  if (!path_exists(path)) {
    return absl::NotFoundError(absl::StrCat("--model '", name_or_dir,
                                            "': neither a directory with a config.json nor one of ",
                                            absl::StrJoin(model_shape_names(), ", ")));
  }
  TROUPE_ASSIGN_OR_RETURN(const bj::value json, read_json_file(path));
  auto shape = parse_shape(json);
  if (!shape.ok()) return annotate(shape.status(), name_or_dir);
  const std::filesystem::path dir = std::filesystem::path(name_or_dir).lexically_normal();
  shape->name = (dir.has_filename() ? dir : dir.parent_path()).filename().string();
  return shape;
}

// Bandwidth and dense bfloat16 rate: NVIDIA's data sheets (H200 SXM, H100 SXM, A100 80GB SXM, L40S, A10), for
// the RTX 4090 appendix A of the Ada whitepaper (with float32 accumulation). Memory: as nvidia-smi shows it.
// Prices: an assumption in the order of on-demand lists of public GPU clouds in 2025, to be replaced by one's
// own.
const std::vector<Gpu>& known_gpus() {
  static const std::vector<Gpu> kGpus{
      {"H200", 139.0, 4.8, 989.0, 3.60},     {"H100", 79.6, 3.35, 989.0, 2.70},
      {"A100-80", 80.0, 2.039, 312.0, 1.50}, {"L40S", 45.0, 0.864, 362.0, 0.90},
      {"4090", 24.0, 1.008, 165.2, 0.70},    {"A10", 22.5, 0.600, 125.0, 0.75},
  };
  return kGpus;
}

Sizing size_node(const ModelShape& model, const Gpu& gpu, int gpus, const Load& load) {
  const double request_tokens = load.prompt_tokens + load.output_tokens;
  const double context = load.prompt_tokens + load.output_tokens / 2;
  const Machine machine = machine_of(model, gpu, gpus);
  Sizing s;
  s.gpus = gpus;
  s.fits = machine.kv_bytes >= request_tokens * model.kv_bytes_per_token();
  if (!s.fits) return s;
  s.kv_tokens = machine.kv_bytes / model.kv_bytes_per_token();
  s.sessions = std::floor(s.kv_tokens / request_tokens);
  const double missed = std::max(1.0, load.prompt_tokens * (1 - load.hit));
  const double prefill = prefill_seconds(model, machine, missed, load.prompt_tokens - missed);
  s.prefill_ms = (prefill + kOverheadSeconds) * 1e3;
  s.prefill_tokens_per_s = missed / prefill;
  s.stream_tokens_per_s = 1 / step_seconds(model, machine, 1, context);
  s.price_per_hour = s.gpus * gpu.price_per_hour;

  const double limit = load.tpot_ms / 1e3;
  const auto room = static_cast<int64_t>(std::min(s.sessions, static_cast<double>(kStreamsMax)));
  const auto step = [&](double streams) { return step_seconds(model, machine, streams, context); };
  const auto rate = [&](double streams) {
    return streams / (load.output_tokens * step(streams) + streams * prefill);
  };
  s.decode_streams = static_cast<double>(most_streams(room, [&](double b) { return step(b) <= limit; }));
  if (s.decode_streams > 0) s.decode_tokens_per_s = s.decode_streams / step(s.decode_streams);
  const int64_t mixed =
      most_streams(room, [&](double b) { return step(b) <= limit * (1 - rate(b) * prefill); });
  if (mixed > 0) s.requests_per_s = rate(static_cast<double>(mixed));
  if (s.requests_per_s > 0) {
    const double planned = s.requests_per_s * load.headroom;
    s.price_per_million = s.price_per_hour / (planned * load.output_tokens * 3600) * 1e6;
    if (load.rate > 0) s.nodes = static_cast<int64_t>(std::ceil(load.rate / planned));
    s.fleet_price_per_hour = static_cast<double>(s.nodes) * s.price_per_hour;
  }
  return s;
}

double price_of(const Sizing& s) {
  return s.nodes > 0 ? s.fleet_price_per_hour : s.price_per_million;
}

Sizing cheapest_node(const ModelShape& model, const Gpu& gpu, const Load& load, std::span<const int> of) {
  Sizing best;
  for (const int gpus : of) {
    const Sizing s = size_node(model, gpu, gpus, load);
    const bool cheaper = s.requests_per_s > 0 && price_of(s) < price_of(best);
    if (best.requests_per_s > 0 ? cheaper : s.fits) best = s;
  }
  return best;
}

NodeProfile derived_profile(const ModelShape& model, const Gpu& gpu, int gpus) {
  const Machine machine = machine_of(model, gpu, gpus);
  const double product_us = 2 * model.layer_parameters() / machine.flops * 1e6;
  NodeProfile p;
  p.kv_cache_tokens = static_cast<int64_t>(machine.kv_bytes / model.kv_bytes_per_token());
  p.block_size = 16;
  p.max_num_seqs = kStreamsMax;
  p.max_num_batched_tokens = 2048;
  p.max_model_len = model.context > 0 ? std::min(model.context, p.kv_cache_tokens) : p.kv_cache_tokens;
  p.costs.overlaps = true;
  p.costs.overhead_us = kOverheadSeconds * 1e6;
  p.costs.weights_us = weight_bytes_read(model) / machine.bandwidth * 1e6;
  p.costs.decode_token_us = product_us;
  p.costs.decode_context_ns = model.kv_bytes_per_token() / machine.bandwidth * 1e9;
  p.costs.prefill_context_ns = p.costs.decode_context_ns;  // the same bytes
  p.costs.prefill_token_us = product_us;
  p.costs.prefill_pair_ns = pair_flops(model) / machine.flops * 1e9;
  return p;
}

}  // namespace troupe::sim
