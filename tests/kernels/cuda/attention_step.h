#pragma once

// A step of requests for the tests of attention, and how far a result is off. The truth is ref in float32, on
// the same (rounded) numbers.

#include <algorithm>
#include <numeric>

#include "tests/kernels/cuda/cuda_testing.h"

namespace troupe::cuda_testing {

struct Geometry {
  int heads = 4;
  int kv_heads = 2;
  int head_dim = 64;
  int block_size = 16;
  bool slopes = false;  // ALiBi
};

// A request of a step: so many keys, of which the last are its queries. The first `shared` keys (whole
// blocks) lie in the blocks of request `like`.
struct Request {
  int keys, queries;
  int like = -1;
  int shared = 0;
};

inline constexpr int kLayers = 2;
inline constexpr int kLayer = 1;

// A step: q, and KV memory with every request's keys in blocks of its own, scattered; NaN elsewhere.
class Step {
 public:
  Step(const Geometry& g, DType dtype, std::vector<Request> requests, uint32_t seed)
      : geometry_(g),
        requests_(std::move(requests)),
        random_(seed),
        layout_{kLayers, g.kv_heads, g.head_dim, g.block_size},
        q_(dtype, {0, g.heads, g.head_dim}),
        memory_(dtype, {0}) {
    for (const Request& r : requests_) {
      starts_.push_back(starts_.back() + r.queries);
      contexts_.push_back(r.keys);
      stride_ = std::max(stride_, blocks_of(r));
    }
    std::vector<int32_t> order(static_cast<size_t>(block_count()));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    for (const Request& r : requests_) {
      const int32_t others = r.shared / g.block_size;
      const int32_t own = blocks_of(r) - others;
      if (others > 0) {
        const std::vector<int32_t> like(tables_.begin() + r.like * stride_,
                                        tables_.begin() + r.like * stride_ + others);
        tables_.insert(tables_.end(), like.begin(), like.end());
      }
      tables_.insert(tables_.end(), order.end() - own, order.end());
      order.resize(order.size() - static_cast<size_t>(own));
      tables_.resize(tables_.size() + static_cast<size_t>(stride_ - blocks_of(r)), -1);
    }
    q_ = OwnedTensor::random(dtype, {tokens(), g.heads, g.head_dim}, random_);
    memory_ = OwnedTensor(dtype, {block_count() * layout_.block_elements()});
    for (int64_t i = 0; i < memory_.elements(); ++i) set_element(memory_.view(), i, std::nanf(""));
    std::normal_distribution<float> normal;
    for (size_t r = 0; r < requests_.size(); ++r) {
      for (int64_t k = 0; k < requests_[r].keys; ++k) {
        for (int64_t which = 0; which < 2; ++which) {
          for (int64_t c = 0; c < int64_t{g.kv_heads} * g.head_dim; ++c) {
            set_element(memory_.view(), place(r, k, which, c), normal(random_) * (which == 0 ? 1.5f : 1.0f));
          }
        }
      }
    }
    for (int h = 1; g.slopes && h <= g.heads; ++h) {
      slopes_.push_back(std::exp2(-8.0f * static_cast<float>(h) / static_cast<float>(g.heads)));
    }
  }

  int64_t tokens() const { return starts_.back(); }
  int64_t width() const { return int64_t{geometry_.heads} * geometry_.head_dim; }
  // Element of key (which = 0) or value (1) number k of a request: c over its heads and dims.
  int64_t place(size_t request, int64_t k, int64_t which, int64_t c) const {
    const int64_t b = geometry_.block_size;
    const int64_t block = tables_[request * static_cast<size_t>(stride_) + static_cast<size_t>(k / b)];
    const int64_t head = (int64_t{kLayer} * geometry_.kv_heads + c / geometry_.head_dim) * 2 + which;
    return block * layout_.block_elements() + (head * b + k % b) * geometry_.head_dim +
           c % geometry_.head_dim;
  }
  const OwnedTensor& memory() const { return memory_; }
  // A request becomes another step's of the same length: its queries, from that one's `first` on, and its
  // keys and values.
  void take(size_t request, const Step& other, size_t others, int64_t first = 0) {
    const int64_t queries = requests_[request].queries;
    std::memcpy(q_.rows(starts_[request], queries).data,
                other.q_.rows(other.starts_[others] + first, queries).data, q_.rows(0, queries).bytes());
    for (int64_t k = 0; k < requests_[request].keys; ++k) {
      for (int64_t i = 0; i < 2 * int64_t{geometry_.kv_heads} * geometry_.head_dim; ++i) {
        set_element(memory_.view(), place(request, k, i % 2, i / 2),
                    static_cast<float>(other.memory_.at(other.place(others, k, i % 2, i / 2))));
      }
    }
  }

  void attend(Backend& backend, const OwnedTensor& q, const OwnedTensor& memory, const Tensor& out) const {
    backend.bind_kv(layout_, memory.view().data, block_count());
    // Unused entries of a table are not looked at: -1 would be refused.
    backend.attention({.q = q.view(),
                       .query_starts = starts_,
                       .context_counts = contexts_,
                       .block_tables = tables_,
                       .block_table_stride = stride_,
                       .layer = kLayer,
                       .scale = 1.0f / std::sqrt(static_cast<float>(geometry_.head_dim)),
                       .out = out,
                       .alibi_slopes = slopes_});
  }
  OwnedTensor on(Backend& backend) const {
    return in_every_order(backend.activation_dtype(), {tokens(), width()},
                          [&](const Tensor& out) { attend(backend, q_, memory_, out); });
  }
  // The result in float32; `magnitudes`: of absolute values, the scale of each weighted sum.
  OwnedTensor truth(bool magnitudes) const {
    const auto backend = make_ref(DType::kFloat32);
    OwnedTensor memory = as_float(memory_);
    for (size_t r = 0; magnitudes && r < requests_.size(); ++r) {
      for (int64_t k = 0; k < requests_[r].keys; ++k) {
        for (int64_t c = 0; c < int64_t{geometry_.kv_heads} * geometry_.head_dim; ++c) {
          const int64_t at = place(r, k, 1, c);
          set_element(memory.view(), at, static_cast<float>(std::abs(memory.at(at))));
        }
      }
    }
    OwnedTensor out(DType::kFloat32, {tokens(), width()});
    attend(*backend, as_float(q_), memory, out.view());
    return out;
  }

 private:
  int32_t blocks_of(const Request& r) const {
    return (r.keys + geometry_.block_size - 1) / geometry_.block_size;
  }
  int64_t block_count() const {
    int64_t count = 3;  // and some that no request has
    for (const Request& r : requests_) count += blocks_of(r);
    return count;
  }
  static OwnedTensor as_float(const OwnedTensor& tensor) {
    const Tensor v = tensor.view();
    auto result = v.rank == 3 ? OwnedTensor(DType::kFloat32, {v.shape[0], v.shape[1], v.shape[2]})
                              : OwnedTensor(DType::kFloat32, {v.shape[0]});
    for (int64_t i = 0; i < result.elements(); ++i) set_element(result.view(), i, element(v, i));
    return result;
  }

  Geometry geometry_;
  std::vector<Request> requests_;
  std::mt19937 random_;
  KvLayout layout_;
  std::vector<int32_t> starts_{0}, contexts_, tables_;
  int32_t stride_ = 0;
  std::vector<float> slopes_;
  OwnedTensor q_;
  OwnedTensor memory_;
};

// float32: sums in other orders. bfloat16 by tensor cores: a weight is rounded before it meets its value (as
// in PyTorch's and FlashAttention's), half a unit in the last place each, and out once.
inline std::optional<std::string> off_by(const Step& step, const OwnedTensor& out) {
  const OwnedTensor truth = step.truth(false);
  const OwnedTensor magnitude = step.truth(true);
  const double epsilon = epsilon_of(out.view().dtype);
  return difference(out, truth, [&](int64_t i) {
    return (64 * kFloatEpsilon + 1.1 * epsilon) * magnitude.at(i) + 1.1 * epsilon * std::abs(truth.at(i));
  });
}

}  // namespace troupe::cuda_testing
