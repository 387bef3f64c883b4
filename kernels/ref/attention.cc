// rope_kv and attention: the two ops that know where a token's keys and values lie.
//
// norm: x[i] / sqrt(mean(x²) + epsilon) · weight[i] over one head's C, where there is a weight
// rope: the pair (x[i], x[i + C/2]) is turned by the angle of position p and frequency i:
//   y[i] = x[i]·cos - x[i + C/2]·sin,   y[i + C/2] = x[i + C/2]·cos + x[i]·sin        (Transformers'
//   rotate_half)
// attention of query t at position p:  s[j] = scale · q·k[j] + slope · (j - p), j in [0, p];
//   out = Σ_j softmax(s)[j] · v[j]

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/ref/ref.h"

namespace troupe::ref {
namespace {

// One head: (C) at flat index `from` of the qkv to flat index `to` of `out`.
struct Head {
  int64_t from;
  const Tensor& out;
  int64_t to;
  const Tensor& norm;  // (C) or empty
  int64_t position;
};

// The head in float32, normed where it has a norm.
std::vector<float> normed(const RopeKvParams& params, const Head& head, int64_t head_dim) {
  std::vector<float> x;
  float squares = 0;
  for (int64_t c = 0; c < head_dim; ++c) {
    x.push_back(element(params.qkv, head.from + c));
    squares += x.back() * x.back();
  }
  if (head.norm.empty()) return x;
  const float scale = 1.0f / std::sqrt(squares / static_cast<float>(head_dim) + params.norm_epsilon);
  for (int64_t c = 0; c < head_dim; ++c) x[static_cast<size_t>(c)] *= scale * element(head.norm, c);
  return x;
}

void norm_and_rotate(const RopeKvParams& params, const Head& head, int64_t head_dim) {
  const std::vector<float> x = normed(params, head, head_dim);
  const int64_t half = head_dim / 2;
  for (int64_t i = 0; i < half; ++i) {
    const bool turns = !params.cos_sin.empty();
    const float cosine = turns ? element(params.cos_sin, head.position * head_dim + i) : 1.0f;
    const float sine = turns ? element(params.cos_sin, head.position * head_dim + half + i) : 0.0f;
    const float a = x[static_cast<size_t>(i)];
    const float b = x[static_cast<size_t>(half + i)];
    set_element(head.out, head.to + i, a * cosine - b * sine);
    set_element(head.out, head.to + half + i, b * cosine + a * sine);
  }
}

// One query row against its keys. `scores` has room for every key.
struct Query {
  int64_t row;   // of q
  int64_t head;  // of H
  int64_t key_count;
  std::span<const int32_t> blocks;
};

void attend(const AttentionParams& params, const BoundKv& kv, const Query& query,
            std::vector<float>& scores) {
  const int64_t head_dim = kv.layout.head_dim;
  const int64_t block_size = kv.layout.block_size;
  const int64_t heads = params.q.shape[1];
  const int64_t group = query.head / (heads / kv.layout.kv_heads);
  const int64_t at = (query.row * heads + query.head) * head_dim;
  const DType dtype = params.q.dtype;
  float largest = -INFINITY;
  for (int64_t j = 0; j < query.key_count; ++j) {
    const int64_t block = query.blocks[static_cast<size_t>(j / block_size)];
    const Tensor keys = kv_tile(kv, dtype, block, params.layer, 0, group);
    float dot = 0;
    for (int64_t c = 0; c < head_dim; ++c) {
      dot += element(params.q, at + c) * element(keys, j % block_size * head_dim + c);
    }
    float score = dot * params.scale;
    if (!params.alibi_slopes.empty()) {
      const int64_t position = query.key_count - 1;
      score += params.alibi_slopes[static_cast<size_t>(query.head)] * static_cast<float>(j - position);
    }
    scores[static_cast<size_t>(j)] = score;
    largest = std::max(largest, score);
  }
  std::vector<float> sums(static_cast<size_t>(head_dim), 0.0f);
  float total = 0;
  for (int64_t j = 0; j < query.key_count; ++j) {
    const int64_t block = query.blocks[static_cast<size_t>(j / block_size)];
    const Tensor values = kv_tile(kv, dtype, block, params.layer, 1, group);
    const float weight = std::exp(scores[static_cast<size_t>(j)] - largest);
    total += weight;
    for (int64_t c = 0; c < head_dim; ++c) {
      sums[static_cast<size_t>(c)] += weight * element(values, j % block_size * head_dim + c);
    }
  }
  for (int64_t c = 0; c < head_dim; ++c) {
    set_element(params.out, at + c, sums[static_cast<size_t>(c)] / total);
  }
}

}  // namespace

Tensor kv_tile(const BoundKv& kv, DType dtype, int64_t block, int layer, int which, int64_t head) {
  const KvLayout& layout = kv.layout;
  const int64_t tile = int64_t{layout.block_size} * layout.head_dim;
  const int64_t index =
      block * layout.block_elements() + ((layer * layout.kv_heads + head) * 2 + which) * tile;
  char* data = static_cast<char*>(kv.data) + index * static_cast<int64_t>(dtype_size(dtype));
  return Tensor::make(data, dtype, {layout.block_size, layout.head_dim});
}

void rope_kv(const RopeKvParams& params, const BoundKv& kv) {
  const int64_t head_dim = kv.layout.head_dim;
  const int64_t groups = kv.layout.kv_heads;
  const int64_t heads = params.q_out.shape[1];
  const DType dtype = params.qkv.dtype;
  for (size_t t = 0; t < params.positions.size(); ++t) {
    const int64_t q = static_cast<int64_t>(t) * (heads + 2 * groups) * head_dim;
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t to = (static_cast<int64_t>(t) * heads + h) * head_dim;
      norm_and_rotate(params, {q + h * head_dim, params.q_out, to, params.q_norm, params.positions[t]},
                      head_dim);
    }
    const int64_t block = params.slots[t] / kv.layout.block_size;
    const int64_t to = params.slots[t] % kv.layout.block_size * head_dim;
    for (int64_t g = 0; g < groups; ++g) {
      const Tensor keys = kv_tile(kv, dtype, block, params.layer, 0, g);
      const Tensor values = kv_tile(kv, dtype, block, params.layer, 1, g);
      const int64_t k = q + (heads + g) * head_dim;
      const int64_t v = q + (heads + groups + g) * head_dim;
      norm_and_rotate(params, {k, keys, to, params.k_norm, params.positions[t]}, head_dim);
      for (int64_t c = 0; c < head_dim; ++c) set_element(values, to + c, element(params.qkv, v + c));
    }
  }
}

void attention(const AttentionParams& params, const BoundKv& kv) {
  for (size_t r = 0; r < params.context_counts.size(); ++r) {
    const int64_t keys = params.context_counts[r];
    const int64_t queries = params.query_starts[r + 1] - params.query_starts[r];
    std::vector<float> scores(static_cast<size_t>(keys));
    const auto stride = static_cast<size_t>(params.block_table_stride);
    const auto blocks = params.block_tables.subspan(r * stride, stride);
    for (int64_t i = 0; i < queries; ++i) {
      for (int64_t h = 0; h < params.q.shape[1]; ++h) {
        attend(params, kv, {params.query_starts[r] + i, h, keys - queries + i + 1, blocks}, scores);
      }
    }
  }
}

}  // namespace troupe::ref
