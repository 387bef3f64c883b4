#include "sim/sizing/sizing_profile.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace troupe::sim {

namespace {

using namespace roofline;

constexpr double kGiB = 1 << 30;

// "4.8 TB/s x 0.76 x 4 x 0.85"
std::string rate_text(double sheet, std::string_view unit, double share, int gpus) {
  std::string out = absl::StrFormat("%.5g %s x %.2f", sheet, to_absl(unit), share);
  if (gpus > 1) absl::StrAppend(&out, absl::StrFormat(" x %d x %.2f", gpus, kGroupShare));
  return out;
}

std::string head(const ModelShape& model, const Gpu& gpu, int gpus) {
  std::string out = absl::StrFormat(
      "# %d x %s with %s in bfloat16, weights and KV. DERIVED by troupe-sim plan from the card's data sheet "
      "and\n"
      "# the model's shape, not measured: a roofline with the shares of it that good engines reach. Memory "
      "at %.0f %%\n"
      "# of the sheet's bandwidth (a plain copy reaches 90 %%, kernels 85 %% of that), products at %.0f %% "
      "of its bf16\n"
      "# rate (large ones reach 80 %%, prefill 60 %% of that)",
      gpus, to_absl(gpu.name), model.name, kBandwidthShare * 100, kFlopsShare * 100);
  if (gpus > 1) {
    absl::StrAppend(&out,
                    absl::StrFormat(".\n# %d cards are taken to do %.0f %% of what so many would alone: "
                                    "they exchange activations",
                                    gpus, kGroupShare * 100));
  }
  return out +
         absl::StrFormat(".\n# troupe-sim plan --model %s --gpu %s --gpus-per-node %d --write-profile FILE\n",
                         model.name, to_absl(gpu.name), gpus);
}

std::string length_reason(const ModelShape& model, const NodeProfile& p) {
  if (model.context == 0) return "The model names no limit: what the KV memory holds.";
  if (model.context > p.kv_cache_tokens)
    return absl::StrFormat("What the KV memory holds; the model's own limit is %d.", model.context);
  return "The model's own.";
}

std::string memory_part(const ModelShape& model, const Gpu& gpu, int gpus, const NodeProfile& p) {
  return absl::StrFormat(
      "\n# (%d x (%.5g GiB x %.2f - %.0f GiB of activations) - %.1f GiB of weights) / %.5g KiB a token (%d "
      "layers\n"
      "# x %d KV heads x %d x 2 x 2 bytes).\n"
      "kv_cache_tokens: %d\n"
      "\n# vLLM's usual block.\nblock_size: %d\n"
      "\n# Beyond %d streams a chat's time per token is no pleasure.\nmax_num_seqs: %d\n"
      "\n# vLLM's default for chat: chunks so short that running streams feel one as a hiccup.\n"
      "max_num_batched_tokens: %d\n"
      "\n# %s\nmax_model_len: %d\n",
      gpus, gpu.memory_gib, kMemoryShare, kActivationGib, model.weight_bytes() / kGiB,
      model.kv_bytes_per_token() / 1024, model.layers, model.kv_heads, model.head_dim, p.kv_cache_tokens,
      p.block_size, p.max_num_seqs, p.max_num_seqs, p.max_num_batched_tokens, length_reason(model, p),
      p.max_model_len);
}

std::string step_part(const ModelShape& model, const Gpu& gpu, int gpus, const NodeProfile& p) {
  const std::string bandwidth = rate_text(gpu.bandwidth_tbps, "TB/s", kBandwidthShare, gpus);
  const std::string products = rate_text(gpu.bf16_tflops, "TFLOP/s", kFlopsShare, gpus);
  const double table = static_cast<double>(model.vocab * model.hidden);
  return absl::StrFormat(
      "\nstep:\n"
      "  # Tensor cores work while memory is read: the slower one counts.\n  overlap: max\n"
      "  # Launches, scheduling and sampling between two steps of a good engine: an estimate.\n"
      "  overhead_us: %.5g\n"
      "  # %.2f GB read a step (all weights but the input embedding) / (%s).\n  weights_us: %.5g\n"
      "  # As a prompt token: the same products.\n  decode_token_us: %.5g\n"
      "  # %.5g KiB / (%s).\n  decode_context_ns: %.5g\n"
      "  # The same bytes, once for a chunk of a prompt.\n  prefill_context_ns: %.5g\n"
      "  # 2 x %.4ge9 parameters of the layers / (%s).\n  prefill_token_us: %.5g\n"
      "  # 4 x %d layers x %d FLOP a pair / (%s).\n  prefill_pair_ns: %.5g\n",
      p.costs.overhead_us, 2 * (model.layer_parameters() + table) / 1e9, bandwidth, p.costs.weights_us,
      p.costs.decode_token_us, model.kv_bytes_per_token() / 1024, bandwidth, p.costs.decode_context_ns,
      p.costs.prefill_context_ns, model.layer_parameters() / 1e9, products, p.costs.prefill_token_us,
      model.layers, model.heads * model.head_dim, products, p.costs.prefill_pair_ns);
}

}  // namespace

std::string profile_yaml(const ModelShape& model, const Gpu& gpu, int gpus) {
  const NodeProfile p = derived_profile(model, gpu, gpus);
  return absl::StrCat(head(model, gpu, gpus), memory_part(model, gpu, gpus, p),
                      step_part(model, gpu, gpus, p));
}

}  // namespace troupe::sim
