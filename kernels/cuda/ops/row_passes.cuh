#pragma once

// Passes of a draw over a row of logits (sample.cu): its tokens one after another, the worst that stays,
// the one at which a sum passes a number. By one block of kThreads, all of it together.

#include "kernels/cuda/device/device.cuh"
#include "kernels/draw_weights.h"

namespace troupe::cuda::draws {

inline constexpr int kThreads = 512;
inline constexpr int kWarps = kThreads / kWarp;
// Digits of a key, from the top: 11, 11 and 10 bits.
inline constexpr int kDigits = 3;
inline constexpr int kBins = 1 << 11;

using Sum64 = unsigned long long;  // as atomicAdd has it

struct Scratch {
  uint32_t low[kBins], high[kBins];  // of each bin's sum
  Sum64 warps[kWarps];
  Sum64 found[3];
};

// visit(id, logit) of the tokens of [begin, end), by `step` threads of which this is number `at`. (Only a
// row's first pass may meet NaN.) REQUIRES: begin is a multiple of 4
template <typename Visit>
__device__ __forceinline__ void visit_range(const float* logits, int begin, int end, int at, int step,
                                            const Visit& visit) {
  constexpr int kWide = 4;
  constexpr int kUnroll = 4;
  using Logits = Piece<float, kWide>;
  const bool aligned = reinterpret_cast<uintptr_t>(logits) % sizeof(Logits) == 0;
  const int pieces = aligned && end > begin ? (end - begin) / kWide : 0;
  const auto* const from = reinterpret_cast<const Logits*>(logits + begin);
  for (int first = at; first < pieces; first += kUnroll * step) {
    Logits of[kUnroll] = {};
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (first + u * step < pieces) of[u] = from[first + u * step];
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int piece = first + u * step;
      if (piece >= pieces) break;
#pragma unroll
      for (int c = 0; c < kWide; ++c) visit(begin + piece * kWide + c, clean_logit(of[u].values[c]));
    }
  }
  for (int id = begin + pieces * kWide + at; id < end; id += step) visit(id, clean_logit(logits[id]));
}

// The same of a whole row, by the block.
template <typename Visit>
__device__ __forceinline__ void visit_tokens(const float* logits, int count, const Visit& visit) {
  visit_range(logits, 0, count, static_cast<int>(threadIdx.x), kThreads, visit);
}

struct Worst {
  uint32_t key;       // of the worst that stays
  Sum64 missing;      // of the target, by those of this very key
  Sum64 of_this_key;  // all of them together
  bool found;         // else all together do not reach the target
};

// The first bin, from the highest, at which sums reach `target`: (bin, what is missing before it, its own).
// One warp; all threads read scratch.found after a barrier. bin = kBins: none.
__device__ inline void find_bin(Sum64 target, Scratch& scratch) {
  if (threadIdx.x >= kWarp) return;
  const int lane = static_cast<int>(threadIdx.x);
  Sum64 before = 0;
  for (int top = kBins - 1; top >= 0; top -= kWarp) {
    const Sum64 own = Sum64{scratch.high[top - lane]} << 32 | scratch.low[top - lane];
    Sum64 sum = own;  // of the lanes up to this one
#pragma unroll
    for (int distance = 1; distance < kWarp; distance *= 2) {
      const Sum64 lower = __shfl_up_sync(kAllLanes, sum, distance);
      if (lane >= distance) sum += lower;
    }
    const unsigned reached = __ballot_sync(kAllLanes, before + sum >= target);
    if (reached != 0) {
      if (lane == __ffs(static_cast<int>(reached)) - 1) {
        scratch.found[0] = static_cast<Sum64>(top - lane);
        scratch.found[1] = target - (before + sum - own);
        scratch.found[2] = own;
      }
      return;
    }
    before += __shfl_sync(kAllLanes, sum, kWarp - 1);
  }
  if (lane == 0) scratch.found[0] = kBins;
}

__device__ __forceinline__ void add_to_bin(Scratch& scratch, int bin, Sum64 amount) {
  const auto lower = static_cast<uint32_t>(amount);
  const uint32_t before = atomicAdd(&scratch.low[bin], lower);
  const uint32_t upper = static_cast<uint32_t>(amount >> 32) + (before + lower < before ? 1 : 0);
  if (upper != 0) atomicAdd(&scratch.high[bin], upper);
}

// Adds to the bins of one digit what has the digits before it that are known.
struct Tally {
  Scratch& scratch;
  uint32_t key;         // its bits from `known_bit` on
  int known_bit;        // 32: none is known
  int low, digit_bits;  // the digit

  __device__ __forceinline__ bool takes(uint32_t of) const {
    return known_bit == 32 || of >> known_bit == key >> known_bit;
  }
  __device__ __forceinline__ uint32_t bin_of(uint32_t of) const {
    return (of >> low) & ((1u << digit_bits) - 1);
  }
  // The sum over all keys is below 2^32.
  __device__ __forceinline__ void count(uint32_t of, uint32_t amount) const {
    if (takes(of)) atomicAdd(&scratch.low[bin_of(of)], amount);
  }
  __device__ __forceinline__ void add(uint32_t of, Sum64 amount) const {
    if (takes(of)) add_to_bin(scratch, static_cast<int>(bin_of(of)), amount);
  }
  // One of each lane, all of the warp together.
  __device__ __forceinline__ void count_lanes(uint32_t of) const {
    const uint32_t bin = takes(of) ? bin_of(of) : kBins;
    const unsigned same = __match_any_sync(kAllLanes, bin);
    const bool speaks = static_cast<int>(threadIdx.x) % kWarp == __ffs(static_cast<int>(same)) - 1;
    if (speaks && bin != kBins) atomicAdd(&scratch.low[bin], static_cast<uint32_t>(__popc(same)));
  }
};

// The worst key of the smallest set of best tokens whose sum reaches `target` (> 0). `visit(tally)` counts
// each of the thread's tokens.
template <typename Visit>
__device__ Worst find_worst(const Visit& visit, Sum64 target, Scratch& scratch) {
  Worst worst{0, target, 0, true};
  int bits = 32;  // of the key that are not known yet
  for (int digit = 0; digit < kDigits; ++digit) {
    const int digit_bits = digit + 1 < kDigits ? 11 : 10;
    const int low = bits - digit_bits;
    for (int bin = threadIdx.x; bin < kBins; bin += kThreads) scratch.low[bin] = scratch.high[bin] = 0;
    __syncthreads();
    visit(Tally{scratch, worst.key, bits, low, digit_bits});
    __syncthreads();
    find_bin(worst.missing, scratch);
    __syncthreads();
    if (scratch.found[0] == kBins) return {0, 0, 0, false};
    worst.key |= static_cast<uint32_t>(scratch.found[0]) << low;
    worst.missing = scratch.found[1];
    worst.of_this_key = scratch.found[2];
    bits = low;
  }
  return worst;
}

// A row in one piece for each warp.
__device__ __forceinline__ int share_of_warp(int count) {
  return ((count + kWarps - 1) / kWarps + 3) / 4 * 4;
}

// The sum of amount(id, logit) over a row; each warp's share of it is in scratch.warps afterwards.
template <typename Amount>
__device__ Sum64 sum_by_shares(const float* logits, int count, const Amount& amount, Scratch& scratch) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int share = share_of_warp(count);
  const int begin = min(warp * share, count), end = min(begin + share, count);
  Sum64 sum = 0;
  visit_range(logits, begin, end, static_cast<int>(threadIdx.x) % kWarp, kWarp,
              [&](int id, float logit) { sum += amount(id, logit); });
  sum = warp_reduce(sum, Sum());
  if (threadIdx.x % kWarp == 0) scratch.warps[warp] = sum;
  __syncthreads();
  Sum64 total = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) total += scratch.warps[w];
  return total;
}

// The first id at which the sum of amount(id, logit) passes `target`, behind sum_by_shares of the same.
// REQUIRES: it does.
template <typename Amount>
__device__ int find_passing(const float* logits, int count, Sum64 target, const Amount& amount,
                            Scratch& scratch) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const auto amount_of = [&](int id) { return amount(id, clean_logit(logits[id])); };
  int begin = 0, end = count, share = share_of_warp(count);
  // Each round leaves the share of the warp in which the sum passes.
  for (;;) {
    int passing = 0;
    while (scratch.warps[passing] <= target) target -= scratch.warps[passing++];
    __syncthreads();
    begin = min(begin + passing * share, end);
    end = min(begin + share, end);
    if (end - begin <= kWarp) break;
    share = (end - begin + kWarps - 1) / kWarps;
    const int first = min(begin + warp * share, end), last = min(first + share, end);
    Sum64 sum = 0;
    for (int id = first + lane; id < last; id += kWarp) sum += amount_of(id);
    sum = warp_reduce(sum, Sum());
    if (lane == 0) scratch.warps[warp] = sum;
    __syncthreads();
  }
  // As many as a warp has lanes: every warp looks for itself.
  Sum64 sum = begin + lane < end ? amount_of(begin + lane) : 0;
#pragma unroll
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const Sum64 lower = __shfl_up_sync(kAllLanes, sum, distance);
    if (lane >= distance) sum += lower;
  }
  return begin + __ffs(static_cast<int>(__ballot_sync(kAllLanes, sum > target))) - 1;
}

}  // namespace troupe::cuda::draws
