#pragma once

// The launches of the kernels, an op a file. Each takes the op's parameters as kernels.h has them with every
// tensor in device memory, and beside them what the spans in them hold as arrays in device memory (the spans
// themselves are not read, except where it says so). They return at once; the stream keeps their order.
// Parameters have been checked (check_params.h). Errors end the process (device.cuh).

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <string>

#include "kernels/check_params.h"
#include "kernels/cuda/attention/attention_plan.h"
#include "kernels/host/check.h"
#include "kernels/kernels.h"

namespace troupe::cuda {

// Where an op is launched. `overlaps`: its blocks may come to the device while the launch before it still
// runs, and get as far as await_launch_before() (ptx.cuh): programmatic dependent launch, CUDA programming
// guide. What is not launched by launch() (copies, the library's products) waits and is waited for as ever.
// REQUIRES of overlaps: has_hopper_code().
struct LaunchStream {
  LaunchStream(cudaStream_t of, bool overlapping = false) : handle(of), overlaps(overlapping) {}  // NOLINT
  cudaStream_t handle;
  bool overlaps;
};
// What the device has loaded of the kernels, which are all compiled for the same architectures, was made for
// sm_90 or later: launches are awaited, and attention_wgmma.cu has a body.
bool has_hopper_code();
// Multiprocessors of the device.
int processor_count();

void embed(const LaunchStream& stream, const EmbedParams& params, const int32_t* ids);
void gather_rows(const LaunchStream& stream, const GatherRowsParams& params, const int32_t* rows);
void rms_norm(const LaunchStream& stream, const RmsNormParams& params);
void silu_mul(const LaunchStream& stream, const SiluMulParams& params);
// `copies`: (from, to) pairs.
void copy_blocks(const LaunchStream& stream, const BoundKv& kv, DType dtype, const int32_t* copies,
                 int64_t count);

// Head dims that rope_kv and plain_attention hold in registers.
inline constexpr int kHeadDimMax = 256;
inline void check_head_dim(const char* op, const KvLayout& layout) {
  if (layout.head_dim <= kHeadDimMax) return;
  check_failed(op, "head_dim " + std::to_string(layout.head_dim) + " is over " + std::to_string(kHeadDimMax));
}
// A row of sample() as the device has it; its edits are [first_edit, end_edit) of all rows'.
struct DeviceDraw {
  uint64_t random;  // counter_bits()
  float scale;      // draw_scale(); 0: greedy
  int32_t top_k;    // 0: off
  float top_p, min_p;
  LogitPenalties penalties;
  int32_t first_edit, end_edit;
  int32_t last_drawn;  // SampleRow's
};
void sample(const LaunchStream& stream, const SampleParams& params, const DeviceDraw* rows,
            const LogitEdit* edits);

struct RopeKvIndices {
  const int32_t* positions;
  const int32_t* slots;
};
void rope_kv(const LaunchStream& stream, const RopeKvParams& params, const BoundKv& kv,
             const RopeKvIndices& indices);

// out (N) bfloat16 = x (N) float32
void round_vector(const LaunchStream& stream, const Tensor& x, const Tensor& out);

// sum (1) += the words of `memory`, aligned to 16 bytes, as far as they fill 16: for who wants it read.
void read_memory(const LaunchStream& stream, const void* memory, size_t bytes, uint32_t* sum);

// A product's operands on the device: weight (N, K) row-major in the activation type.
struct ProductOperands {
  Tensor x;       // (T, K) activation
  Tensor weight;  // (N, K) activation
  Tensor out;     // (T, N) activation or float32
  bool accumulate = false;
  Tensor bias = {};  // (N) float32, or empty
};
// Any shape and type, in plain tiles: the reference op, and the product of shapes that no other takes.
void tiled_gemm(const LaunchStream& stream, const ProductOperands& operands);
// Few rows by a weight that is read once, at memory speed (skinny_gemm.cu).
inline constexpr int64_t kRowProductRowsMax = 32;
// And up to so many rows that it norms itself.
inline constexpr int64_t kNormedRowsMax = 2;
// What else it does in the same launch, to the bits of the ops by themselves.
struct SkinnyGemmForm {
  // out (T, F) bfloat16 = silu(gate) * up, of gate over up of a weight (2F, K); `accumulate` is not looked
  // at.
  bool gated = false;
  const RmsNormParams* norm = nullptr;  // x is its out, and not read: computed from its x. Or null.
  // The launches before this one leave memory idle: as much of the weight as L2 keeps comes there while they
  // run, if launches overlap. Of up to 16 rows, neither gated nor normed; else nothing does.
  bool prefetches = false;
};
bool row_product_takes(const ProductOperands& operands, const RmsNormParams* norm = nullptr);
void skinny_gemm(const LaunchStream& stream, const ProductOperands& operands,
                 const SkinnyGemmForm& form = {});

struct AttentionIndices {
  const int32_t* token_requests;  // (T): the request of each query
  const int32_t* query_starts;
  const int32_t* context_counts;
  const int32_t* block_tables;
  const float* alibi_slopes;  // or null
};
// Any head dim and type, a block a query and head: the reference op.
void plain_attention(const LaunchStream& stream, const AttentionParams& params, const BoundKv& kv,
                     const AttentionIndices& indices);

// bfloat16 with head dims 64 and 128, by tensor cores (attention_mma.cu).
struct PlannedAttention {
  const AttentionPlan& plan;
  // Its arrays on the device.
  const AttentionItem* tiles;
  const AttentionItem* shared;
  const SharedRow* shared_rows;
  const AttentionItem* pieces;
  const MergeItem* merges;
  float* partials;     // partial_floats() of them
  bool lanes = false;  // pieces without tensor cores (attention_simt.cu); REQUIRES: lane_attention_takes()
  // Tiles by warpgroups (attention_wgmma.cu), planned with kWarpgroupRows: of the KV memory; or null.
  const CUtensorMap* kv_map = nullptr;
};
bool tile_attention_takes(const AttentionParams& params, const BoundKv& kv);
// Groups of few heads: a row of them is a register's.
inline constexpr int kLaneHeadsMax = 4;
inline bool lane_attention_takes(int64_t heads, const KvLayout& layout) {
  return heads <= int64_t{kLaneHeadsMax} * layout.kv_heads;
}
// As far as a model decides.
inline bool tile_attention_takes(DType activation, const KvLayout& layout) {
  return activation == DType::kBFloat16 && (layout.head_dim == 64 || layout.head_dim == 128);
}
inline int64_t floats_of_partial(const KvLayout& layout) {
  return int64_t{layout.kv_heads} * (layout.head_dim + 2);
}
// Tiles of a key/value head that the device has under way at once (AttentionShape). A multiprocessor has room
// for one of warpgroups', for two of the others (Shape::kBlocks of 128 dims).
int32_t tiles_at_once(const KvLayout& layout, bool warpgroups);
int64_t partial_floats(const AttentionPlan& plan, const BoundKv& kv);
void attention_mma(const LaunchStream& stream, const AttentionParams& params, const BoundKv& kv,
                   const AttentionIndices& indices, const PlannedAttention& planned);
// What its pieces left in `planned.partials`; a part of it, launched by it.
void merge_attention(const LaunchStream& stream, const AttentionParams& params, const BoundKv& kv,
                     const AttentionIndices& indices, const PlannedAttention& planned);

}  // namespace troupe::cuda
