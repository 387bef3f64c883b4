#pragma once

// A block of kThreads as the team of a chain of samplers (chain_samplers.h). Memory is written in each() and
// sort() alone, which begin and end with a barrier: between them threads read what they like.

#include "kernels/chain_samplers.h"
#include "kernels/cuda/ops/row_passes.cuh"

namespace troupe::cuda::draws {

struct BlockTeam {
  Scratch& scratch;
  double* lanes;  // (kSumLanes) in shared memory

  template <typename F>
  __device__ __forceinline__ void each(int n, const F& f) const {
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < n; i += kThreads) f(i);
    __syncthreads();
  }

  template <typename F>
  __device__ __forceinline__ uint64_t sum(int n, const F& f) const {
    Sum64 own = 0;
    for (int i = static_cast<int>(threadIdx.x); i < n; i += kThreads) own += f(i);
    return block_reduce<kThreads>(own, Sum(), scratch.warps);
  }

  // A thread a lane of the sum; its last steps are a warp's butterfly.
  template <typename F>
  __device__ __forceinline__ double ordered_sum(int n, const F& f) const {
    static_assert(chain::kSumLanes == 2 * kWarp);
    const int thread = static_cast<int>(threadIdx.x);
    if (thread < chain::kSumLanes) {
      double own = 0;
      for (int i = thread; i < n; i += chain::kSumLanes) own += f(i);
      lanes[thread] = own;
    }
    __syncthreads();
    const double pair = lanes[thread % kWarp] + lanes[thread % kWarp + kWarp];
    const double result = warp_reduce(pair, Sum());
    __syncthreads();
    return result;
  }

  // A share of the sum for each warp; then every warp looks for itself in the share where it passes.
  template <typename F>
  __device__ int first_passing(int n, uint64_t target, const F& f) const {
    const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
    const int share = (n + kThreads - 1) / kThreads * kWarp;
    Sum64 own = 0;
    for (int i = warp * share + lane; i < min((warp + 1) * share, n); i += kWarp) own += f(i);
    own = warp_reduce(own, Sum());
    if (lane == 0) scratch.warps[warp] = own;
    __syncthreads();
    Sum64 missing = target;
    int passing = 0;
    while (passing < kWarps && scratch.warps[passing] <= missing) missing -= scratch.warps[passing++];
    __syncthreads();
    if (passing == kWarps) return n;
    for (int first = passing * share;; first += kWarp) {
      Sum64 sum = first + lane < n ? f(first + lane) : 0;
#pragma unroll
      for (int distance = 1; distance < kWarp; distance *= 2) {
        const Sum64 lower = __shfl_up_sync(kAllLanes, sum, distance);
        if (lane >= distance) sum += lower;
      }
      const unsigned passed = __ballot_sync(kAllLanes, sum > missing);
      if (passed != 0) return first + __ffs(static_cast<int>(passed)) - 1;
      missing -= __shfl_sync(kAllLanes, sum, kWarp - 1);
    }
  }

  template <typename F>
  __device__ __forceinline__ uint64_t of_one(const F& f) const {
    __syncthreads();
    if (threadIdx.x == 0) scratch.found[0] = f();
    __syncthreads();
    const uint64_t result = scratch.found[0];
    __syncthreads();
    return result;
  }

  // Bitonic. REQUIRES: room for 2 n
  __device__ void sort(uint64_t* tokens, int n) const {
    int size = 1;
    while (size < n) size *= 2;
    __syncthreads();
    for (int i = n + static_cast<int>(threadIdx.x); i < size; i += kThreads) tokens[i] = 0;
    __syncthreads();
    for (int run = 2; run <= size; run *= 2) {
      for (int distance = run / 2; distance > 0; distance /= 2) {
        for (int i = static_cast<int>(threadIdx.x); i < size / 2; i += kThreads) {
          const int lower = (i & ~(distance - 1)) * 2 | (i & (distance - 1));
          const uint64_t a = tokens[lower], b = tokens[lower + distance];
          const bool falls = (lower & run) == 0;
          if ((a < b) != falls) continue;
          tokens[lower] = b;
          tokens[lower + distance] = a;
        }
        __syncthreads();
      }
    }
  }
};

}  // namespace troupe::cuda::draws
