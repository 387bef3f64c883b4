#pragma once

// The stand-in's problems and algorithms (cublasLt.h). Its kernels are made up; they differ as the library's
// on a Hopper GPU do: in tiles, clusters of blocks, what they need of alignment and memory, and in the nodes
// that a graph gets of them.

#include <cublasLt.h>

#include <optional>
#include <vector>

namespace troupe::emulated {

// A cublasLtMatrixLayoutOpaque_t's contents.
struct LtMatrix {
  cudaDataType_t type;
  cublasLtOrder_t order;
  int64_t rows, columns, ld;

  bool operator==(const LtMatrix&) const = default;
};

// A cublasLtMatmulDescOpaque_t's contents.
struct LtOperation {
  cublasComputeType_t compute_type;
  cudaDataType_t scale_type;
  int32_t pointer_mode, transpose_a, transpose_b;
  uint32_t epilogue;
  int32_t bias_type;
  const void* bias;
};

// Types and sizes are checked: D (m, n) of op(A) (m, depth) and op(B) (depth, n).
struct LtProblem {
  LtOperation operation;
  LtMatrix a, b, c, d;
  int64_t m, n, depth;

  bool adds_bias() const { return operation.epilogue == CUBLASLT_EPILOGUE_BIAS; }
};

struct LtKernel {
  int32_t id;
  cudaDataType_t type;  // of A and B
  cublasLtMatmulTile_t tile;
  int64_t tile_rows, tile_columns;
  cublasLtMatmulStages_t stages;
  int64_t stage_depth;
  cublasLtClusterShape_t cluster_shape;
  dim3 cluster;
  uint32_t alignment;      // bytes, of A, B and their columns
  uint32_t out_alignment;  // of C, D, their columns and the bias
};

// A kernel, and how the depth is divided over several blocks.
struct LtAlgorithm {
  const LtKernel* kernel;
  int32_t splits;      // 1: a tile's whole depth is one block's
  uint32_t reduction;  // cublasLtReductionScheme_t
  // The blocks of a tile count themselves (in the workspace, behind a memset), and the last one adds up; else
  // a second kernel does.
  bool counted;
};

size_t lt_bytes_of(cudaDataType_t type);
// All that could be asked for, of whatever problem of these types.
std::vector<LtAlgorithm> lt_algorithms(cudaDataType_t type);

// An algorithm of these types in words, and back: none where they say nothing that was written for them.
cublasLtMatmulAlgo_t lt_words(const LtAlgorithm& algorithm, const LtProblem& problem);
std::optional<LtAlgorithm> lt_read(const cublasLtMatmulAlgo_t& words);
// Whether the words were written for problems of these types.
bool lt_is_of(const cublasLtMatmulAlgo_t& words, const LtProblem& problem);

// Whether the algorithm takes the problem, as far as that does not depend on where A, B, C and D begin.
bool lt_takes(const LtAlgorithm& algorithm, const LtProblem& problem);
size_t lt_workspace_bytes(const LtAlgorithm& algorithm, const LtProblem& problem);
int64_t lt_tiles(const LtAlgorithm& algorithm, const LtProblem& problem);
size_t lt_counter_bytes(const LtAlgorithm& algorithm, const LtProblem& problem);
// How often the device is full of the blocks, and a made-up time in no unit.
float lt_waves(const LtAlgorithm& algorithm, const LtProblem& problem);
double lt_estimate(const LtAlgorithm& algorithm, const LtProblem& problem);

}  // namespace troupe::emulated
