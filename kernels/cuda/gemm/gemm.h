#pragma once

// Choice of the multiplying kernel. A product has several implementations: the own kernel for few rows, the
// library's algorithms, Hopper's for 9 to 64 rows, plain tiles. Which is the fastest for a weight's shape and
// so many rows is measured where it runs, once, and kept (tune.h); without measuring it is the first of that
// list that takes the shape. Rows of one bucket (rows_bucket.h) get the same implementation.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/cuda/gemm/cublas_gemm.h"
#include "kernels/cuda/gemm/gemm_kernels.h"
#include "kernels/cuda/gemm/swap_ab.h"
#include "kernels/kernels.h"
#include "kernels/tune.h"

namespace troupe::cuda {

// All that a measurement depends on, in words. `device` and `library` name hardware and version.
std::string product_key(const std::string& device, const std::string& library,
                        const ProductOperands& operands);

// One thing that can multiply these operands.
struct ProductCandidate {
  enum class Kind : uint8_t { kRows, kLibrary, kSwapAb, kTiles };
  Kind kind = Kind::kTiles;
  int algorithm = -1;  // of the library
};

// Driven by the backend's one thread.
class Products {
 public:
  struct Options {
    std::string device;     // the device's name
    CudaOptions cuda = {};  // reference_ops: plain tiles for all
    // Seconds of a launch. None: by the device's events, each launch behind a cache without its operands.
    std::function<double(const std::function<void()>& launch)> timer = {};
    // Called before a measurement: what the backend holds back has to be on its way.
    std::function<void()> before_measuring = {};
  };
  // Null is an implementation that there is not.
  struct Others {
    std::unique_ptr<LibraryGemm> library;
    std::unique_ptr<SwapAb> swap_ab;
  };
  // `stream`: where measurements run.
  Products(cudaStream_t stream, Others others, Options options);
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  // The candidate that multiplies these operands best. It is measured where it is not known yet, after
  // before_measuring: where the product is launched is to be decided behind this.
  ProductCandidate choose(const ProductOperands& operands);
  // Whether that is the kernel for few rows, and it takes the norm of them as well (null: none).
  bool choose_rows(const ProductOperands& operands, const RmsNormParams* norm);
  // Multiplies by `chosen`, or by another candidate where that does not take these very operands.
  // `prefetches`: SkinnyGemmForm's.
  void multiply(const LaunchStream& stream, const ProductCandidate& chosen, const ProductOperands& operands,
                bool prefetches = false);
  // Memory that is about to be written otherwise than by launches: biases that lie in it will be others.
  void forget_biases(const void* memory, size_t bytes) {
    if (others_.library != nullptr) others_.library->forget_biases(memory, bytes);
  }
  // All measurements, of others too.
  Tuning& tuning() { return tuning_; }
  Status save() { return tuning_.save(); }
  int64_t measured_count() const { return measured_count_; }

 private:
  using Shape =
      std::tuple<DType, int64_t, int64_t, int64_t, bool, bool>;  // out's type, bucket, N, K, adds, bias
  bool launch(const LaunchStream& stream, const ProductCandidate& candidate, const ProductOperands& operands,
              bool prefetches = false);
  std::vector<ProductCandidate> candidates_for(const ProductOperands& operands);
  ProductCandidate known_or_fastest(const ProductOperands& operands);
  bool is_wanted(const ProductCandidate& candidate) const;
  ProductCandidate fastest(const ProductOperands& operands, const std::string& key);
  // Names exist for candidates that can be measured: tiles are taken where there is nothing else.
  std::string name_of(const ProductCandidate& candidate) const;
  bool read_name(const std::string& name, ProductCandidate& candidate) const;

  cudaStream_t stream_;
  const Others others_;
  const Options options_;
  Tuning tuning_;
  std::map<Shape, ProductCandidate> chosen_;
  int64_t measured_count_ = 0;
};

}  // namespace troupe::cuda
