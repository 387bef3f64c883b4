#pragma once

// A fake for cuBLASLt, which is not on the CPU.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/gemm/cublas_gemm.h"

namespace troupe::cuda_testing {

// Three algorithms, of which each multiplies as plain tiles do; the third takes no more than 100 rows.
class FakeLibrary final : public cuda::LibraryGemm {
 public:
  // `launched` receives each algorithm.
  explicit FakeLibrary(std::vector<int>* launched) : launched_(launched) {}
  std::string version() const override { return "fake 1"; }
  std::vector<int> algorithms(const cuda::ProductOperands& operands, int count) override;
  std::string text_of(int algorithm) const override { return "number " + std::to_string(algorithm); }
  int algorithm_of(const std::string& text) override;
  bool launch(cudaStream_t stream, const cuda::ProductOperands& operands, int algorithm) override;

 private:
  std::vector<int>* launched_;
};

// The library of backends made from now on. Empty, as at first: none, plain tiles take its products.
void set_library(std::function<std::unique_ptr<cuda::LibraryGemm>()> make);

}  // namespace troupe::cuda_testing
