#pragma once

// Products by cuBLASLt: the shapes for which the library is the best known. One handle and one workspace;
// the algorithm of a shape is asked for once.

#include <cuda_runtime.h>

#include <memory>

#include "common/core/status.h"
#include "kernels/cuda/ops.h"

namespace troupe::cuda {

class LibraryProducts {
 public:
  virtual ~LibraryProducts() = default;
  // Sums in float32; float32 operands are multiplied as they are (no tf32). False where the library has no
  // algorithm for the shape: nothing was launched.
  virtual bool launch(const ProductOperands& operands) = 0;
};

// kUnavailable with cuBLASLt's reason. Null where it is not linked in (the emulated build).
StatusOr<std::unique_ptr<LibraryProducts>> make_library_products(cudaStream_t stream);

}  // namespace troupe::cuda
