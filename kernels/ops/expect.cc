#include "kernels/ops/expect.h"

#include <string>

#include "kernels/check.h"

namespace troupe::expect {

void same(const char* op, const char* name, const Tensor& actual, const Tensor& expected) {
  if (actual.rank == expected.rank && actual.shape == expected.shape && actual.dtype == expected.dtype)
    return;
  check_failed(op, std::string(name) + " is " + actual.shape_text() + ", expected " + expected.shape_text());
}

void shape(const char* op, const char* name, const Tensor& actual, DType dtype,
           std::initializer_list<int64_t> expected) {
  same(op, name, actual, Tensor::make(nullptr, dtype, expected));
}

void rank2(const char* op, const char* name, const Tensor& tensor) {
  if (tensor.rank == 2) return;
  check_failed(op, std::string(name) + " is " + tensor.shape_text() + ", expected two dimensions");
}

void optional(const char* op, const char* name, const Tensor& actual, int64_t length) {
  if (!actual.empty()) shape(op, name, actual, DType::kFloat32, {length});
}

int64_t drawn(const char* op, const Tensor& draws) {
  if (draws.empty()) return 0;
  shape(op, "drawn", draws, DType::kInt32, {draws.shape[0]});
  return draws.shape[0];
}

void count(const char* op, const char* name, size_t actual, int64_t expected) {
  if (static_cast<int64_t>(actual) == expected) return;
  check_failed(op, std::string(name) + " has " + std::to_string(actual) + " entries, expected " +
                       std::to_string(expected));
}

void index(const char* op, const char* name, int64_t value, int64_t limit) {
  if (value >= 0 && value < limit) return;
  check_failed(op, std::string(name) + " holds " + std::to_string(value) + ", expected [0, " +
                       std::to_string(limit) + ")");
}

}  // namespace troupe::expect
