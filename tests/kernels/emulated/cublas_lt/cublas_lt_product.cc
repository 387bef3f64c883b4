#include "tests/kernels/emulated/cublas_lt/cublas_lt_product.h"

#include <cuda_bf16.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "tests/kernels/emulated/emulator.h"
#include "tests/kernels/emulated/host.h"
#include "tests/kernels/emulated/streams.h"

namespace troupe::emulated {
namespace {

// Rows and columns that are multiplied at once, and the rows that a register holds.
constexpr int64_t kRows = 16, kColumns = 4, kRegisterRows = 8;
using Lanes = float __attribute__((vector_size(kRegisterRows * sizeof(float))));

struct LtProduct {
  LtAlgorithm algorithm;
  LtProblem problem;
  LtPlaces places;
  float alpha, beta;
  // The splits' sums (splits, n, m), in the workspace behind the counters.
  void* split_sums;
  cudaDataType_t split_type;
};

float element(const void* memory, cudaDataType_t type, int64_t i) {
  if (type == CUDA_R_32F) return static_cast<const float*>(memory)[i];
  return static_cast<const __nv_bfloat16*>(memory)[i];
}

void set_element_of(void* memory, cudaDataType_t type, int64_t i, float value) {
  if (type == CUDA_R_32F) {
    static_cast<float*>(memory)[i] = value;
  } else {
    static_cast<__nv_bfloat16*>(memory)[i] = value;
  }
}

// An operand (count, depth), as groups of `width` of its count, each (depth, width), the last filled up with
// zeros. `step` and `depth_step`: elements from one to the next of each.
struct Operand {
  const void* memory;
  cudaDataType_t type;
  int64_t count, step, depth_step;
};

template <class T>
void pack_as(const Operand& operand, int64_t width, int64_t begin, int64_t end, std::vector<float>& packed) {
  const int64_t depth = end - begin, groups = (operand.count + width - 1) / width;
  packed.assign(static_cast<size_t>(groups * depth * width), 0.0f);
  for (int64_t i = 0; i < operand.count; ++i) {
    const T* from = static_cast<const T*>(operand.memory) + i * operand.step + begin * operand.depth_step;
    float* to = packed.data() + i / width * depth * width + i % width;
    for (int64_t k = 0; k < depth; ++k) to[k * width] = from[k * operand.depth_step];
  }
}

void pack(const Operand& operand, int64_t width, int64_t begin, int64_t end, std::vector<float>& packed) {
  if (operand.type == CUDA_R_32F) return pack_as<float>(operand, width, begin, end, packed);
  pack_as<__nv_bfloat16>(operand, width, begin, end, packed);
}

Operand operand_of(const void* memory, const LtMatrix& matrix, int64_t count, bool depth_in_columns) {
  return depth_in_columns ? Operand{memory, matrix.type, count, matrix.ld, 1}
                          : Operand{memory, matrix.type, count, 1, matrix.ld};
}

// sums (kColumns, kRows) = a (depth, kRows) · b (depth, kColumns). By name, so that registers hold them.
void multiply_group(const float* a, const float* b, int64_t depth, float* sums) {
  static_assert(kRows == 2 * kRegisterRows && kColumns == 4);
  Lanes low0{}, low1{}, low2{}, low3{}, high0{}, high1{}, high2{}, high3{};
  for (int64_t k = 0; k < depth; ++k, a += kRows, b += kColumns) {
    Lanes low, high;
    std::memcpy(&low, a, sizeof(low));
    std::memcpy(&high, a + kRegisterRows, sizeof(high));
    low0 += low * b[0];
    high0 += high * b[0];
    low1 += low * b[1];
    high1 += high * b[1];
    low2 += low * b[2];
    high2 += high * b[2];
    low3 += low * b[3];
    high3 += high * b[3];
  }
  const Lanes* const all[] = {&low0, &high0, &low1, &high1, &low2, &high2, &low3, &high3};
  for (const Lanes* lanes : all) {
    std::memcpy(sums, lanes, sizeof(*lanes));
    sums += kRegisterRows;
  }
}

// to (n, m) = op(A) · op(B) over the part [begin, end) of the depth, each sum given to `store(i, j, sum)`.
template <class Store>
void multiply_part(const LtProduct& p, int64_t begin, int64_t end, const Store& store) {
  const bool a_transposed = p.problem.operation.transpose_a != CUBLAS_OP_N;
  const bool b_transposed = p.problem.operation.transpose_b != CUBLAS_OP_N;
  std::vector<float> a, b;
  pack(operand_of(p.places.a, p.problem.a, p.problem.m, a_transposed), kRows, begin, end, a);
  pack(operand_of(p.places.b, p.problem.b, p.problem.n, !b_transposed), kColumns, begin, end, b);
  const int64_t depth = end - begin;
  float sums[kColumns * kRows];
  for (int64_t i0 = 0; i0 < p.problem.m; i0 += kRows) {
    for (int64_t j0 = 0; j0 < p.problem.n; j0 += kColumns) {
      multiply_group(a.data() + i0 * depth, b.data() + j0 * depth, depth, sums);
      for (int64_t j = j0; j < std::min(j0 + kColumns, p.problem.n); ++j) {
        for (int64_t i = i0; i < std::min(i0 + kRows, p.problem.m); ++i) {
          store(i, j, sums[(j - j0) * kRows + (i - i0)]);
        }
      }
    }
  }
}

void finish(const LtProduct& p, int64_t i, int64_t j, float sum) {
  float value = p.alpha * sum;
  if (p.places.c != nullptr) {
    value += p.beta * element(p.places.c, p.problem.c.type, i + j * p.problem.c.ld);
  }
  if (p.problem.adds_bias()) value += element(p.problem.operation.bias, p.problem.d.type, i);
  set_element_of(p.places.d, p.problem.d.type, i + j * p.problem.d.ld, value);
}

// --- splits

void multiply_splits(const LtProduct& p) {
  const int64_t depth = p.problem.depth, splits = p.algorithm.splits;
  for (int64_t split = 0; split < splits; ++split) {
    multiply_part(
        p, depth * split / splits, depth * (split + 1) / splits, [&](int64_t i, int64_t j, float sum) {
          set_element_of(p.split_sums, p.split_type, (split * p.problem.n + j) * p.problem.m + i, sum);
        });
  }
}

void add_splits(const LtProduct& p, int64_t i, int64_t j) {
  float sum = 0;
  for (int64_t split = 0; split < p.algorithm.splits; ++split) {
    sum += element(p.split_sums, p.split_type, (split * p.problem.n + j) * p.problem.m + i);
  }
  finish(p, i, j, sum);
}

void add_all_splits(const LtProduct& p) {
  for (int64_t j = 0; j < p.problem.n; ++j) {
    for (int64_t i = 0; i < p.problem.m; ++i) add_splits(p, i, j);
  }
}

// A tile's block that comes last, by the tile's counter, adds up.
void count_and_add_splits(const LtProduct& p) {
  const LtKernel& kernel = *p.algorithm.kernel;
  auto* counter = static_cast<uint32_t*>(p.places.workspace);
  for (int64_t j0 = 0; j0 < p.problem.n; j0 += kernel.tile_columns) {
    for (int64_t i0 = 0; i0 < p.problem.m; i0 += kernel.tile_rows, ++counter) {
      *counter += static_cast<uint32_t>(p.algorithm.splits);
      if (*counter != static_cast<uint32_t>(p.algorithm.splits)) continue;
      for (int64_t j = j0; j < std::min(j0 + kernel.tile_columns, p.problem.n); ++j) {
        for (int64_t i = i0; i < std::min(i0 + kernel.tile_rows, p.problem.m); ++i) add_splits(p, i, j);
      }
    }
  }
}

// Addresses that stand for kernels of the library's.
constexpr char kAddSplitsKernel = 0;

// Kernels of single blocks are launched without the attribute.
dim3 attribute_of(const dim3& cluster) {
  return cluster.x * cluster.y * cluster.z > 1 ? cluster : dim3(0, 0, 0);
}

void enqueue_kernel(cudaStream_t stream, const void* kernel, const dim3& cluster, std::function<void()> run) {
  auto counted = [run = std::move(run)] {
    run();
    note_launch({});
  };
  enqueue(stream, {kernel, std::move(counted), nullptr, cluster});
}

}  // namespace

void lt_enqueue(cudaStream_t stream, const LtAlgorithm& algorithm, const LtProblem& problem,
                const LtPlaces& places, float alpha, float beta) {
  const bool in_out_type = algorithm.reduction == CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
  const LtProduct p{algorithm,
                    problem,
                    places,
                    alpha,
                    beta,
                    static_cast<char*>(places.workspace) + lt_counter_bytes(algorithm, problem),
                    in_out_type ? problem.d.type : CUDA_R_32F};
  const LtKernel& kernel = *algorithm.kernel;
  const dim3 cluster = attribute_of(kernel.cluster);
  if (algorithm.splits == 1) {
    enqueue_kernel(stream, &kernel, cluster, [p] {
      multiply_part(p, 0, p.problem.depth, [&](int64_t i, int64_t j, float sum) { finish(p, i, j, sum); });
    });
  } else if (algorithm.counted) {
    cudaMemsetAsync(places.workspace, 0, lt_counter_bytes(algorithm, problem), stream);
    enqueue_kernel(stream, &kernel, cluster, [p] {
      multiply_splits(p);
      count_and_add_splits(p);
    });
  } else {
    enqueue_kernel(stream, &kernel, cluster, [p] { multiply_splits(p); });
    enqueue_kernel(stream, &kAddSplitsKernel, {0, 0, 0}, [p] { add_all_splits(p); });
  }
}

}  // namespace troupe::emulated
