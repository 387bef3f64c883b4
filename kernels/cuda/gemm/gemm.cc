#include "kernels/cuda/gemm/gemm.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "kernels/cuda/ops/ops.h"
#include "kernels/cuda/step/launch_timer.h"
#include "kernels/rows_bucket.h"

namespace troupe::cuda {

namespace {

using Kind = ProductCandidate::Kind;

constexpr const char* kLibraryName = "library ";
constexpr const char* kRowsName = "rows";
constexpr const char* kSwapAbName = "swap_ab";
constexpr const char* kApartName = "apart";  // gated by a launch of its own
// Counts up when an own kernel changes, or there is one more.
constexpr int kOwnKernels = 3;
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

Products::Products(cudaStream_t stream, Others others, Options options)
    : stream_(stream),
      others_(std::move(others)),
      options_(std::move(options)),
      tuning_(options_.cuda.measures ? options_.cuda.tune_file : "") {}

Products::Shape Products::shape_of(const ProductOperands& o) {
  return {o.out.dtype,    rows_bucket(o.x.shape[0]), o.weight.shape[0], o.weight.shape[1], o.accumulate,
          !o.bias.empty()};
}

ProductCandidate Products::choose(const ProductOperands& o) {
  if (options_.cuda.reference_ops || o.out.elements() == 0) return {Kind::kTiles};
  const Shape shape = shape_of(o);
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
      if (others_.library == nullptr || !others_.library->launch(stream, o, candidate.algorithm))
        return false;
      stream.launched("matmul of the library");
      return true;
    case Kind::kSwapAb:
      return others_.swap_ab != nullptr && others_.swap_ab->launch(stream, o);
    case Kind::kTiles:
      tiled_gemm(stream, o);
      return true;
  }
  return false;
}

// The candidates in the order of preference where nothing is measured: the own kernel where the weight's
// bytes are the floor, the library where arithmetic is, Hopper's kernel behind both until a device has
// measured it, plain tiles for the rest. Those are never the fastest where another takes the shape, and slow
// to measure.
std::vector<ProductCandidate> Products::candidates_for(const ProductOperands& o) {
  std::vector<ProductCandidate> candidates;
  if (row_product_takes(o)) candidates.push_back({Kind::kRows});
  if (others_.library != nullptr) {
    for (const int algorithm : others_.library->algorithms(o, options_.cuda.measures ? kAlgorithmsMax : 1)) {
      // Unmeasured, its guess for each number of rows is better than one for the bucket.
      candidates.push_back({Kind::kLibrary, options_.cuda.measures ? algorithm : -1});
    }
  }
  if (others_.swap_ab != nullptr && others_.swap_ab->takes(o)) candidates.push_back({Kind::kSwapAb});
  if (candidates.empty()) candidates.push_back({Kind::kTiles});
  return candidates;
}

// Whether it is of the one kernel that is asked for.
bool Products::is_wanted(const ProductCandidate& candidate) const {
  switch (options_.cuda.products) {
    case ProductKernel::kMeasured:
      return false;
    case ProductKernel::kRows:
      return candidate.kind == Kind::kRows;
    case ProductKernel::kLibrary:
      return candidate.kind == Kind::kLibrary;
    case ProductKernel::kSwapAb:
      return candidate.kind == Kind::kSwapAb;
  }
  return false;
}

ProductCandidate Products::known_or_fastest(const ProductOperands& o) {
  if (!options_.cuda.measures || options_.cuda.products != ProductKernel::kMeasured) {
    const std::vector<ProductCandidate> candidates = candidates_for(o);
    const auto wanted = std::find_if(candidates.begin(), candidates.end(),
                                     [&](const ProductCandidate& candidate) { return is_wanted(candidate); });
    return wanted == candidates.end() ? candidates.front() : *wanted;
  }
  const std::string key = key_of(o);
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
  std::vector<std::function<bool()>> launches;
  for (const ProductCandidate& candidate : candidates)
    launches.emplace_back([this, &candidate, &operands] { return launch(stream_, candidate, operands); });
  const auto [best, seconds] = fastest_of(launches);
  tuning_.put(key, name_of(candidates[best]), seconds * 1e6);
  return candidates[best];
}

std::pair<size_t, double> Products::fastest_of(const std::vector<std::function<bool()>>& launches) {
  if (options_.before_measuring) options_.before_measuring();
  ++measured_count_;
  std::pair<size_t, double> best{0, std::numeric_limits<double>::infinity()};
  for (size_t i = 0; i < launches.size(); ++i) {
    bool taken = true;
    // Without overlap: what the launch before hides of it would not be between the timer's events.
    const auto once = [&] { taken = launches[i](); };
    const double seconds = options_.timer ? options_.timer(once) : seconds_of_launch("matmul", stream_, once);
    if (taken && seconds < best.second) best = {i, seconds};
  }
  return best;
}

std::optional<ProductCandidate> Products::choose_gated(const ProductOperands& o, const GatedForm& form) {
  if (form.norm != nullptr)
    return choose_rows(o, form.norm) ? std::optional(ProductCandidate{Kind::kRows}) : std::nullopt;
  const ProductCandidate apart = choose(o);
  const bool is_measured = options_.cuda.measures && options_.cuda.products == ProductKernel::kMeasured &&
                           others_.swap_ab != nullptr && others_.swap_ab->takes(o) && o.out.elements() > 0;
  // Unmeasured, and of so few rows that the one with a kernel of its own gains the launch: as the product is.
  if (!is_measured) return is_gating(apart) ? std::optional(apart) : std::nullopt;
  const auto [entry, is_new] = chosen_gated_.try_emplace(shape_of(o));
  if (is_new) entry->second = known_or_fastest_gated(o, form.gated);
  if (entry->second) chosen_[shape_of(o)] = *entry->second;
  return entry->second;
}

bool Products::is_gating(const ProductCandidate& candidate) {
  return candidate.kind == Kind::kRows || candidate.kind == Kind::kSwapAb;
}

std::optional<ProductCandidate> Products::known_or_fastest_gated(const ProductOperands& o,
                                                                 const Tensor& gated) {
  const std::string key = key_of(o) + ", gated";
  ProductCandidate known;
  if (const std::string* name = tuning_.find(key); name != nullptr) {
    if (*name == kApartName) return std::nullopt;
    if (read_name(*name, known) && is_gating(known)) return known;
  }
  const ProductCandidate apart = choose(o);
  std::vector<ProductCandidate> candidates{{Kind::kSwapAb}};
  if (row_product_takes(o)) candidates.push_back({Kind::kRows});
  std::vector<std::function<bool()>> launches;
  for (const ProductCandidate& candidate : candidates)
    launches.emplace_back([&] { return launch_gated(stream_, candidate, o, {gated}); });
  launches.emplace_back([&] {
    multiply(stream_, apart, o);
    silu_mul(stream_, {.gate_up = o.out, .out = gated});
    return true;
  });
  const auto [best, seconds] = fastest_of(launches);
  const bool is_apart = best == candidates.size();
  tuning_.put(key, is_apart ? kApartName : name_of(candidates[best]), seconds * 1e6);
  return is_apart ? std::nullopt : std::optional(candidates[best]);
}

bool Products::launch_gated(const LaunchStream& stream, const ProductCandidate& chosen, ProductOperands o,
                            const GatedForm& form) {
  o.out = form.gated;
  if (chosen.kind == Kind::kSwapAb) return others_.swap_ab->launch(stream, o, /*gated=*/true);
  if (!row_product_takes(o, form.norm)) return false;
  skinny_gemm(stream, o, {.gated = true, .norm = form.norm});
  return true;
}

std::string Products::key_of(const ProductOperands& o) const {
  return product_key(options_.device, others_.library == nullptr ? "no library" : others_.library->version(),
                     o);
}

std::string Products::name_of(const ProductCandidate& candidate) const {
  if (candidate.kind == Kind::kRows) return kRowsName;
  if (candidate.kind == Kind::kSwapAb) return kSwapAbName;
  return absl::StrCat(kLibraryName, others_.library->text_of(candidate.algorithm));
}

bool Products::read_name(const std::string& name, ProductCandidate& candidate) const {
  candidate = {Kind::kRows};
  if (name == kRowsName) return true;
  candidate = {Kind::kSwapAb};
  if (name == kSwapAbName) return others_.swap_ab != nullptr;
  candidate = {Kind::kLibrary};
  absl::string_view algorithm = name;
  if (others_.library == nullptr || !absl::ConsumePrefix(&algorithm, kLibraryName)) return false;
  candidate.algorithm = others_.library->algorithm_of(std::string(algorithm));
  return candidate.algorithm >= 0;
}

}  // namespace troupe::cuda
