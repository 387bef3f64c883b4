#include "kernels/cuda/attention/attention_arrays.h"

namespace troupe::cuda {

AttentionIndices indices_on_device(StepArrays& arrays, const AttentionParams& params) {
  return {nullptr, arrays.of(StepArray::kQueryStarts, params.query_starts),
          arrays.of(StepArray::kContextCounts, params.context_counts),
          arrays.of(StepArray::kBlockTables, params.block_tables),
          params.alibi_slopes.empty() ? nullptr : arrays.of(StepArray::kAlibiSlopes, params.alibi_slopes)};
}

PlannedAttention plan_on_device(StepArrays& arrays, const AttentionPlan& plan, float* partials) {
  return {plan,
          arrays.of(StepArray::kAttentionTiles, plan.tiles),
          arrays.of(StepArray::kAttentionShared, plan.shared),
          arrays.of(StepArray::kAttentionSharedRows, plan.shared_rows),
          arrays.of(StepArray::kAttentionPieces, plan.pieces),
          arrays.of(StepArray::kAttentionMerges, plan.merges),
          partials};
}

}  // namespace troupe::cuda
