#include "worker/model/layers.h"

#include <cmath>

namespace troupe {

Tensor first_rows(const DeviceTensor& tensor, int64_t count) {
  Tensor view = tensor.tensor;
  view.shape[0] = count;
  return view;
}

StatusOr<Embedding> Embedding::load(const ModelConfig& config, const std::string& name,
                                    WeightLoader& weights) {
  Embedding result;
  TROUPE_ASSIGN_OR_RETURN(result.table,
                          weights.table(name + ".weight", config.vocab_size, config.hidden_size));
  return result;
}

void Embedding::to_residual(const Context& context) const {
  context.backend.embed({.ids = context.step.ids,
                         .table = table.tensor,
                         .out = first_rows(context.workspace.residual, context.step.token_count()),
                         .drawn = context.step.drawn});
}

StatusOr<RmsNorm> RmsNorm::load(const ModelConfig& config, const std::string& name, WeightLoader& weights) {
  RmsNorm result;
  TROUPE_ASSIGN_OR_RETURN(result.weight, weights.vector(name + ".weight", config.hidden_size));
  result.epsilon = static_cast<float>(config.rms_norm_eps);
  return result;
}

RmsNormParams RmsNorm::of(const Context& context, const Tensor& x) const {
  const Tensor out = first_rows(context.workspace.normed, x.shape[0]);
  return {.x = x, .weight = weight.tensor, .epsilon = epsilon, .out = out};
}

StatusOr<Linear> Linear::load(std::span<const LinearPart> parts, const Options& options,
                              WeightLoader& weights) {
  Linear result;
  TROUPE_ASSIGN_OR_RETURN(result.weight, weights.linear(parts, options.columns));
  if (options.bias) {
    TROUPE_ASSIGN_OR_RETURN(result.bias, weights.bias(parts));
  }
  return result;
}

void Linear::apply(const Context& context, const RmsNormParams& norm, const Tensor& out) const {
  context.backend.normed_matmul(norm,
                                {.x = norm.out, .weight = weight.get(), .out = out, .bias = bias.tensor});
}

void Linear::add_to(const Context& context, const Tensor& x, const Tensor& sum) const {
  context.backend.matmul(
      {.x = x, .weight = weight.get(), .out = sum, .accumulate = true, .bias = bias.tensor});
}

StatusOr<Attention> Attention::load(const ModelConfig& config, int layer, const Parts& parts,
                                    WeightLoader& weights) {
  Attention result;
  result.layer = layer;
  result.head_dim = config.head_dim;
  const int64_t q_rows = config.heads * config.head_dim;
  const int64_t kv_rows = config.kv_heads * config.head_dim;
  const auto name = [&](const char* module) { return parts.prefix + module; };
  std::vector<LinearPart> qkv{{name("q_proj"), q_rows}, {name("k_proj"), kv_rows}, {name("v_proj"), kv_rows}};
  if (parts.packed_qkv) qkv = {{name("W_pack"), q_rows + 2 * kv_rows}};
  TROUPE_ASSIGN_OR_RETURN(
      result.qkv, Linear::load(qkv, {.columns = config.hidden_size, .bias = parts.qkv_bias}, weights));
  const LinearPart out{name("o_proj"), config.hidden_size};
  TROUPE_ASSIGN_OR_RETURN(result.out,
                          Linear::load({&out, 1}, {.columns = q_rows, .bias = parts.out_bias}, weights));
  if (parts.head_norms) {
    TROUPE_ASSIGN_OR_RETURN(result.q_norm, weights.vector(name("q_norm.weight"), config.head_dim));
    TROUPE_ASSIGN_OR_RETURN(result.k_norm, weights.vector(name("k_norm.weight"), config.head_dim));
    result.norm_epsilon = static_cast<float>(config.rms_norm_eps);
  }
  if (config.rope.type == RopeType::kNone) result.alibi_slopes = troupe::alibi_slopes(config.heads);
  return result;
}

void Attention::add_to_residual(const Context& context, const RmsNormParams& norm) const {
  const Step& step = context.step;
  const Workspace& w = context.workspace;
  const int64_t tokens = step.token_count();
  const Tensor mixed = first_rows(w.qkv, tokens);
  const Tensor q = first_rows(w.q, tokens);
  const Tensor attended = first_rows(w.attended, tokens);
  qkv.apply(context, norm, mixed);
  context.backend.rope_kv({.qkv = mixed,
                           .cos_sin = w.cos_sin.tensor,
                           .positions = step.positions,
                           .slots = step.slots,
                           .layer = layer,
                           .q_out = q,
                           .q_norm = q_norm.tensor,
                           .k_norm = k_norm.tensor,
                           .norm_epsilon = norm_epsilon});
  context.backend.attention({.q = q,
                             .query_starts = step.query_starts,
                             .context_counts = step.context_counts,
                             .block_tables = step.block_tables,
                             .block_table_stride = step.block_table_stride,
                             .layer = layer,
                             .scale = 1.0f / std::sqrt(static_cast<float>(head_dim)),
                             .out = attended,
                             .alibi_slopes = alibi_slopes});
  out.add_to(context, attended, first_rows(w.residual, tokens));
}

std::vector<float> alibi_slopes(int64_t heads) {
  int64_t below = 1;
  while (below * 2 <= heads) below *= 2;
  std::vector<float> slopes;
  const auto slope = [](int64_t index, int64_t count) {
    return static_cast<float>(std::exp2(-8.0 * static_cast<double>(index) / static_cast<double>(count)));
  };
  for (int64_t i = 1; i <= below; ++i) slopes.push_back(slope(i, below));
  for (int64_t i = 1; static_cast<int64_t>(slopes.size()) < heads; i += 2) {
    slopes.push_back(slope(i, 2 * below));
  }
  return slopes;
}

StatusOr<GatedMlp> GatedMlp::load(const ModelConfig& config, const std::string& prefix, bool bias,
                                  WeightLoader& weights) {
  GatedMlp result;
  const int64_t width = config.intermediate_size;
  const std::vector<LinearPart> gate_up{{prefix + "gate_proj", width}, {prefix + "up_proj", width}};
  const LinearPart down{prefix + "down_proj", config.hidden_size};
  TROUPE_ASSIGN_OR_RETURN(result.gate_up,
                          Linear::load(gate_up, {.columns = config.hidden_size, .bias = bias}, weights));
  TROUPE_ASSIGN_OR_RETURN(result.down, Linear::load({&down, 1}, {.columns = width, .bias = bias}, weights));
  return result;
}

void GatedMlp::add_to_residual(const Context& context, const RmsNormParams& norm) const {
  const Workspace& w = context.workspace;
  const int64_t tokens = context.step.token_count();
  context.backend.normed_gated_mlp(norm, {.x = norm.out,
                                          .gate_up = gate_up.weight.get(),
                                          .down = down.weight.get(),
                                          .sum = first_rows(w.residual, tokens),
                                          .mixed = first_rows(w.gate_up, tokens),
                                          .gated = first_rows(w.gated, tokens),
                                          .gate_up_bias = gate_up.bias.tensor,
                                          .down_bias = down.bias.tensor});
}

StatusOr<LmHead> LmHead::load(const ModelConfig& config, const std::string& name, bool unit_rows,
                              WeightLoader& weights) {
  LmHead result;
  const LinearPart part{name, config.vocab_size};
  if (unit_rows) {
    TROUPE_ASSIGN_OR_RETURN(result.weight, weights.unit_rows(part, config.hidden_size));
  } else {
    TROUPE_ASSIGN_OR_RETURN(result.weight, weights.linear({&part, 1}, config.hidden_size));
  }
  return result;
}

Tensor LmHead::logits(const Context& context, const RmsNormParams& norm) const {
  const Tensor out = first_rows(context.workspace.logits, norm.out.shape[0]);
  context.backend.normed_matmul(norm, {.x = norm.out, .weight = weight.get(), .out = out});
  return out;
}

}  // namespace troupe
