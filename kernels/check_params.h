#pragma once

// The shape contract of every op, executable: both backends call these first, so a mismatch dies at the
// boundary with both shapes printed and the loops behind it need no checks.

#include "kernels/kernels.h"

namespace troupe {

// The KV memory a backend was bound to.
struct BoundKv {
  KvLayout layout;
  void* data = nullptr;
  int64_t block_count = 0;
};

void check_params(const EmbedParams& params);
void check_params(const RmsNormParams& params, DType activation);
void check_params(const MatmulParams& params, DType activation);
void check_params(const RopeKvParams& params, DType activation, const BoundKv& kv);
void check_params(const AttentionParams& params, DType activation, const BoundKv& kv);
void check_params(const SiluMulParams& params, DType activation);
void check_params(const GatedMlpParams& params, DType activation);
// That an op's x is what the norm before it gives.
void check_normed(const char* op, const RmsNormParams& norm, const Tensor& x);
void check_params(const GatherRowsParams& params);
void check_params(const SampleParams& params);
void check_copies(std::span<const BlockCopy> copies, const BoundKv& kv);
void check_kv(const BoundKv& kv);

// A weight `pack` can read: rank 2, float32, bfloat16 or float16, not empty; for int8 of at most
// kInt8DepthMax columns.
Status check_weight(const Tensor& weight, WeightFormat format);

}  // namespace troupe
