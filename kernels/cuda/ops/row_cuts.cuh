#pragma once

// The tokens of a row that stay, and where a sum over them passes a number (sample.cu).

#include "kernels/cuda/ops/candidates.cuh"

namespace troupe::cuda::draws {

// Tokens that stay: those of `rank` and better.
struct Cut {
  Sum64 rank = 0;
  __device__ __forceinline__ bool keeps(uint32_t key, int id) const {
    return draw_rank(key, static_cast<uint32_t>(id)) >= rank;
  }
};

// A row's tokens: all of them, or its candidates.
struct Row {
  const float* logits;
  int count;
  float best, scale;
  const Candidates* listed = nullptr;

  __device__ __forceinline__ Sum64 weight_of(float logit) const { return draw_weight(logit, best, scale); }
  template <typename Visit>
  __device__ __forceinline__ void visit(const Visit& of_each) const {
    if (listed != nullptr) {
      listed->visit(of_each);
    } else {
      visit_tokens(logits, count, of_each);
    }
  }
  // The sum of amount(id, logit); and, right behind it, the first id at which the sum passes `target`.
  template <typename Amount>
  __device__ Sum64 sum(const Amount& amount, Scratch& scratch) const {
    if (listed == nullptr) return sum_by_shares(logits, count, amount, scratch);
    Sum64 sum = 0;
    listed->visit([&](int id, float logit) { sum += amount(id, logit); });
    return block_reduce<kThreads>(sum, Sum(), scratch.warps);
  }
  template <typename Amount>
  __device__ int passing(Sum64 target, const Amount& amount, Scratch& scratch) const {
    if (listed != nullptr) return listed->find_passing(target, amount, scratch);
    return find_passing(logits, count, target, amount, scratch);
  }
};

// The cut after `worst`: among equals of its key the lowest ids stay, as many as reach its target.
__device__ inline Cut cut_at(const Worst& worst, Sum64 unit, const Row& row, Scratch& scratch) {
  if (!worst.found) return {};
  const Sum64 kept = (worst.missing + unit - 1) / unit;  // of those with this key
  if (kept * unit >= worst.of_this_key) return {Sum64{worst.key} << 32};
  const auto is_equal = [&](int, float logit) { return Sum64{logit_key(logit) == worst.key}; };
  row.sum(is_equal, scratch);
  const int last = row.passing(kept - 1, is_equal, scratch);
  return {draw_rank(worst.key, static_cast<uint32_t>(last))};
}

}  // namespace troupe::cuda::draws
