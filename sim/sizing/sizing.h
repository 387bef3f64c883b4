#pragma once

// Sizing: the sessions, tokens and requests that a model on one kind of GPU can carry, from the model's shape
// and the card's data sheet: a roofline with the shares of it that good engines reach. For choosing hardware
// before buying; a run of the simulator (with its queues, routing and evictions) is the next step.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/core/status.h"
#include "worker/schedule/node_profile.h"

namespace troupe::sim {

// The shares of a data sheet that good engines reach.
namespace roofline {
inline constexpr double kBandwidthShare = 0.76;  // a plain copy reaches 90 % of it, kernels 85 % of that
inline constexpr double kFlopsShare = 0.48;      // large products reach 80 % of it, prefill 60 % of that
inline constexpr double kGroupShare = 0.85;      // of n GPUs together, for the exchange between them
inline constexpr double kMemoryShare = 0.92;     // gpu_memory_utilization
inline constexpr double kActivationGib = 2;
inline constexpr double kOverheadSeconds = 300e-6;  // launches, scheduling, sampling
inline constexpr int64_t kStreamsMax = 256;
}  // namespace roofline

// A dense decoder with gated MLP; bfloat16 weights and KV.
struct ModelShape {
  std::string name;
  int64_t vocab = 0, hidden = 0, intermediate = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0;
  int64_t context = 0;           // most tokens of prompt and answer; 0: unlimited
  bool tied_embeddings = false;  // the output product is the embedding table

  double layer_parameters() const;  // of all layers
  double weight_bytes() const;
  double kv_bytes_per_token() const;
};
std::vector<std::string> model_shape_names();
// `name_or_dir`: one of these names, or a directory with a Hugging Face config.json. Errors name the key and
// what would be right.
StatusOr<ModelShape> load_model_shape(const std::string& name_or_dir);

struct Gpu {
  std::string_view name;
  double memory_gib;      // visible to programs
  double bandwidth_tbps;  // data sheet
  double bf16_tflops;     // data sheet, dense
  double price_per_hour;  // an assumption, USD
};
const std::vector<Gpu>& known_gpus();

struct Load {
  double rate = 0;  // requests/s of the whole fleet; 0: unspecified
  double prompt_tokens = 2100;
  double hit = 0.85;  // share of the prompt tokens found cached
  double output_tokens = 120;
  double tpot_ms = 30;     // limit of the mean time between tokens
  double headroom = 0.75;  // share of the highest rate to plan with
};

// Figures of a node with that many GPUs.
struct Sizing {
  bool fits = false;  // the weights and one request fit
  int gpus = 0;
  double kv_tokens = 0;
  double sessions = 0;              // concurrent ones of prompt and answer's length
  double prefill_tokens_per_s = 0;  // nothing else running
  double prefill_ms = 0;            // of the missed part of such a prompt: the least TTFT
  double stream_tokens_per_s = 0;   // one alone
  double decode_streams = 0;        // the most inside the limit, nothing else running
  double decode_tokens_per_s = 0;   // of these together
  double requests_per_s = 0;        // prompts and answers mixed, inside the limit
  double price_per_hour = 0;
  double price_per_million = 0;  // answered tokens (prompts cost nothing extra), at that rate with headroom
  int64_t nodes = 0;             // for the load, with headroom; 0: no load
  double fleet_price_per_hour = 0;
};
Sizing size_node(const ModelShape& model, const Gpu& gpu, int gpus, const Load& load);
// Price to compare by, if requests_per_s > 0: of the fleet for the load, or of a token without a load.
double price_of(const Sizing& sizing);
inline constexpr int kGpusOfANode[] = {1, 2, 4, 8};
// Among these numbers of GPUs: the cheapest that keeps the limit, the fewer of two alike. If none keeps it:
// the most that fit.
Sizing cheapest_node(const ModelShape& model, const Gpu& gpu, const Load& load,
                     std::span<const int> of = kGpusOfANode);

// The same machine for the simulator: size_node()'s figures as a profile for replay --profile.
NodeProfile derived_profile(const ModelShape& model, const Gpu& gpu, int gpus);

}  // namespace troupe::sim
