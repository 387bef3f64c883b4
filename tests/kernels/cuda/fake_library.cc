#include "tests/kernels/cuda/fake_library.h"

#include <algorithm>
#include <utility>

namespace troupe::cuda_testing {

namespace {

std::function<std::unique_ptr<cuda::LibraryGemm>()>& maker() {
  static std::function<std::unique_ptr<cuda::LibraryGemm>()> own;
  return own;
}

}  // namespace

std::vector<int> FakeLibrary::algorithms(const cuda::ProductOperands&, int count) {
  std::vector<int> all{0, 1, 2};
  all.resize(std::min<size_t>(all.size(), static_cast<size_t>(count)));
  return all;
}

int FakeLibrary::algorithm_of(const std::string& text) {
  for (int i = 0; i < 3; ++i) {
    if (text_of(i) == text) return i;
  }
  return -1;
}

bool FakeLibrary::launch(cudaStream_t stream, const cuda::ProductOperands& operands, int algorithm) {
  if (algorithm == 2 && operands.x.shape[0] > 100) return false;
  launched_->push_back(algorithm);
  cuda::tiled_gemm(stream, operands);
  return true;
}

void set_library(std::function<std::unique_ptr<cuda::LibraryGemm>()> make) {
  maker() = std::move(make);
}

}  // namespace troupe::cuda_testing

namespace troupe::cuda {

StatusOr<std::unique_ptr<LibraryGemm>> make_library_products() {
  const auto& make = cuda_testing::maker();
  return make ? make() : std::unique_ptr<LibraryGemm>();
}

}  // namespace troupe::cuda
