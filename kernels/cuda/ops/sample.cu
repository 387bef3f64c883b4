// out[s] = the token drawn from logits[s] after its edits (sampling.h), the host's to the bit; or kNoDraw
//
// logits (S, V) float32, edited in place · out (S) int32
// A block a row, whatever the batch. Weights are integers (draw_weights.h), so sums may be added up in any
// order, by atomics too. A pass over a row is 4 · V bytes, which L2 has: some 6 µs at V = 150,000 for one
// multiprocessor, if enough of it is on its way: a thread asks for 64 bytes at once. Passes: the best logit;
// the sum of weights; where the sum passes the draw. top_k and top_p look for the worst token that stays,
// three digits of its logit in turn, by counts and by masses of what they see in shared memory; only tokens
// that can still be it are counted there, as thousands of threads would meet in a few bins: for top_k those
// not below the k-th of the threads' own best ones, for top_p those of the cutoff (nucleus_cutoff). A wide
// nucleus or k over the threads pays for all.
//
// Shared memory adds 32 bits at once, 64 only by retries until no thread interferes: a bin is two words, the
// carry is what the lower one's addition gives back, and counts have no upper one. The threads' own best
// share a digit or two: a warp adds up those of one bin before it goes there. Not yet measured on a GPU.

#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/device/ptx.cuh"
#include "kernels/cuda/ops/ops.h"
#include "kernels/draw_weights.h"

namespace troupe::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / kWarp;
// Digits of a key, from the top: 11, 11 and 10 bits.
constexpr int kDigits = 3;
constexpr int kBins = 1 << 11;

using Sum64 = unsigned long long;  // as atomicAdd has it

struct Scratch {
  uint32_t low[kBins], high[kBins];  // of each bin's sum
  Sum64 warps[kWarps];
  Sum64 found[3];
};

// Tokens that stay: those of `rank` and better.
struct Cut {
  Sum64 rank = 0;
  __device__ __forceinline__ bool keeps(uint32_t key, int id) const {
    return draw_rank(key, static_cast<uint32_t>(id)) >= rank;
  }
};

struct Row {
  const float* logits;
  int count;
  float best, scale;

  __device__ __forceinline__ float logit(int id) const { return clean_logit(logits[id]); }
  __device__ __forceinline__ Sum64 weight_of(float logit) const { return draw_weight(logit, best, scale); }
};

// visit(id, logit) of each of a row's tokens, by one thread or another. (Only the first pass may meet NaN.)
template <typename Visit>
__device__ __forceinline__ void visit_tokens(const float* logits, int count, const Visit& visit) {
  constexpr int kWide = 4;
  constexpr int kUnroll = 4;
  using Logits = Piece<float, kWide>;
  const bool whole = count % kWide == 0 && reinterpret_cast<uintptr_t>(logits) % sizeof(Logits) == 0;
  const int pieces = whole ? count / kWide : 0;
  for (int first = threadIdx.x; first < pieces; first += kUnroll * kThreads) {
    Logits of[kUnroll] = {};
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int at = first + u * kThreads;
      if (at < pieces) of[u] = reinterpret_cast<const Logits*>(logits)[at];
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int at = first + u * kThreads;
      if (at >= pieces) break;
#pragma unroll
      for (int c = 0; c < kWide; ++c) visit(at * kWide + c, clean_logit(of[u].values[c]));
    }
  }
  for (int id = pieces * kWide + static_cast<int>(threadIdx.x); id < count; id += kThreads)
    visit(id, clean_logit(logits[id]));
}

struct Worst {
  uint32_t key;       // of the worst that stays
  Sum64 missing;      // of the target, by those of this very key
  Sum64 of_this_key;  // all of them together
  bool found;         // else all together do not reach the target
};

// The first bin, from the highest, at which sums reach `target`: (bin, what is missing before it, its own).
// One warp; all threads read scratch.found after a barrier. bin = kBins: none.
__device__ void find_bin(Sum64 target, Scratch& scratch) {
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
    if (!takes(of)) return;
    const auto lower = static_cast<uint32_t>(amount);
    const uint32_t before = atomicAdd(&scratch.low[bin_of(of)], lower);
    const uint32_t upper = static_cast<uint32_t>(amount >> 32) + (before + lower < before ? 1 : 0);
    if (upper != 0) atomicAdd(&scratch.high[bin_of(of)], upper);
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

// The first id of [0, count) at which the sum of amount(id) passes `target`. REQUIRES: it does.
template <typename Amount>
__device__ int find_passing(int count, Sum64 target, const Amount& amount, Scratch& scratch) {
  int begin = 0, end = count;
  // Each round leaves a warp's share of what is left, until a warp takes it at once.
  while (end - begin > kWarp) {
    const int share = (end - begin + kWarps - 1) / kWarps;
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const int first = min(begin + warp * share, end), last = min(first + share, end);
    Sum64 sum = 0;
    for (int id = first + static_cast<int>(threadIdx.x) % kWarp; id < last; id += kWarp) sum += amount(id);
    sum = warp_reduce(sum, Sum());
    if (threadIdx.x % kWarp == 0) scratch.warps[warp] = sum;
    __syncthreads();
    int passing = 0;
    while (scratch.warps[passing] <= target) target -= scratch.warps[passing++];
    __syncthreads();
    begin = min(begin + passing * share, end);
    end = min(begin + share, end);
  }
  // Few enough for every thread to add up by itself.
  int id = begin;
  for (Sum64 sum = amount(id); sum <= target; sum += amount(id)) ++id;
  return id;
}

// The cut after `worst`: among equals of its key the lowest ids stay, as many as reach its target.
__device__ Cut cut_at(const Worst& worst, Sum64 unit, const Row& row, Scratch& scratch) {
  if (!worst.found) return {};
  const Sum64 kept = (worst.missing + unit - 1) / unit;  // of those with this key
  if (kept * unit >= worst.of_this_key) return {Sum64{worst.key} << 32};
  const auto is_equal = [&](int id) { return Sum64{logit_key(row.logit(id)) == worst.key}; };
  const int last = find_passing(row.count, kept - 1, is_equal, scratch);
  return {draw_rank(worst.key, static_cast<uint32_t>(last))};
}

// The k best. REQUIRES: 0 < k < row.count
__device__ Cut cut_by_count(const Row& row, int k, Scratch& scratch) {
  uint32_t floor = 0;
  if (k <= kThreads && row.count >= 4 * kThreads) {
    uint32_t own_best = 0;
    visit_tokens(row.logits, row.count,
                 [&](int, float logit) { own_best = max(own_best, logit_key(logit)); });
    floor = find_worst([&](const Tally& tally) { tally.count_lanes(own_best); }, k, scratch).key;
  }
  const auto visit = [&](const Tally& tally) {
    visit_tokens(row.logits, row.count, [&](int, float logit) {
      const uint32_t key = logit_key(logit);
      if (key >= floor) tally.count(key, 1);
    });
  };
  return cut_at(find_worst(visit, k, scratch), 1, row, scratch);
}

// The nucleus of what `cut` keeps.
__device__ Cut cut_by_mass(const Row& row, const Cut& cut, float top_p, Scratch& scratch) {
  Sum64 total = 0;
  visit_tokens(row.logits, row.count, [&](int id, float logit) {
    if (cut.keeps(logit_key(logit), id)) total += row.weight_of(logit);
  });
  total = block_reduce<kThreads>(total, Sum(), scratch.warps);
  const Sum64 cutoff = nucleus_cutoff(top_p, total, row.count);
  const auto visit = [&](const Tally& tally) {
    visit_tokens(row.logits, row.count, [&](int id, float logit) {
      const uint32_t key = logit_key(logit);
      if (!cut.keeps(key, id)) return;
      const Sum64 weight = row.weight_of(logit);
      if (weight > 0 && weight >= cutoff) tally.add(key, weight);
    });
  };
  const Worst worst = find_worst(visit, nucleus_target(top_p, total), scratch);
  if (!worst.found) return cut;
  // Some of several equal logits may be cut by count already, never one with a lower id than one that stays.
  uint32_t bits = worst.key;
  float logit;
  bits = (bits & 0x80000000u) != 0 ? bits & 0x7fffffffu : ~bits;
  std::memcpy(&logit, &bits, sizeof(bits));
  const Cut inner = cut_at(worst, draw_weight(logit, row.best, row.scale), row, scratch);
  return {inner.rank > cut.rank ? inner.rank : cut.rank};
}

struct Rows {
  float* logits;
  int32_t* out;
  int32_t count;  // V
  const DeviceDraw* draws;
  const LogitEdit* edits;
  const int32_t* drawn;
};

// Called by the whole block; afterwards the logits are visible to all of it.
__device__ void edit_row(float* logits, const DeviceDraw& draw, const Rows& p) {
  __shared__ bool is_new;  // the last token has no edit yet
  const int32_t last = draw.last_drawn >= 0 ? p.drawn[draw.last_drawn] : -1;
  if (threadIdx.x == 0) is_new = last >= 0;
  __syncthreads();
  for (int i = draw.first_edit + static_cast<int>(threadIdx.x); i < draw.end_edit; i += kThreads) {
    LogitEdit edit = p.edits[i];
    if (edit.token == last) {
      edit = once_more(edit);
      is_new = false;
    }
    logits[edit.token] = edited_logit(logits[edit.token], draw.penalties, edit);
  }
  __syncthreads();
  if (threadIdx.x == 0 && is_new) {
    logits[last] = edited_logit(logits[last], draw.penalties, {.token = last, .emitted_count = 1});
  }
  __syncthreads();
}

__global__ void __launch_bounds__(kThreads) sample_rows(Rows p) {
  __shared__ Scratch scratch;
  await_launch_before();
  float* const logits = p.logits + int64_t{blockIdx.x} * p.count;
  const DeviceDraw draw = p.draws[blockIdx.x];
  edit_row(logits, draw, p);

  Sum64 first = 0;
  visit_tokens(logits, p.count, [&](int id, float logit) {
    first = Max()(first, draw_rank(best_key(logit), static_cast<uint32_t>(id)));
  });
  first = block_reduce<kThreads>(first, Max(), scratch.warps);
  const bool drawable = is_drawable(key_of_rank(first));
  const auto best_id = static_cast<int32_t>(id_of_rank(first));
  Row row{logits, p.count, clean_logit(logits[best_id]), draw.scale};
  if (draw.scale == 0 || !drawable) {
    if (threadIdx.x == 0) p.out[blockIdx.x] = drawable ? best_id : kNoDraw;
    return;
  }

  Cut cut;
  if (draw.top_k > 0 && draw.top_k < p.count) cut = cut_by_count(row, draw.top_k, scratch);
  if (draw.top_p < 1.0f) cut = cut_by_mass(row, cut, draw.top_p, scratch);
  const Sum64 least = least_weight(draw.min_p);
  const auto mass_of = [&](int id, float logit) -> Sum64 {
    const Sum64 weight = row.weight_of(logit);
    return weight >= least && cut.keeps(logit_key(logit), id) ? weight : 0;
  };
  const auto mass = [&](int id) { return mass_of(id, row.logit(id)); };
  Sum64 total = 0;
  visit_tokens(logits, p.count, [&](int id, float logit) { total += mass_of(id, logit); });
  total = block_reduce<kThreads>(total, Sum(), scratch.warps);
  const int id = find_passing(p.count, draw_target(total, draw.random), mass, scratch);
  if (threadIdx.x == 0) p.out[blockIdx.x] = id;
}

}  // namespace

void sample(const LaunchStream& stream, const SampleParams& params, const DeviceDraw* rows,
            const LogitEdit* edits) {
  if (params.rows.empty()) return;
  const Rows p{params.logits.as<float>(),
               params.out.as<int32_t>(),
               static_cast<int32_t>(params.logits.shape[1]),
               rows,
               edits,
               params.drawn.as<const int32_t>()};
  const Grid grid{dim3(static_cast<unsigned>(params.rows.size())), kThreads};
  launch("sample", sample_rows, grid, stream, p);
}

}  // namespace troupe::cuda
