#include "tests/kernels/emulated/cublas_lt/cublas_lt_algorithms.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace troupe::emulated {
namespace {

// At the begin of words that are ours; and a factor of their checksum.
constexpr uint64_t kMark = 0x74726f7570654c74;
constexpr uint64_t kChecked = 0x9e3779b97f4a7c15;
// Counters and what lies behind them begin at multiples of it.
constexpr size_t kPartAlignment = 256;

constexpr auto kBFloat16 = CUDA_R_16BF;
constexpr auto kFloat32 = CUDA_R_32F;

// The last of each type takes any alignment that its elements have.
const LtKernel kKernels[] = {
    {70, kBFloat16, CUBLASLT_MATMUL_TILE_64x64, 64, 64, CUBLASLT_MATMUL_STAGES_64x4, 64,
     CUBLASLT_CLUSTER_SHAPE_2x1x1, dim3(2, 1, 1), 16, 16},
    {71, kBFloat16, CUBLASLT_MATMUL_TILE_64x128, 64, 128, CUBLASLT_MATMUL_STAGES_64x4, 64,
     CUBLASLT_CLUSTER_SHAPE_4x1x1, dim3(4, 1, 1), 16, 16},
    {72, kBFloat16, CUBLASLT_MATMUL_TILE_128x64, 128, 64, CUBLASLT_MATMUL_STAGES_64x4, 64,
     CUBLASLT_CLUSTER_SHAPE_1x2x1, dim3(1, 2, 1), 16, 4},
    {73, kBFloat16, CUBLASLT_MATMUL_TILE_64x32, 64, 32, CUBLASLT_MATMUL_STAGES_64x3, 64,
     CUBLASLT_CLUSTER_SHAPE_8x1x1, dim3(8, 1, 1), 16, 16},
    {74, kBFloat16, CUBLASLT_MATMUL_TILE_128x128, 128, 128, CUBLASLT_MATMUL_STAGES_64x3, 64,
     CUBLASLT_CLUSTER_SHAPE_2x1x1, dim3(2, 1, 1), 16, 16},
    {75, kBFloat16, CUBLASLT_MATMUL_TILE_128x256, 128, 256, CUBLASLT_MATMUL_STAGES_64x3, 64,
     CUBLASLT_CLUSTER_SHAPE_2x1x1, dim3(2, 1, 1), 16, 16},
    {31, kBFloat16, CUBLASLT_MATMUL_TILE_64x64, 64, 64, CUBLASLT_MATMUL_STAGES_32x3, 32,
     CUBLASLT_CLUSTER_SHAPE_1x1x1, dim3(1, 1, 1), 8, 2},
    {32, kBFloat16, CUBLASLT_MATMUL_TILE_64x64, 64, 64, CUBLASLT_MATMUL_STAGES_32x3, 32,
     CUBLASLT_CLUSTER_SHAPE_1x1x1, dim3(1, 1, 1), 2, 2},
    {10, kFloat32, CUBLASLT_MATMUL_TILE_128x64, 128, 64, CUBLASLT_MATMUL_STAGES_32x3, 32,
     CUBLASLT_CLUSTER_SHAPE_1x1x1, dim3(1, 1, 1), 16, 16},
    {11, kFloat32, CUBLASLT_MATMUL_TILE_64x128, 64, 128, CUBLASLT_MATMUL_STAGES_32x3, 32,
     CUBLASLT_CLUSTER_SHAPE_1x1x1, dim3(1, 1, 1), 16, 4},
    {12, kFloat32, CUBLASLT_MATMUL_TILE_64x32, 64, 32, CUBLASLT_MATMUL_STAGES_32x3, 32,
     CUBLASLT_CLUSTER_SHAPE_1x1x1, dim3(1, 1, 1), 4, 4},
};
constexpr int32_t kSplits[] = {2, 3, 6};

int64_t pieces(int64_t count, int64_t size) {
  return (count + size - 1) / size;
}

// Up to whole clusters.
double blocks_of(const LtAlgorithm& algorithm, const LtProblem& problem) {
  const LtKernel& kernel = *algorithm.kernel;
  const int64_t x = pieces(pieces(problem.m, kernel.tile_rows), kernel.cluster.x) * kernel.cluster.x;
  const int64_t y = pieces(pieces(problem.n, kernel.tile_columns), kernel.cluster.y) * kernel.cluster.y;
  return static_cast<double>(x * y * algorithm.splits);
}

// The device's blocks of one wave, four a processor.
double wave() {
  int processors = 1;
  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0);
  return 4.0 * processors;
}

uint64_t types_of(const LtProblem& problem) {
  return static_cast<uint64_t>(problem.a.type) | static_cast<uint64_t>(problem.b.type) << 8 |
         static_cast<uint64_t>(problem.c.type) << 16 | static_cast<uint64_t>(problem.d.type) << 24 |
         static_cast<uint64_t>(problem.operation.compute_type) << 32 |
         static_cast<uint64_t>(problem.operation.scale_type) << 40;
}

uint64_t checked(const cublasLtMatmulAlgo_t& words) {
  uint64_t sum = 0;
  for (size_t i = 0; i + 1 < std::size(words.data); ++i) sum = (sum ^ words.data[i]) * kChecked;
  return sum;
}

}  // namespace

size_t lt_bytes_of(cudaDataType_t type) {
  return type == CUDA_R_32F ? 4 : 2;
}

std::vector<LtAlgorithm> lt_algorithms(cudaDataType_t type) {
  std::vector<LtAlgorithm> all;
  for (const LtKernel& kernel : kKernels) {
    if (kernel.type != type) continue;
    all.push_back({&kernel, 1, CUBLASLT_REDUCTION_SCHEME_NONE, false});
    for (const int32_t splits : kSplits) {
      all.push_back({&kernel, splits, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, false});
      all.push_back({&kernel, splits, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, true});
      all.push_back({&kernel, splits, CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE, false});
    }
  }
  return all;
}

cublasLtMatmulAlgo_t lt_words(const LtAlgorithm& algorithm, const LtProblem& problem) {
  cublasLtMatmulAlgo_t words{};
  words.data[0] = kMark;
  words.data[1] = static_cast<uint64_t>(algorithm.kernel->id);
  words.data[2] = static_cast<uint64_t>(algorithm.splits) | uint64_t{algorithm.reduction} << 16 |
                  uint64_t{algorithm.counted} << 32;
  words.data[3] = types_of(problem);
  words.data[7] = checked(words);
  return words;
}

std::optional<LtAlgorithm> lt_read(const cublasLtMatmulAlgo_t& words) {
  if (words.data[0] != kMark || words.data[7] != checked(words)) return std::nullopt;
  const auto kernel = std::find_if(std::begin(kKernels), std::end(kKernels), [&](const LtKernel& known) {
    return static_cast<uint64_t>(known.id) == words.data[1];
  });
  if (kernel == std::end(kKernels)) return std::nullopt;
  const uint64_t split = words.data[2];
  return LtAlgorithm{kernel, static_cast<int32_t>(split & 0xffff),
                     static_cast<uint32_t>(split >> 16 & 0xffff), split >> 32 != 0};
}

bool lt_is_of(const cublasLtMatmulAlgo_t& words, const LtProblem& problem) {
  return words.data[3] == types_of(problem);
}

bool lt_takes(const LtAlgorithm& algorithm, const LtProblem& problem) {
  const LtKernel& kernel = *algorithm.kernel;
  const auto aligned = [](const LtMatrix& matrix, uint32_t alignment) {
    return static_cast<size_t>(matrix.ld) * lt_bytes_of(matrix.type) % alignment == 0;
  };
  return kernel.type == problem.a.type && aligned(problem.a, kernel.alignment) &&
         aligned(problem.b, kernel.alignment) && aligned(problem.c, kernel.out_alignment) &&
         aligned(problem.d, kernel.out_alignment) &&
         (!problem.adds_bias() ||
          reinterpret_cast<uintptr_t>(problem.operation.bias) % kernel.out_alignment == 0) &&
         (algorithm.splits == 1 || problem.depth >= algorithm.splits * kernel.stage_depth);
}

int64_t lt_tiles(const LtAlgorithm& algorithm, const LtProblem& problem) {
  return pieces(problem.m, algorithm.kernel->tile_rows) * pieces(problem.n, algorithm.kernel->tile_columns);
}

size_t lt_counter_bytes(const LtAlgorithm& algorithm, const LtProblem& problem) {
  if (!algorithm.counted) return 0;
  const auto bytes = static_cast<size_t>(lt_tiles(algorithm, problem)) * sizeof(uint32_t);
  return (bytes + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
}

size_t lt_workspace_bytes(const LtAlgorithm& algorithm, const LtProblem& problem) {
  if (algorithm.splits == 1) return 0;
  const bool in_out_type = algorithm.reduction == CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
  const size_t element = in_out_type ? lt_bytes_of(problem.d.type) : sizeof(float);
  return lt_counter_bytes(algorithm, problem) +
         static_cast<size_t>(algorithm.splits * problem.m * problem.n) * element;
}

float lt_waves(const LtAlgorithm& algorithm, const LtProblem& problem) {
  return static_cast<float>(blocks_of(algorithm, problem) / wave());
}

// A block multiplies, and loads its share of what its cluster loads; a split's sums are written and read.
double lt_estimate(const LtAlgorithm& algorithm, const LtProblem& problem) {
  const LtKernel& kernel = *algorithm.kernel;
  const auto rows = static_cast<double>(kernel.tile_rows), columns = static_cast<double>(kernel.tile_columns);
  const double depth = static_cast<double>(problem.depth) / algorithm.splits + 2 * kernel.stage_depth;
  const double loads = rows / kernel.cluster.y + columns / kernel.cluster.x;
  const double block = depth * (rows * columns + (kernel.alignment < 16 ? 96 : 24) * loads);
  double time = std::ceil(blocks_of(algorithm, problem) / wave()) * block;
  if (algorithm.splits > 1) {
    const auto sums = static_cast<double>(algorithm.splits * problem.m * problem.n);
    time += algorithm.counted ? 20e3 + 11 * sums : 160e3 + 8 * sums;
  }
  return time;
}

}  // namespace troupe::emulated
