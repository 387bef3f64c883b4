#pragma once

// Products by cuBLASLt: the shapes for which the library is the best known. One handle and one workspace; the
// library's choice for a shape is looked up once.

#include <cuda_runtime.h>

#include <memory>
#include <string>
#include <vector>

#include "common/core/status.h"
#include "kernels/cuda/device/launch_stream.h"
#include "kernels/cuda/gemm/gemm_kernels.h"

namespace troupe::cuda {

class LibraryGemm {
 public:
  virtual ~LibraryGemm() = default;
  virtual std::string version() const = 0;  // whose algorithms are named: "cuBLASLt 120401"
  // At most `count` algorithms for the operands, the library's best guess first; none where it has none.
  virtual std::vector<int> algorithms(const ProductOperands& operands, int count) = 0;
  // An algorithm of this version in words that outlast the process, and back; -1: no such words.
  virtual std::string text_of(int algorithm) const = 0;
  virtual int algorithm_of(const std::string& text) = 0;
  // Sums in float32; float32 operands are multiplied as they are (no tf32). -1: by the library's best guess.
  // False where the algorithm does not take the operands: nothing was launched.
  virtual bool launch(const LaunchStream& stream, const ProductOperands& operands, int algorithm) = 0;
  // Biases in this memory will be others.
  virtual void forget_biases(const void* /*memory*/, size_t /*bytes*/) {}
};

// kUnavailable with cuBLASLt's reason.
StatusOr<std::unique_ptr<LibraryGemm>> make_library_products();

}  // namespace troupe::cuda
