#pragma once

// Choice of the multiplying kernel. A product has several implementations: the own kernel for few rows, the
// library's algorithms, Hopper's for 9 to 64 rows, plain tiles. Which is the fastest for a weight's shape and
// so many rows is measured where it runs, once, and kept (tune.h); without measuring it is the first of that
// list that takes the shape. Rows of one bucket (rows_bucket.h) get the same implementation.

#include <functional>
#include <map>
#include <memory>
#include <optional>
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

struct GatedForm {
  Tensor gated;
  const RmsNormParams* norm = nullptr;  // SkinnyGemmForm's
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

  // The candidate that computes gated (T, F) = silu(gate) * up of these operands, gate over up of a weight
  // (2F, K), in one launch; nothing where that is slower than the product, into their out, and silu_mul
  // apart, or there is none. It is measured as by choose(), in the memory of both. choose() gives the same
  // one from then on, so that the bits are those of the two apart.
  std::optional<ProductCandidate> choose_gated(const ProductOperands& operands, const GatedForm& form);
  // False, and nothing was launched, where `chosen` does not take these very operands.
  bool launch_gated(const LaunchStream& stream, const ProductCandidate& chosen, ProductOperands operands,
                    const GatedForm& form);

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
  static Shape shape_of(const ProductOperands& operands);
  // Whether it has a form that gates.
  static bool is_gating(const ProductCandidate& candidate);
  std::string key_of(const ProductOperands& operands) const;
  ProductCandidate fastest(const ProductOperands& operands, const std::string& key);
  std::optional<ProductCandidate> known_or_fastest_gated(const ProductOperands& operands,
                                                         const Tensor& gated);
  // The number of the fastest of these, and its seconds: infinite where none launched anything.
  std::pair<size_t, double> fastest_of(const std::vector<std::function<bool()>>& launches);
  // Names exist for candidates that can be measured: tiles are taken where there is nothing else.
  std::string name_of(const ProductCandidate& candidate) const;
  bool read_name(const std::string& name, ProductCandidate& candidate) const;

  cudaStream_t stream_;
  const Others others_;
  const Options options_;
  Tuning tuning_;
  std::map<Shape, ProductCandidate> chosen_;
  std::map<Shape, std::optional<ProductCandidate>> chosen_gated_;
  int64_t measured_count_ = 0;
};

}  // namespace troupe::cuda
