#include "worker/model/host_need.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace troupe {

namespace {

double size_of(DType dtype) {
  return static_cast<double>(dtype_size(dtype));
}

std::string gib(double bytes) {
  return absl::StrFormat("%.2f GiB", bytes / static_cast<double>(int64_t{1} << 30));
}

double weight_bytes(const HostAsk& ask) {
  const ModelConfig& c = ask.config;
  const auto layers = static_cast<double>(c.layers), hidden = static_cast<double>(c.hidden_size),
             ffn = static_cast<double>(c.intermediate_size), vocabulary = static_cast<double>(c.vocab_size),
             heads = static_cast<double>(c.heads), kv_heads = static_cast<double>(c.kv_heads),
             head_dim = static_cast<double>(c.head_dim);
  const double products =
      layers * hidden * ((2 * heads + 2 * kv_heads) * head_dim + 3 * ffn) + vocabulary * hidden;
  const double each = ask.format == WeightFormat::kInt8 ? 1 : size_of(ask.activation);
  const DType table = ask.made_up && c.dtype != DType::kFloat32 ? DType::kBFloat16 : c.dtype;
  const double norms = (2 * layers + 1) * hidden * size_of(DType::kFloat32);
  return products * each + vocabulary * hidden * size_of(table) + norms;
}

double block_bytes(const HostAsk& ask) {
  return 2.0 * ask.kv.layers * ask.kv.kv_heads * ask.kv.head_dim * ask.kv.block_size *
         size_of(ask.activation);
}

std::string remedy(const HostAsk& ask, const HostNeed& need, double free) {
  if (need.weights > free) {
    const bool is_int8 = ask.format == WeightFormat::kInt8;
    return is_int8 ? "The weights alone are too large: it takes a smaller model"
           : ask.activation == DType::kFloat32
               ? "The weights alone are too large: dtype bfloat16 takes half, quantization int8 a quarter"
               : "The weights alone are too large: quantization int8 takes half";
  }
  const double blocks = (free - need.weights - need.activations) / block_bytes(ask);
  if (blocks < 1)
    return "Lower max_num_batched_tokens or max_num_seqs, which the activations grow with, or max_model_len";
  const auto tokens = static_cast<int64_t>(blocks) * ask.kv.block_size;
  return absl::StrCat("Lower kv_cache_tokens to at most ", tokens);
}

}  // namespace

HostNeed host_need(const HostAsk& ask) {
  return {weight_bytes(ask), Workspace::bytes_for(ask.config, ask.limits, ask.activation),
          static_cast<double>(ask.block_count) * block_bytes(ask)};
}

Status check_host_need(const HostAsk& ask, const HostMemory& host) {
  const HostNeed need = host_need(ask);
  const auto free = static_cast<double>(host.free_bytes);
  if (need.sum() <= free) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("no room in memory: weights take ", gib(need.weights), " (", to_absl(ask.model_dir),
                   "/config.json), activations ", gib(need.activations), " (max_num_batched_tokens ",
                   ask.limits.tokens, ", rows of max_num_seqs ", ask.limits.rows, "), KV ", gib(need.kv),
                   " (kv_cache_tokens ", ask.block_count * ask.kv.block_size, "): ", gib(need.sum()),
                   " in all, and ", gib(free), " are free (", host.source, "). ", remedy(ask, need, free)));
}

}  // namespace troupe
