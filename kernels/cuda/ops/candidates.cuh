#pragma once

// The tokens of a row that may be drawn, where they are few: in shared memory, in any order.

#include "kernels/cuda/ops/row_passes.cuh"

namespace troupe::cuda::draws {

// Behind top_k 40 there are some 60; behind top_p .9 of what a language model says some hundred.
inline constexpr int kCandidatesMax = 2048;

struct Candidates {
  uint32_t keys[kCandidatesMax];
  int ids[kCandidatesMax];
  int count;

  // Takes the row's tokens that takes(id, logit). False, for all threads alike: they are too many.
  template <typename Takes>
  __device__ bool collect(const float* logits, int row_count, const Takes& takes) {
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    volatile const int& so_far = count;
    visit_tokens(logits, row_count, [&](int id, float logit) {
      if (!takes(id, logit) || so_far > kCandidatesMax) return;
      const int at = atomicAdd(&count, 1);
      if (at >= kCandidatesMax) return;
      keys[at] = logit_key(logit);
      ids[at] = id;
    });
    __syncthreads();
    const bool fit = count <= kCandidatesMax;
    __syncthreads();
    return fit;
  }

  template <typename Visit>
  __device__ __forceinline__ void visit(const Visit& of_each) const {
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads)
      of_each(ids[i], logit_of_key(keys[i]));
  }

  // The first id at which the sum of amount(id, logit) over the candidates of lower ids and itself passes
  // `target`: two digits of the id in turn, by their sums. REQUIRES: the sum of all does; ids < 2^22
  template <typename Amount>
  __device__ int find_passing(Sum64 target, const Amount& amount, Scratch& scratch) const {
    static_assert(kDrawVocabMax == int64_t{kBins} * kBins);
    int upper = -1;
    Sum64 missing = target + 1;
    for (int digit = 0; digit < 2; ++digit) {
      for (int bin = static_cast<int>(threadIdx.x); bin < kBins; bin += kThreads)
        scratch.low[bin] = scratch.high[bin] = 0;
      __syncthreads();
      // Bins are searched from the highest down.
      visit([&](int id, float logit) {
        if (digit > 0 && id / kBins != upper) return;
        const int place = digit == 0 ? id / kBins : id % kBins;
        add_to_bin(scratch, kBins - 1 - place, amount(id, logit));
      });
      __syncthreads();
      find_bin(missing, scratch);
      __syncthreads();
      const int place = kBins - 1 - static_cast<int>(scratch.found[0]);
      missing = scratch.found[1];
      __syncthreads();
      if (digit == 1) return upper * kBins + place;
      upper = place;
    }
    return -1;
  }
};

}  // namespace troupe::cuda::draws
