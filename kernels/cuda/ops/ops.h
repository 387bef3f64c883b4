#pragma once

// The launches of the ops that neither multiply by a weight nor attend, an op a file. Each takes the op's
// parameters as kernels.h has them with every tensor in device memory, and beside them what the spans in them
// hold as arrays in device memory (the spans themselves are not read, except where it says so). They return
// at once; the stream keeps their order. Parameters have been checked (kernels/ops). Errors end the process
// (check_cuda.h).

#include <cstdint>

#include "kernels/cuda/device/launch_stream.h"
#include "kernels/cuda/step/device_draws.h"
#include "kernels/kernels.h"

namespace troupe::cuda {

// `ids`: device_ids().
void embed(const LaunchStream& stream, const EmbedParams& params, const int32_t* ids);
void gather_rows(const LaunchStream& stream, const GatherRowsParams& params, const int32_t* rows);
void rms_norm(const LaunchStream& stream, const RmsNormParams& params);
void silu_mul(const LaunchStream& stream, const SiluMulParams& params);
// `copies`: (from, to) pairs.
void copy_blocks(const LaunchStream& stream, const BoundKv& kv, DType dtype, const int32_t* copies,
                 int64_t count);
// Rows without a chain of samplers; and those with one.
void sample(const LaunchStream& stream, const SampleParams& params, const DrawInputs& inputs);
void sample_chains(const LaunchStream& stream, const SampleParams& params, const DrawInputs& inputs);

struct RopeKvIndices {
  const int32_t* positions;
  const int32_t* slots;
};
void rope_kv(const LaunchStream& stream, const RopeKvParams& params, const BoundKv& kv,
             const RopeKvIndices& indices);

}  // namespace troupe::cuda
