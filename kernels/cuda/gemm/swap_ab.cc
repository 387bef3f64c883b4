#include "kernels/cuda/gemm/swap_ab.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "kernels/cuda/device/find_device.h"

namespace troupe::cuda {

namespace {

// A block has so many at least: those that share a tile add their sums up.
constexpr int64_t kTurnsMin = 4;
constexpr int64_t kTilesMax = 4096;  // 524,288 features
constexpr size_t kArrivalsBytes = kTilesMax * kSwapAbArrivals * sizeof(unsigned);

int64_t parts(int64_t count, int64_t of) {
  return (count + of - 1) / of;
}

bool is_aligned(const Tensor& tensor) {
  return reinterpret_cast<uintptr_t>(tensor.data) % 16 == 0;
}

}  // namespace

SwapAbSchedule swap_ab_schedule(int64_t rows, int64_t depth, int processors) {
  const int64_t tiles = parts(parts(rows, 2), kSwapAbRows / 2), tile_turns = parts(depth, kSwapAbColumns);
  const int64_t blocks = std::clamp<int64_t>(tiles * tile_turns / kTurnsMin, 1, processors);
  return {static_cast<int>(tiles), static_cast<int>(tile_turns), static_cast<int>(blocks)};
}

StatusOr<std::unique_ptr<SwapAb>> SwapAb::make() {
  if (!is_hopper() || !has_swap_ab_code()) return std::unique_ptr<SwapAb>();
  load_swap_ab_gemm();
  const int processors = processor_count();
  const size_t partials = static_cast<size_t>(processors) * kSwapAbPartials * sizeof(float);
  TROUPE_ASSIGN_OR_RETURN(auto memory, CudaBuffer::allocate(kArrivalsBytes + partials));
  cudaError_t error = cudaMemset(memory->data(), 0, kArrivalsBytes);
  if (error == cudaSuccess) error = cudaDeviceSynchronize();
  if (error != cudaSuccess) return cuda_status("clearing device memory", error);
  return std::unique_ptr<SwapAb>(new SwapAb(std::move(memory), processors));
}

bool SwapAb::takes(const ProductOperands& o) const {
  const int64_t rows = o.x.shape[0], features = o.weight.shape[0], depth = o.weight.shape[1];
  const bool has_shape = rows >= kSwapAbRowsMin && rows <= kSwapAbRowsMax && features > 0 && depth > 0 &&
                         features <= kTilesMax * kSwapAbRows &&
                         parts(features, kSwapAbRows) * parts(depth, kSwapAbColumns) * processors_ <=
                             std::numeric_limits<int>::max();
  return has_shape && o.x.dtype == DType::kBFloat16 && depth % 8 == 0 && is_aligned(o.x) &&
         is_aligned(o.weight);
}

bool SwapAb::launch(const LaunchStream& stream, const ProductOperands& o, bool gated) {
  if (!takes(o)) return false;
  const int64_t rows = o.weight.shape[0], depth = o.weight.shape[1];
  const BoxedMatrix boxes = gated ? BoxedMatrix{o.weight.data, depth, rows / 2, 8, 2}
                                  : BoxedMatrix{o.weight.data, depth, rows, kSwapAbRows / 2};
  const CUtensorMap* const weight = map_of(boxes);
  const CUtensorMap* const x = map_of({o.x.data, o.x.shape[1], o.x.shape[0], swap_ab_box_rows(o.x.shape[0])});
  if (weight == nullptr || x == nullptr) return false;
  auto* const arrivals = static_cast<unsigned*>(memory_->data());
  auto* const partials = reinterpret_cast<float*>(static_cast<char*>(memory_->data()) + kArrivalsBytes);
  const SwapAbSchedule schedule = swap_ab_schedule(rows, depth, processors_);
  swap_ab_gemm(stream, o, {schedule, *weight, *x, partials, arrivals, gated});
  return true;
}

const CUtensorMap* SwapAb::map_of(const BoxedMatrix& matrix) {
  const auto known = maps_.find(matrix);
  if (known != maps_.end()) return &known->second;
  const auto made = make_tensor_map("a product's operand", matrix);
  return made.ok() ? &maps_.emplace(matrix, *made).first->second : nullptr;
}

}  // namespace troupe::cuda
