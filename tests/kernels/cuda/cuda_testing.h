#pragma once

// What the tests of the CUDA kernels share. The kernels run on the CPU (emulated/), where device memory is
// the host's, so that tests hand their tensors over as they are. Every op is run with the threads of a block
// in three orders: a missing barrier shows as other bits.

#include <functional>

#include "kernels/cuda/backend.h"
#include "tests/kernels/emulated/emulator.h"
#include "tests/kernels/kernel_testing.h"

namespace troupe::cuda_testing {

using namespace kernel_testing;

inline std::unique_ptr<Backend> make_cuda(DType dtype, bool reference_ops = false) {
  auto backend = cuda::make_cuda_backend({.dtype = dtype, .reference_ops = reference_ops});
  EXPECT_TRUE(backend.ok()) << backend.status();
  return std::move(*backend);
}

inline std::unique_ptr<Backend> make_ref(DType dtype) {
  return make({"ref", {.dtype = dtype}});
}

// What `compute` writes into a tensor of NaN, the same bits in every order.
inline OwnedTensor in_every_order(DType dtype, std::initializer_list<int64_t> shape,
                                  const std::function<void(const Tensor& out)>& compute) {
  OwnedTensor first(dtype, shape);
  for (const auto order :
       {emulated::Order::kForward, emulated::Order::kReverse, emulated::Order::kShuffled}) {
    emulated::set_order(order, 7);
    OwnedTensor out(dtype, shape);
    for (int64_t i = 0; i < out.elements(); ++i) set_element(out.view(), i, std::nanf(""));
    compute(out.view());
    if (order == emulated::Order::kForward) first = out;
    EXPECT_TRUE(same_bits(out.view(), first.view()))
        << "a race: other bits in order " << static_cast<int>(order);
  }
  emulated::set_order(emulated::Order::kForward, 0);
  return first;
}

inline std::optional<std::string> difference(const OwnedTensor& actual, const OwnedTensor& truth,
                                             const std::function<double(int64_t)>& tolerance) {
  return first_difference(
      actual, [&](int64_t i) { return truth.at(i); }, tolerance);
}

}  // namespace troupe::cuda_testing
