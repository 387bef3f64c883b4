// out[s] = the token that the chain of samplers (sampler_chain.h) of row s draws from logits[s] after its
// edits and under its mask, the host's to the bit; or kNoDraw
//
// logits (S, V) float32, edited in place · chains (C), each of a row · out (S) int32 · mus (C) float32
// A block a row. One pass over the row looks whether it can be drawn from; three, digits of a logit in turn,
// find the worst of the K <= 5,000 tokens that a chain begins with; two more choose among its equals where
// not all of them fit; the last brings the tokens to shared memory, 8 bytes each, where they are sorted. All
// that follows is the host's own text (chain_samplers.h) by the block as a team (block_team.cuh), on 16 bytes
// a token. A chain that begins with top_k has few tokens, and a launch asks for the memory of its longest
// one: at 64 registers two blocks share a multiprocessor, one where 100 KB are too much for that.
//
// The samplers' passes are of integers, or of a token for itself; what must be added up in one order has 64
// lanes (kSumLanes). Not measured: where the time goes on a GPU.

#include "kernels/cuda/device/check_cuda.h"
#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/device/ptx.cuh"
#include "kernels/cuda/ops/block_team.cuh"
#include "kernels/cuda/ops/edit_row.cuh"
#include "kernels/cuda/ops/ops.h"
#include "kernels/cuda/ops/row_cuts.cuh"

namespace troupe::cuda {
namespace draws {
namespace {

struct Chains {
  const DeviceChain* of;
  float* mus;
  int32_t tokens_max;  // of one
};

// Brings ranks of the `count` best tokens but those of -inf, in any order; returns how many there are.
__device__ int collect_best(const float* logits, int vocab, int count, uint64_t* tokens, Scratch& scratch) {
  __shared__ int found;
  if (threadIdx.x == 0) found = 0;
  const auto visit = [&](const Tally& tally) {
    visit_tokens(logits, vocab, [&](int, float logit) { tally.count(logit_key(logit), 1); });
  };
  const Worst worst = find_worst(visit, static_cast<Sum64>(count), scratch);
  const Cut cut = cut_at(worst, 1, {logits, vocab, 0, 0}, scratch);
  __syncthreads();
  visit_tokens(logits, vocab, [&](int id, float logit) {
    if (!(logit > -INFINITY) || !cut.keeps(logit_key(logit), id)) return;
    tokens[atomicAdd(&found, 1)] = draw_rank(logit_key(logit), static_cast<uint32_t>(id));
  });
  __syncthreads();
  return found;
}

__device__ bool row_is_drawable(const float* logits, int vocab, Scratch& scratch) {
  Sum64 best = 0;
  visit_tokens(logits, vocab, [&](int, float logit) { best = Max()(best, Sum64{best_key(logit)}); });
  return is_drawable(static_cast<uint32_t>(block_reduce<kThreads>(best, Max(), scratch.warps)));
}

__global__ void __launch_bounds__(kThreads) sample_row_chains(Rows p, Chains chains) {
  __shared__ Scratch scratch;
  __shared__ double lanes[chain::kSumLanes];
  TROUPE_DYNAMIC_SHARED(memory);
  await_launch_before();
  const DeviceChain& of = chains.of[blockIdx.x];
  const DeviceDraw draw = p.draws[of.place];
  float* const logits = p.logits + int64_t{of.place} * p.count;
  edit_row(logits, draw, p);
  if (!row_is_drawable(logits, p.count, scratch)) {
    if (threadIdx.x == 0) {
      *draw.out = kNoDraw;
      chains.mus[blockIdx.x] = of.row.mirostat_mu;
    }
    return;
  }

  auto* const ranks = reinterpret_cast<uint64_t*>(memory);
  const int count = collect_best(logits, p.count, of.row.first_count, ranks, scratch);
  BlockTeam team{scratch, lanes};
  team.sort(ranks, count);
  chain::Tokens tokens(team, ranks, ranks + chains.tokens_max, count);
  const bool is_late = draw.edits_are_late;
  const LateEdits late{p.edits + draw.first_edit, is_late ? draw.end_edit - draw.first_edit : 0};
  chain::Samplers samplers(of.row, late, tokens);
  samplers.run();
  const ChainDraw drawn = samplers.draw();
  if (threadIdx.x != 0) return;
  *draw.out = drawn.id;
  chains.mus[blockIdx.x] = drawn.mirostat_mu;
}

size_t shared_bytes(int32_t tokens) {
  return 2 * sizeof(uint64_t) * static_cast<size_t>(tokens);
}

// The driver is told once how much shared memory it may have.
auto* prepared_kernel() {
  static const cudaError_t told =
      cudaFuncSetAttribute(sample_row_chains, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(shared_bytes(kChainTokensMax)));
  check_cuda("sample", told);
  return sample_row_chains;
}

}  // namespace
}  // namespace draws

void sample_chains(const LaunchStream& stream, const SampleParams& params, const DrawInputs& inputs) {
  if (inputs.chain_count == 0) return;
  const draws::Rows p{params.logits.as<float>(), static_cast<int32_t>(params.logits.shape[1]), inputs.rows,
                      inputs.edits, inputs.masks};
  const draws::Chains chains{inputs.chains, inputs.mus, inputs.chain_tokens};
  const Grid grid{dim3(static_cast<unsigned>(inputs.chain_count)), draws::kThreads,
                  draws::shared_bytes(inputs.chain_tokens)};
  launch("sample", draws::prepared_kernel(), grid, stream, p, chains);
}

}  // namespace troupe::cuda
