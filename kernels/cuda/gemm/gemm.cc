#include "kernels/cuda/gemm/gemm.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "kernels/cuda/step/launch_timer.h"
#include "kernels/rows_bucket.h"

namespace troupe::cuda {

namespace {

using Kind = ProductCandidate::Kind;

constexpr const char* kLibraryName = "library ";
// Counts up when the own kernel for few rows changes.
constexpr int kOwnKernels = 2;
// The library's guesses that are measured. Its first is within a few percent of the best for most shapes;
// those where it is not are why one measures.
constexpr int kAlgorithmsMax = 6;

}  // namespace

std::string product_key(const std::string& device, const std::string& library, const ProductOperands& o) {
  return absl::StrCat(device, ", ", library, ", own ", kOwnKernels, ", product ",
                      to_absl(dtype_name(o.weight.dtype)), " to ", to_absl(dtype_name(o.out.dtype)),
                      o.accumulate ? " added" : "", o.bias.empty() ? "" : " with bias", ", ",
                      o.weight.shape[0], " x ", o.weight.shape[1], ", rows ", rows_bucket(o.x.shape[0]));
}

Products::Products(cudaStream_t stream, std::unique_ptr<LibraryGemm> library, Options options)
    : stream_(stream),
      library_(std::move(library)),
      options_(std::move(options)),
      tuning_(options_.measures ? options_.tune_file : "") {}

ProductCandidate Products::choose(const ProductOperands& o) {
  if (options_.reference || o.out.elements() == 0) return {Kind::kTiles};
  const Shape shape{o.out.dtype,       rows_bucket(o.x.shape[0]),
                    o.weight.shape[0], o.weight.shape[1],
                    o.accumulate,      !o.bias.empty()};
  const auto [entry, is_new] = chosen_.try_emplace(shape);
  if (is_new) entry->second = known_or_fastest(o);
  return entry->second;
}

bool Products::choose_rows(const ProductOperands& o, const RmsNormParams* norm) {
  return row_product_takes(o, norm) && choose(o).kind == Kind::kRows;
}

void Products::multiply(const LaunchStream& stream, const ProductCandidate& chosen, const ProductOperands& o,
                        bool prefetches) {
  if (o.out.elements() == 0 || launch(stream, chosen, o, prefetches)) return;
  // Another number of rows of the bucket, or a place in memory, that what was chosen does not take.
  for (const ProductCandidate& candidate :
       {ProductCandidate{Kind::kRows}, ProductCandidate{Kind::kLibrary}}) {
    if (launch(stream, candidate, o, prefetches)) return;
  }
  tiled_gemm(stream, o);
}

// False: it does not take the operands; nothing was launched.
bool Products::launch(const LaunchStream& stream, const ProductCandidate& candidate, const ProductOperands& o,
                      bool prefetches) {
  switch (candidate.kind) {
    case Kind::kRows:
      if (!row_product_takes(o)) return false;
      skinny_gemm(stream, o, {.prefetches = prefetches});
      return true;
    case Kind::kLibrary:
      if (library_ == nullptr || !library_->launch(stream, o, candidate.algorithm)) return false;
      stream.launched("matmul of the library");
      return true;
    case Kind::kTiles:
      tiled_gemm(stream, o);
      return true;
  }
  return false;
}

// The candidates in the order of preference where nothing is measured: the own kernel where the weight's
// bytes are the floor, the library where arithmetic is, plain tiles for the rest. Those are never the fastest
// where another takes the shape, and slow to measure.
std::vector<ProductCandidate> Products::candidates_for(const ProductOperands& o) {
  std::vector<ProductCandidate> candidates;
  if (row_product_takes(o)) candidates.push_back({Kind::kRows});
  if (library_ != nullptr) {
    for (const int algorithm : library_->algorithms(o, options_.measures ? kAlgorithmsMax : 1)) {
      // Unmeasured, its guess for each number of rows is better than one for the bucket.
      candidates.push_back({Kind::kLibrary, options_.measures ? algorithm : -1});
    }
  }
  if (candidates.empty()) candidates.push_back({Kind::kTiles});
  return candidates;
}

ProductCandidate Products::known_or_fastest(const ProductOperands& o) {
  if (!options_.measures) return candidates_for(o).front();
  const std::string key =
      product_key(options_.device, library_ == nullptr ? "no library" : library_->version(), o);
  ProductCandidate known;
  if (const std::string* name = tuning_.find(key); name != nullptr && read_name(*name, known)) return known;
  return fastest(o, key);
}

ProductCandidate Products::fastest(const ProductOperands& o, const std::string& key) {
  const std::vector<ProductCandidate> candidates = candidates_for(o);
  if (candidates.size() == 1) return candidates.front();
  // Memory of its own: a sum must not be added to several times.
  const DeviceScratch out(o.out.bytes());
  if (out.data() == nullptr) return candidates.front();
  ProductOperands operands = o;
  operands.out.data = out.data();
  if (options_.before_measuring) options_.before_measuring();
  ++measured_count_;
  ProductCandidate best = candidates.front();
  double best_seconds = std::numeric_limits<double>::infinity();
  for (const ProductCandidate& candidate : candidates) {
    bool taken = true;
    // Without overlap: what the launch before hides of it would not be between the timer's events.
    const auto once = [&] { taken = launch(stream_, candidate, operands); };
    const double seconds = options_.timer ? options_.timer(once) : seconds_of_launch("matmul", stream_, once);
    if (!taken || seconds >= best_seconds) continue;
    best = candidate;
    best_seconds = seconds;
  }
  tuning_.put(key, name_of(best), best_seconds * 1e6);
  return best;
}

std::string Products::name_of(const ProductCandidate& candidate) const {
  if (candidate.kind == Kind::kRows) return "rows";
  return absl::StrCat(kLibraryName, library_->text_of(candidate.algorithm));
}

bool Products::read_name(const std::string& name, ProductCandidate& candidate) const {
  candidate = {Kind::kRows};
  if (name == "rows") return true;
  candidate.kind = Kind::kLibrary;
  absl::string_view algorithm = name;
  if (library_ == nullptr || !absl::ConsumePrefix(&algorithm, kLibraryName)) return false;
  candidate.algorithm = library_->algorithm_of(std::string(algorithm));
  return candidate.algorithm >= 0;
}

}  // namespace troupe::cuda
