#pragma once

// Shared by the kernel tests: tensors that own their memory, the backends to hold against each other, and the
// comparer whose tolerance each test derives from its type and length.

#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backends.h"
#include "kernels/cpu/isa.h"
#include "kernels/kernels.h"
#include "tests/common/sanitized.h"

namespace troupe::kernel_testing {

inline constexpr double kFloatEpsilon = 0x1p-24;    // half a unit in the last place, relative
inline constexpr double kBFloat16Epsilon = 0x1p-8;  // likewise

inline double epsilon_of(DType dtype) {
  return dtype == DType::kBFloat16 ? kBFloat16Epsilon : kFloatEpsilon;
}

// A tensor with its memory. Copies share nothing.
class OwnedTensor {
 public:
  OwnedTensor(DType dtype, std::initializer_list<int64_t> shape)
      : view_(Tensor::make(nullptr, dtype, shape)), bytes_(view_.bytes() + 1) {}
  // Values of a normal distribution, rounded to `dtype`.
  static OwnedTensor random(DType dtype, std::initializer_list<int64_t> shape, std::mt19937& random,
                            float deviation = 1.0f) {
    OwnedTensor tensor(dtype, shape);
    std::normal_distribution<float> normal(0.0f, deviation);
    for (int64_t i = 0; i < tensor.view_.elements(); ++i) set_element(tensor.view(), i, normal(random));
    return tensor;
  }

  Tensor view() const {
    Tensor tensor = view_;
    tensor.data = const_cast<char*>(bytes_.data());
    return tensor;
  }
  // Rows [begin, begin + count) of the first dimension.
  Tensor rows(int64_t begin, int64_t count) const {
    Tensor tensor = view();
    const int64_t row = view_.elements() / view_.shape[0];
    tensor.data = tensor.as<char>() + begin * row * static_cast<int64_t>(dtype_size(view_.dtype));
    tensor.shape[0] = count;
    return tensor;
  }
  double at(int64_t index) const { return element(view(), index); }
  int64_t elements() const { return view_.elements(); }
  bool operator==(const OwnedTensor& other) const { return bytes_ == other.bytes_; }

 private:
  Tensor view_;
  std::vector<char> bytes_;
};

inline bool same_bits(const Tensor& a, const Tensor& b) {
  return a.bytes() == b.bytes() && std::memcmp(a.data, b.data, a.bytes()) == 0;
}

// The first element of `actual` further from `truth(i)` than `tolerance(i)`, in words; nothing where all are
// close.
inline std::optional<std::string> first_difference(const OwnedTensor& actual,
                                                   const std::function<double(int64_t)>& truth,
                                                   const std::function<double(int64_t)>& tolerance) {
  for (int64_t i = 0; i < actual.elements(); ++i) {
    const double expected = truth(i);
    const double difference = std::abs(actual.at(i) - expected);
    if (difference <= tolerance(i)) continue;  // false for NaN
    return "element " + std::to_string(i) + " of " + actual.view().shape_text() + " is " +
           std::to_string(actual.at(i)) + ", expected " + std::to_string(expected) + " ± " +
           std::to_string(tolerance(i));
  }
  return std::nullopt;
}

// A backend under test.
struct Variant {
  std::string name;
  BackendOptions options;
  friend std::ostream& operator<<(std::ostream& out, const Variant& variant) {
    return out << variant.label();
  }
  std::string label() const {
    return name + "_" + std::string(dtype_name(options.dtype)) +
           (name == "ref" ? "" : "_" + std::to_string(static_cast<int>(options.isa)));
  }
};

// Every instruction set this machine has, in both types.
inline std::vector<Variant> cpu_variants() {
  std::vector<Variant> variants;
  for (DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    for (CpuIsa isa : {CpuIsa::kSse, CpuIsa::kAvx2, CpuIsa::kAvx512, CpuIsa::kAvx512Bf16, CpuIsa::kAmx}) {
      if (cpu::isa_includes(cpu::detect_isa(), isa)) {
        variants.push_back({"cpu", {.dtype = dtype, .threads = 2, .isa = isa}});
      }
    }
  }
  return variants;
}

inline std::vector<Variant> all_variants() {
  std::vector<Variant> variants = cpu_variants();
  for (DType dtype : {DType::kFloat32, DType::kBFloat16}) variants.push_back({"ref", {.dtype = dtype}});
  return variants;
}

inline std::unique_ptr<Backend> make(const Variant& variant) {
  auto backend = make_backend(variant.name, variant.options);
  EXPECT_TRUE(backend.ok()) << backend.status();
  return std::move(*backend);
}

inline std::unique_ptr<PackedWeight> pack(Backend& backend, const OwnedTensor& weight) {
  auto packed = backend.pack(weight.view());
  EXPECT_TRUE(packed.ok()) << packed.status();
  return std::move(*packed);
}

inline std::string variant_label(const testing::TestParamInfo<Variant>& param) {
  return param.param.label();
}

}  // namespace troupe::kernel_testing
