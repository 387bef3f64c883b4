#include "worker/model/load/dummy_weights.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"

namespace troupe {

namespace {

// One 64-bit word yields four weights.
constexpr int64_t kPerWord = 4;
// Minimum for a thread: below it a thread costs more than it saves.
constexpr int64_t kPerThreadMin = int64_t{1} << 20;

// FNV-1a
uint64_t key_of(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

// Output `index` of SplitMix64 (Steele, Lea, Flood 2014) started at `key`.
uint64_t word_at(uint64_t key, int64_t index) {
  uint64_t z = key + (static_cast<uint64_t>(index) + 1) * 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

// A uniform distribution; `reach` is its half width.
struct Distribution {
  double mean = 0;
  double reach = 0;
};

Distribution distribution_of(std::string_view name, const Tensor& tensor) {
  const double unit = std::sqrt(3.0);  // half width of deviation 1
  if (tensor.rank == 2) return {0, unit / std::sqrt(static_cast<double>(tensor.shape[1]))};
  if (name.ends_with(".bias")) return {0, unit * 0.25};
  return {1, unit * 0.1};
}

template <typename T>
T as_type(double value);
template <>
float as_type<float>(double value) {
  return static_cast<float>(value);
}
template <>
BFloat16 as_type<BFloat16>(double value) {
  return to_bfloat16(static_cast<float>(value));
}

struct Range {
  int64_t begin = 0;  // a multiple of kPerWord
  int64_t end = 0;
};

template <typename T>
void fill(T* out, uint64_t key, const Distribution& distribution, const Range& range) {
  for (int64_t i = range.begin; i < range.end; i += kPerWord) {
    uint64_t word = word_at(key, i / kPerWord);
    const int64_t count = std::min(kPerWord, range.end - i);
    for (int64_t j = 0; j < count; ++j, word >>= 16) {
      // Odd multiples of 1/65536 in (-1, 1): exact, and symmetric about 0.
      const double uniform = (2 * static_cast<double>(word & 0xffff) - 65535) / 65536;
      out[i + j] = as_type<T>(distribution.mean + uniform * distribution.reach);
    }
  }
}

}  // namespace

void fill_random_weight(std::string_view name, const Tensor& tensor, int threads) {
  const uint64_t key = key_of(name);
  const Distribution distribution = distribution_of(name, tensor);
  const int64_t count = tensor.elements();
  const int64_t parts = std::clamp<int64_t>(count / kPerThreadMin, 1, threads);
  const int64_t part = (count / parts + kPerWord) / kPerWord * kPerWord;
  const auto work = [&](int64_t index) {
    const Range range{index * part, std::min(count, (index + 1) * part)};
    if (tensor.dtype == DType::kBFloat16) {
      fill(tensor.as<BFloat16>(), key, distribution, range);
    } else {
      fill(tensor.as<float>(), key, distribution, range);
    }
  };
  std::vector<std::jthread> helpers;
  for (int64_t index = 1; index < parts; ++index) helpers.emplace_back(work, index);
  work(0);
}

StatusOr<SourceTensor> DummyWeights::take(const std::string& name, std::span<const int64_t> shape) {
  SourceTensor result;
  result.tensor.dtype = dtype_;
  result.tensor.rank = static_cast<int>(shape.size());
  std::copy(shape.begin(), shape.end(), result.tensor.shape.begin());
  const size_t bytes = result.tensor.bytes();
  result.memory.reset(new (std::nothrow) std::byte[bytes]);
  if (result.memory == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat(where(name), ": no memory for ", bytes, " bytes"));
  }
  result.tensor.data = result.memory.get();
  fill_random_weight(name, result.tensor, threads_);
  return result;
}

}  // namespace troupe
