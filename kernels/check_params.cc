#include "kernels/check_params.h"

#include <string>

#include "kernels/draw_weights.h"
#include "kernels/host/check.h"
#include "kernels/int8.h"

namespace troupe {
namespace {

// `actual` must be `shape` of `dtype`; dies with both printed.
void expect(const char* op, const char* name, const Tensor& actual, const Tensor& expected) {
  if (actual.rank == expected.rank && actual.shape == expected.shape && actual.dtype == expected.dtype)
    return;
  check_failed(op, std::string(name) + " is " + actual.shape_text() + ", expected " + expected.shape_text());
}

Tensor like(DType dtype, std::initializer_list<int64_t> shape) {
  return Tensor::make(nullptr, dtype, shape);
}

void expect_count(const char* op, const char* name, size_t actual, int64_t expected) {
  if (static_cast<int64_t>(actual) == expected) return;
  check_failed(op, std::string(name) + " has " + std::to_string(actual) + " entries, expected " +
                       std::to_string(expected));
}

void expect_index(const char* op, const char* name, int64_t value, int64_t limit) {
  if (value >= 0 && value < limit) return;
  check_failed(op, std::string(name) + " holds " + std::to_string(value) + ", expected [0, " +
                       std::to_string(limit) + ")");
}

// An operand that may be left out: empty, or (count) float32.
void expect_optional(const char* op, const char* name, const Tensor& actual, int64_t count) {
  if (!actual.empty()) expect(op, name, actual, like(DType::kFloat32, {count}));
}

void expect_rank2(const char* op, const char* name, const Tensor& tensor) {
  if (tensor.rank == 2) return;
  check_failed(op, std::string(name) + " is " + tensor.shape_text() + ", expected two dimensions");
}

// Of a step's draws, or 0 where they are left out.
int64_t drawn_count_of(const char* op, const Tensor& drawn) {
  if (drawn.empty()) return 0;
  expect(op, "drawn", drawn, like(DType::kInt32, {drawn.shape[0]}));
  return drawn.shape[0];
}

void expect_bound(const char* op, const BoundKv& kv, int layer) {
  if (kv.data == nullptr) check_failed(op, "bind_kv was not called");
  expect_index(op, "layer", layer, kv.layout.layers);
}

}  // namespace

void check_params(const EmbedParams& params) {
  constexpr const char* kOp = "embed";
  const auto count = static_cast<int64_t>(params.ids.size());
  expect_rank2(kOp, "table", params.table);
  expect(kOp, "out", params.out, like(DType::kFloat32, {count, params.table.shape[1]}));
  const int64_t drawn_count = drawn_count_of(kOp, params.drawn);
  for (int32_t id : params.ids) {
    if (id >= 0) {
      expect_index(kOp, "ids", id, params.table.shape[0]);
    } else {
      expect_index(kOp, "ids' places in drawn", -1 - int64_t{id}, drawn_count);
    }
  }
}

void check_params(const RmsNormParams& params, DType activation) {
  constexpr const char* kOp = "rms_norm";
  expect_rank2(kOp, "x", params.x);
  const int64_t rows = params.x.shape[0];
  const int64_t columns = params.x.shape[1];
  expect(kOp, "x", params.x, like(DType::kFloat32, {rows, columns}));
  expect(kOp, "weight", params.weight, like(DType::kFloat32, {columns}));
  expect(kOp, "out", params.out, like(activation, {rows, columns}));
}

void check_params(const MatmulParams& params, DType activation) {
  constexpr const char* kOp = "matmul";
  if (params.weight == nullptr) check_failed(kOp, "weight is null");
  expect_rank2(kOp, "x", params.x);
  const int64_t rows = params.x.shape[0];
  expect(kOp, "x", params.x, like(activation, {rows, params.weight->columns()}));
  const bool float_out = params.out.dtype == DType::kFloat32;
  expect(kOp, "out", params.out,
         like(float_out ? DType::kFloat32 : activation, {rows, params.weight->rows()}));
  if (params.accumulate && !float_out) {
    check_failed(kOp, "accumulate needs a float32 out, got " + params.out.shape_text());
  }
  expect_optional(kOp, "bias", params.bias, params.weight->rows());
}

void check_params(const RopeKvParams& params, DType activation, const BoundKv& kv) {
  constexpr const char* kOp = "rope_kv";
  expect_bound(kOp, kv, params.layer);
  const int64_t groups = kv.layout.kv_heads;
  const int64_t head_dim = kv.layout.head_dim;
  if (params.q_out.rank != 3)
    check_failed(kOp, "q_out is " + params.q_out.shape_text() + ", expected (T, H, C)");
  const int64_t tokens = params.q_out.shape[0];
  const int64_t heads = params.q_out.shape[1];
  expect(kOp, "q_out", params.q_out, like(activation, {tokens, heads, head_dim}));
  expect(kOp, "qkv", params.qkv, like(activation, {tokens, (heads + 2 * groups) * head_dim}));
  expect_optional(kOp, "q_norm", params.q_norm, head_dim);
  expect_optional(kOp, "k_norm", params.k_norm, head_dim);
  expect_count(kOp, "positions", params.positions.size(), tokens);
  expect_count(kOp, "slots", params.slots.size(), tokens);
  if (!params.cos_sin.empty()) {
    expect_rank2(kOp, "cos_sin", params.cos_sin);
    expect(kOp, "cos_sin", params.cos_sin, like(DType::kFloat32, {params.cos_sin.shape[0], head_dim}));
    for (int32_t position : params.positions) {
      expect_index(kOp, "positions", position, params.cos_sin.shape[0]);
    }
  }
  const int64_t slot_count = kv.block_count * kv.layout.block_size;
  for (int32_t slot : params.slots) expect_index(kOp, "slots", slot, slot_count);
}

void check_params(const AttentionParams& params, DType activation, const BoundKv& kv) {
  constexpr const char* kOp = "attention";
  expect_bound(kOp, kv, params.layer);
  if (params.q.rank != 3) check_failed(kOp, "q is " + params.q.shape_text() + ", expected (T, H, C)");
  const int64_t tokens = params.q.shape[0];
  const int64_t heads = params.q.shape[1];
  expect(kOp, "q", params.q, like(activation, {tokens, heads, kv.layout.head_dim}));
  expect(kOp, "out", params.out, like(activation, {tokens, heads * kv.layout.head_dim}));
  if (heads % kv.layout.kv_heads != 0) {
    check_failed(kOp, "q is " + params.q.shape_text() + ", its heads no multiple of the " +
                          std::to_string(kv.layout.kv_heads) + " key/value heads");
  }
  if (!params.alibi_slopes.empty()) expect_count(kOp, "alibi_slopes", params.alibi_slopes.size(), heads);
  const auto requests = static_cast<int64_t>(params.context_counts.size());
  expect_count(kOp, "query_starts", params.query_starts.size(), requests + 1);
  if (params.query_starts[0] != 0 || params.query_starts[static_cast<size_t>(requests)] != tokens) {
    check_failed(
        kOp, "query_starts does not span [0, " + std::to_string(tokens) + "] for q " + params.q.shape_text());
  }
  for (int64_t r = 0; r < requests; ++r) {
    const auto i = static_cast<size_t>(r);
    const int64_t queries = params.query_starts[i + 1] - params.query_starts[i];
    const int64_t keys = params.context_counts[i];
    if (queries < 0 || queries > keys) {
      check_failed(kOp, "request " + std::to_string(r) + " has " + std::to_string(queries) + " queries and " +
                            std::to_string(keys) + " keys, its queries' own included");
    }
    const int64_t blocks = (keys + kv.layout.block_size - 1) / kv.layout.block_size;
    const int64_t first = r * params.block_table_stride;
    if (blocks > params.block_table_stride ||
        first + blocks > static_cast<int64_t>(params.block_tables.size())) {
      check_failed(kOp, "request " + std::to_string(r) + " needs " + std::to_string(blocks) +
                            " blocks, its table row holds " + std::to_string(params.block_table_stride));
    }
    for (int64_t b = 0; b < blocks; ++b) {
      expect_index(kOp, "block_tables", params.block_tables[static_cast<size_t>(first + b)], kv.block_count);
    }
  }
}

void check_params(const SiluMulParams& params, DType activation) {
  constexpr const char* kOp = "silu_mul";
  expect_rank2(kOp, "out", params.out);
  const int64_t rows = params.out.shape[0];
  const int64_t columns = params.out.shape[1];
  expect(kOp, "out", params.out, like(activation, {rows, columns}));
  expect(kOp, "gate_up", params.gate_up, like(activation, {rows, 2 * columns}));
}

void check_params(const GatedMlpParams& params, DType activation) {
  constexpr const char* kOp = "gated_mlp";
  if (params.gate_up == nullptr || params.down == nullptr) check_failed(kOp, "a weight is null");
  expect_rank2(kOp, "x", params.x);
  const int64_t rows = params.x.shape[0];
  const int64_t width = params.down->columns();
  if (params.gate_up->rows() != 2 * width || params.gate_up->columns() != params.down->rows()) {
    check_failed(kOp, "gate_up is [" + std::to_string(params.gate_up->rows()) + ", " +
                          std::to_string(params.gate_up->columns()) + "], expected [" +
                          std::to_string(2 * width) + ", " + std::to_string(params.down->rows()) + "]");
  }
  expect(kOp, "x", params.x, like(activation, {rows, params.gate_up->columns()}));
  expect(kOp, "sum", params.sum, like(DType::kFloat32, {rows, params.down->rows()}));
  expect(kOp, "mixed", params.mixed, like(activation, {rows, 2 * width}));
  expect(kOp, "gated", params.gated, like(activation, {rows, width}));
  expect_optional(kOp, "gate_up_bias", params.gate_up_bias, 2 * width);
  expect_optional(kOp, "down_bias", params.down_bias, params.down->rows());
}

void check_normed(const char* op, const RmsNormParams& norm, const Tensor& x) {
  if (x.data != norm.out.data) check_failed(op, "x is not the norm's out");
  expect(op, "x", x, norm.out);
}

void check_params(const GatherRowsParams& params) {
  constexpr const char* kOp = "gather_rows";
  expect_rank2(kOp, "x", params.x);
  expect(kOp, "x", params.x, like(DType::kFloat32, {params.x.shape[0], params.x.shape[1]}));
  const auto count = static_cast<int64_t>(params.rows.size());
  expect(kOp, "out", params.out, like(DType::kFloat32, {count, params.x.shape[1]}));
  for (int32_t row : params.rows) expect_index(kOp, "rows", row, params.x.shape[0]);
}

void check_params(const SampleParams& params) {
  constexpr const char* kOp = "sample";
  expect_rank2(kOp, "logits", params.logits);
  const auto count = static_cast<int64_t>(params.rows.size());
  const int64_t vocab = params.logits.shape[1];
  expect(kOp, "logits", params.logits, like(DType::kFloat32, {count, vocab}));
  expect(kOp, "out", params.out, like(DType::kInt32, {count}));
  if (vocab < 1 || vocab > kDrawVocabMax) check_failed(kOp, "logits of " + std::to_string(vocab) + " tokens");
  const int64_t drawn_count = drawn_count_of(kOp, params.drawn);
  if (drawn_count > 0 && params.drawn.data == params.out.data) check_failed(kOp, "drawn is out");
  for (const SampleRow& row : params.rows) {
    for (const LogitEdit& edit : row.edits) expect_index(kOp, "edits", edit.token, vocab);
    if (row.last_drawn >= 0) expect_index(kOp, "last_drawn", row.last_drawn, drawn_count);
  }
}

void check_copies(std::span<const BlockCopy> copies, const BoundKv& kv) {
  constexpr const char* kOp = "copy_blocks";
  expect_bound(kOp, kv, 0);
  for (const BlockCopy& copy : copies) {
    expect_index(kOp, "from", copy.from, kv.block_count);
    expect_index(kOp, "to", copy.to, kv.block_count);
    if (copy.from == copy.to) check_failed(kOp, "block " + std::to_string(copy.to) + " onto itself");
  }
}

void check_kv(const BoundKv& kv) {
  const KvLayout& layout = kv.layout;
  const bool positive =
      layout.layers > 0 && layout.kv_heads > 0 && layout.head_dim > 0 && layout.block_size > 0;
  if (positive && layout.head_dim % 2 == 0 && kv.data != nullptr && kv.block_count > 0) return;
  check_failed("bind_kv", "layers " + std::to_string(layout.layers) + ", kv_heads " +
                              std::to_string(layout.kv_heads) + ", head_dim " +
                              std::to_string(layout.head_dim) + " (even), block_size " +
                              std::to_string(layout.block_size) + ", block_count " +
                              std::to_string(kv.block_count) + " and data must all be given");
}

Status check_weight(const Tensor& weight, WeightFormat format) {
  const bool is_float = weight.dtype != DType::kInt32;
  if (weight.rank != 2 || !is_float || weight.data == nullptr || weight.elements() == 0) {
    return invalid_argument("a weight must be (N, K) in float32, bfloat16 or float16, got " +
                            weight.shape_text());
  }
  if (format == WeightFormat::kInt8 && weight.shape[1] > kInt8DepthMax) {
    return invalid_argument("an int8 weight has at most " + std::to_string(kInt8DepthMax) + " columns, got " +
                            weight.shape_text());
  }
  return {};
}

}  // namespace troupe
