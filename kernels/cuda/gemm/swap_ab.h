#pragma once

// The host's side of swap_ab_gemm.cu: which products it takes, how they are shared out, and the memory and
// tensor maps it works with.

#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>

#include "common/core/status.h"
#include "kernels/cuda/device/device_buffer.h"
#include "kernels/cuda/device/tensor_map.h"
#include "kernels/cuda/gemm/gemm_kernels.h"

namespace troupe::cuda {

// The shares of a product by a weight (rows, depth) on a device of so many multiprocessors: a block for each,
// but none for less than some turns.
SwapAbSchedule swap_ab_schedule(int64_t rows, int64_t depth, int processors);

// Driven by the backend's one thread.
class SwapAb {
 public:
  // Null where the device has no such products: it is no Hopper, or its code was made for another device.
  // kResourceExhausted where the memory for sums, 64 KB a multiprocessor, is not to be had.
  static StatusOr<std::unique_ptr<SwapAb>> make();

  bool takes(const ProductOperands& operands) const;
  // False, and nothing was launched, where it does not take them or the driver makes no map of them. `gated`:
  // as SkinnyGemmForm's.
  bool launch(const LaunchStream& stream, const ProductOperands& operands, bool gated = false);

 private:
  SwapAb(std::unique_ptr<CudaBuffer> memory, int processors)
      : memory_(std::move(memory)), processors_(processors) {}
  // Null where the driver makes none.
  const CUtensorMap* map_of(const BoxedMatrix& matrix);

  std::unique_ptr<CudaBuffer> memory_;  // arrivals, then partials
  int processors_;
  // A map says where a matrix is and how large, so it outlives what lies there. As many as a model has
  // weights, and for each number of rows as many as a step has inputs of products.
  std::map<BoxedMatrix, CUtensorMap> maps_;
};

}  // namespace troupe::cuda
