#pragma once

// Shared by the tests of the CUDA kernels. Built twice. In cuda_test the kernels run on the CPU (emulated/),
// where device memory is the host's, and every op is run with the threads of a block in three orders: a
// missing barrier shows as other bits. In cuda_gpu_test (TROUPE_GPU_TEST) they run on the GPU, three times
// over.

#include <functional>

#include "kernels/backends.h"
#include "tests/kernels/kernel_testing.h"
#ifdef TROUPE_GPU_TEST
#include "tests/gpu/mirrored_backend.h"
#else
#include "kernels/cuda/backend.h"
#include "tests/kernels/emulated/emulator.h"
#endif

namespace troupe::cuda_testing {

using namespace kernel_testing;

#ifdef TROUPE_GPU_TEST
inline constexpr bool kEmulated = false;
inline std::unique_ptr<Backend> make_cuda_with(const BackendOptions& options) {
  auto backend = make_backend("cuda", options);
  EXPECT_TRUE(backend.ok()) << backend.status();
  return gpu_testing::mirror(*std::move(backend));
}
inline void set_thread_order(int) {}
#else
inline constexpr bool kEmulated = true;
inline std::unique_ptr<Backend> make_cuda_with(const BackendOptions& options) {
  auto backend = cuda::make_cuda_backend(options);
  EXPECT_TRUE(backend.ok()) << backend.status();
  return std::move(*backend);
}
inline void set_thread_order(int order) {
  constexpr emulated::Order kOrders[] = {emulated::Order::kForward, emulated::Order::kReverse,
                                         emulated::Order::kShuffled};
  emulated::set_order(kOrders[order], 7);
}
#endif

inline std::unique_ptr<Backend> make_cuda(DType dtype, bool reference_ops = false) {
  return make_cuda_with({.dtype = dtype, .cuda = {.reference_ops = reference_ops}});
}
inline std::unique_ptr<Backend> make_ref(DType dtype) {
  return make({"ref", {.dtype = dtype}});
}

// The result that `compute` writes into a tensor of NaN, the same bits in every order.
inline OwnedTensor in_every_order(DType dtype, std::initializer_list<int64_t> shape,
                                  const std::function<void(const Tensor& out)>& compute) {
  OwnedTensor first(dtype, shape);
  for (int order = 0; order < 3; ++order) {
    set_thread_order(order);
    OwnedTensor out(dtype, shape);
    for (int64_t i = 0; i < out.elements(); ++i) set_element(out.view(), i, std::nanf(""));
    compute(out.view());
    if (order == 0) first = out;
    EXPECT_TRUE(same_bits(out.view(), first.view())) << "a race: other bits in order " << order;
  }
  set_thread_order(0);
  return first;
}

inline std::optional<std::string> difference(const OwnedTensor& actual, const OwnedTensor& truth,
                                             const std::function<double(int64_t)>& tolerance) {
  return first_difference(
      actual, [&](int64_t i) { return truth.at(i); }, tolerance);
}

}  // namespace troupe::cuda_testing
