// out[s] = the token drawn from logits[s] after its edits and under its mask (sampling.h), the host's to the
// bit; or kNoDraw
//
// logits (S, V) float32, edited in place · mask a bit a token, V / 8 bytes · out (S) int32
// A block a row, whatever the batch. Weights are integers (draw_weights.h), so sums may be added up in any
// order, by atomics too. A pass over a row is 4 · V bytes, which L2 has: some 10 µs at V = 128,256 for one
// multiprocessor, with 64 bytes of each thread on their way at once. Passes: the best logit; with top_p the
// sum of weights; the tokens that may be drawn, which come to shared memory (candidates.cuh) where they are
// not too many: for top_k those not below the k-th of the threads' own best ones, which the first pass
// leaves; for top_p those of the cutoff (nucleus_cutoff), for min_p its own. All that follows is among those:
// top_k and top_p look for the worst token that stays, three digits of its logit in turn, by counts and by
// masses; then the sum, and where it passes the draw. Without any of the three, or with too many candidates
// (a flat distribution), each of these is a pass over the row.
//
// Shared memory adds 32 bits at once, 64 only by retries until no thread interferes: a bin is two words, the
// carry is what the lower one's addition gives back, and counts have no upper one. The threads' own best
// share a digit or two: a warp adds up those of one bin before it goes there.

#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/device/ptx.cuh"
#include "kernels/cuda/ops/edit_row.cuh"
#include "kernels/cuda/ops/ops.h"
#include "kernels/cuda/ops/row_cuts.cuh"
#include "kernels/draw_weights.h"

namespace troupe::cuda {
namespace draws {
namespace {

// Tokens of at least a 2^13th of the mass: what a language model says has some hundred.
constexpr int kCommonBits = 13;

// The k best; the row's candidates are listed where they can be. own_best: the greatest key of the tokens
// that a thread visits. REQUIRES: 0 < k < row.count
__device__ Cut cut_by_count(Row& row, int k, uint32_t own_best, Candidates& candidates, Scratch& scratch) {
  if (k <= kThreads && row.count >= 4 * kThreads) {
    const uint32_t floor =
        find_worst([&](const Tally& tally) { tally.count_lanes(own_best); }, k, scratch).key;
    const auto takes = [&](int, float logit) { return logit_key(logit) >= floor; };
    if (candidates.collect(row.logits, row.count, takes)) row.listed = &candidates;
  }
  const auto visit = [&](const Tally& tally) {
    row.visit([&](int, float logit) { tally.count(logit_key(logit), 1); });
  };
  return cut_at(find_worst(visit, k, scratch), 1, row, scratch);
}

// The nucleus of what `cut` keeps; the row's candidates are listed where they can be.
__device__ Cut cut_by_mass(Row& row, const Cut& cut, float top_p, Candidates& candidates, Scratch& scratch) {
  const auto weight_kept = [&](int id, float logit) -> Sum64 {
    return cut.keeps(logit_key(logit), id) ? row.weight_of(logit) : 0;
  };
  const Sum64 total = row.sum(weight_kept, scratch);
  const Sum64 target = nucleus_target(top_p, total);
  const Sum64 cutoff = nucleus_cutoff(top_p, total, row.count);
  const auto worst_of = [&](Sum64 least) {
    const auto visit = [&](const Tally& tally) {
      row.visit([&](int id, float logit) {
        const Sum64 weight = weight_kept(id, logit);
        if (weight > 0 && weight >= least) tally.add(logit_key(logit), weight);
      });
    };
    return find_worst(visit, target, scratch);
  };
  Worst worst{};
  if (row.listed != nullptr) {
    worst = worst_of(cutoff);
  } else {
    // First those that say much; with a wide nucleus they are not enough.
    for (int i = 0; i < 2 && !worst.found; ++i) {
      const Sum64 least = i == 0 ? total >> kCommonBits : cutoff;
      // A bit less: weights need not fall with their logits to the last bit.
      const Sum64 enough = least - least / 1024;
      const auto takes = [&](int id, float logit) {
        const Sum64 weight = weight_kept(id, logit);
        return weight > 0 && weight >= enough;
      };
      __syncthreads();
      if (least < cutoff || !candidates.collect(row.logits, row.count, takes)) continue;
      row.listed = &candidates;
      worst = worst_of(least);
      if (!worst.found) row.listed = nullptr;
    }
    if (!worst.found) worst = worst_of(cutoff);
  }
  if (!worst.found) return cut;
  // Some of several equal logits may be cut by count already, never one with a lower id than one that stays.
  const Cut inner = cut_at(worst, row.weight_of(logit_of_key(worst.key)), row, scratch);
  return {inner.rank > cut.rank ? inner.rank : cut.rank};
}

__global__ void __launch_bounds__(kThreads) sample_rows(Rows p) {
  __shared__ Scratch scratch;
  __shared__ Candidates candidates;
  await_launch_before();
  float* const logits = p.logits + int64_t{blockIdx.x} * p.count;
  const DeviceDraw draw = p.draws[blockIdx.x];
  if (draw.has_chain) return;  // sample_chains()
  edit_row(logits, draw, p);

  Sum64 first = 0;
  visit_tokens(logits, p.count, [&](int id, float logit) {
    first = Max()(first, draw_rank(best_key(logit), static_cast<uint32_t>(id)));
  });
  const uint32_t own_best = key_of_rank(first);
  first = block_reduce<kThreads>(first, Max(), scratch.warps);
  const bool drawable = is_drawable(key_of_rank(first));
  const auto best_id = static_cast<int32_t>(id_of_rank(first));
  if (draw.scale == 0 || !drawable) {
    if (threadIdx.x == 0) *draw.out = drawable ? best_id : kNoDraw;
    return;
  }

  Row row{logits, p.count, clean_logit(logits[best_id]), draw.scale};
  Cut cut;
  if (draw.top_k > 0 && draw.top_k < p.count) {
    cut = cut_by_count(row, draw.top_k, own_best, candidates, scratch);
  }
  if (draw.top_p < 1.0f) cut = cut_by_mass(row, cut, draw.top_p, candidates, scratch);
  const Sum64 least = least_weight(draw.min_p);
  const auto mass = [&](int id, float logit) -> Sum64 {
    const Sum64 weight = row.weight_of(logit);
    return weight >= least && cut.keeps(logit_key(logit), id) ? weight : 0;
  };
  if (least > 1 && row.listed == nullptr) {
    const auto takes = [&](int id, float logit) { return mass(id, logit) > 0; };
    if (candidates.collect(logits, p.count, takes)) row.listed = &candidates;
  }
  const Sum64 total = row.sum(mass, scratch);
  const int id = row.passing(draw_target(total, draw.random), mass, scratch);
  if (threadIdx.x == 0) *draw.out = id;
}

}  // namespace
}  // namespace draws

void sample(const LaunchStream& stream, const SampleParams& params, const DrawInputs& inputs) {
  if (params.rows.empty()) return;
  const draws::Rows p{params.logits.as<float>(), static_cast<int32_t>(params.logits.shape[1]), inputs.rows,
                      inputs.edits, inputs.masks};
  const Grid grid{dim3(static_cast<unsigned>(params.rows.size())), draws::kThreads};
  launch("sample", draws::sample_rows, grid, stream, p);
}

}  // namespace troupe::cuda
