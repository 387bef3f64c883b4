#pragma once

// The meaning of every op, in plain loops: one thread, one element at a time, float32 arithmetic in the order
// the formula is written. Nothing here is fast; every fast kernel is held against it. Parameters have been
// checked (kernels/ops) before these are called.

#include <vector>

#include "kernels/host/dense_weight.h"
#include "kernels/kernels.h"

namespace troupe::ref {

// (N, K) bytes and a scale a row (int8.h).
class Int8Weight final : public PackedWeight {
 public:
  explicit Int8Weight(const Tensor& weight);
  int64_t rows() const override { return static_cast<int64_t>(scales_.size()); }
  int64_t columns() const override { return columns_; }
  int64_t bytes() const override { return rows() * (columns_ + 4); }
  WeightFormat format() const override { return WeightFormat::kInt8; }
  const int8_t* row(int64_t n) const { return values_.data() + n * columns_; }
  float scale(int64_t n) const { return scales_[static_cast<size_t>(n)]; }

 private:
  int64_t columns_;
  std::vector<int8_t> values_;
  std::vector<float> scales_;
};

void embed(const EmbedParams& params);
void rms_norm(const RmsNormParams& params);
void matmul(const MatmulParams& params);  // by either kind of weight
void rope_kv(const RopeKvParams& params, const BoundKv& kv);
void attention(const AttentionParams& params, const BoundKv& kv);
void silu_mul(const SiluMulParams& params);
void gather_rows(const GatherRowsParams& params);
void sample(const SampleParams& params);
// A chain's tokens, likeliest first, and a draw from them (sampler_chain.h), in float64.
struct ChainToken {
  int32_t id = 0;
  double probability = 0;
};
std::vector<ChainToken> chain_tokens(std::span<const float> logits, const SampleRow& row);
int32_t draw_by_chain(std::span<const float> logits, const SampleRow& row);
void copy_blocks(std::span<const BlockCopy> copies, DType dtype, const BoundKv& kv);

// The memory of one layer's keys (which = 0) or values (1) of one head in one block: (B, C) of `dtype`.
Tensor kv_tile(const BoundKv& kv, DType dtype, int64_t block, int layer, int which, int64_t head);

}  // namespace troupe::ref
