#include "worker/model/model.h"

#include <algorithm>
#include <initializer_list>
#include <vector>

#include "worker/model/rope.h"

namespace troupe {

namespace {

StatusOr<DeviceTensor> allocate_tensor(Backend& backend, DType dtype, std::initializer_list<int64_t> shape) {
  DeviceTensor result;
  result.tensor = Tensor::make(nullptr, dtype, shape);
  TROUPE_ASSIGN_OR_RETURN(result.buffer, backend.allocate(result.tensor.bytes()));
  result.tensor.data = result.buffer->data();
  return result;
}

}  // namespace

StatusOr<Workspace> Workspace::allocate(const ModelConfig& c, const Limits& limits, Backend& backend) {
  const DType activation = backend.activation_dtype();
  const DType full = DType::kFloat32;
  const int64_t tokens = limits.tokens;
  const int64_t head_rows = std::max(tokens, limits.rows);  // `normed` serves the final norm as well
  Workspace w;
  TROUPE_ASSIGN_OR_RETURN(w.residual, allocate_tensor(backend, full, {tokens, c.hidden_size}));
  TROUPE_ASSIGN_OR_RETURN(w.normed, allocate_tensor(backend, activation, {head_rows, c.hidden_size}));
  TROUPE_ASSIGN_OR_RETURN(
      w.qkv, allocate_tensor(backend, activation, {tokens, (c.heads + 2 * c.kv_heads) * c.head_dim}));
  TROUPE_ASSIGN_OR_RETURN(w.q, allocate_tensor(backend, activation, {tokens, c.heads, c.head_dim}));
  TROUPE_ASSIGN_OR_RETURN(w.attended, allocate_tensor(backend, activation, {tokens, c.heads * c.head_dim}));
  TROUPE_ASSIGN_OR_RETURN(w.gate_up, allocate_tensor(backend, activation, {tokens, 2 * c.intermediate_size}));
  TROUPE_ASSIGN_OR_RETURN(w.gated, allocate_tensor(backend, activation, {tokens, c.intermediate_size}));
  TROUPE_ASSIGN_OR_RETURN(w.gathered, allocate_tensor(backend, full, {limits.rows, c.hidden_size}));
  TROUPE_ASSIGN_OR_RETURN(w.logits, allocate_tensor(backend, full, {limits.rows, c.vocab_size}));
  if (c.rope.type != RopeType::kNone) {
    TROUPE_ASSIGN_OR_RETURN(w.cos_sin, allocate_tensor(backend, full, {limits.positions, c.head_dim}));
    std::vector<float> table(static_cast<size_t>(limits.positions * c.head_dim));
    fill_rope_table(c, Tensor::make(table.data(), full, {limits.positions, c.head_dim}));
    backend.upload(w.cos_sin.tensor.data, table.data(), w.cos_sin.tensor.bytes());
  }
  return w;
}

double Workspace::bytes_for(const ModelConfig& c, const Limits& limits, DType activation) {
  const auto tokens = static_cast<double>(limits.tokens), rows = static_cast<double>(limits.rows),
             hidden = static_cast<double>(c.hidden_size), ffn = static_cast<double>(c.intermediate_size),
             query = static_cast<double>(c.heads) * static_cast<double>(c.head_dim),
             key = static_cast<double>(c.kv_heads) * static_cast<double>(c.head_dim);
  const double full = tokens * hidden + rows * (hidden + static_cast<double>(c.vocab_size));
  const double narrow = std::max(tokens, rows) * hidden + tokens * (3 * query + 2 * key + 3 * ffn);
  const bool rotates = c.rope.type != RopeType::kNone;
  const double table =
      rotates ? static_cast<double>(limits.positions) * static_cast<double>(c.head_dim) : 0.0;
  return (full + table) * static_cast<double>(sizeof(float)) +
         narrow * static_cast<double>(dtype_size(activation));
}

int64_t Workspace::byte_count() const {
  size_t bytes = 0;
  for (const DeviceTensor* t :
       {&residual, &normed, &qkv, &q, &attended, &gate_up, &gated, &gathered, &logits, &cos_sin}) {
    if (!t->tensor.empty()) bytes += t->tensor.bytes();
  }
  return static_cast<int64_t>(bytes);
}

}  // namespace troupe
